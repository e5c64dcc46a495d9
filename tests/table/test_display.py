"""How tables, scans, plans and checks are displayed in prompts and notebooks: one line of text, or
HTML in which all content is escaped.
"""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from watched import Watched, files_by_time

import mdt
from mdt.display import ROWS_MAX, TEXT_CHARACTERS_MAX, html_table, visible
from mdt.plan import planner
from mdt.plan.plan_state import IndexNote
from mdt.scan import first_rows
from mdt.services.checking.problems import CheckReport, Problem
from mdt.stores.storage import MemoryStorage

HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "'><svg/onload=alert(1)>",
    "&lt;b&gt;",
    "\x1b[2J\x1b]0;title\x07",
    "a\nb\rc",
    "\u202egnp.exe",
    "\0",
)
ALLOWED = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


class Strict(HTMLParser):
    """Accepts only the tags that mdt writes, closed in order, without attributes except colspan."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED and {name for name, _ in attrs} <= {"colspan"}, (tag, attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"

    def handle_comment(self, data):
        raise AssertionError(data)


def text_of(thing):
    parser = Strict()
    parser.feed(thing if isinstance(thing, str) else thing._repr_html_())
    parser.close()
    assert not parser.open
    return parser.text


def assert_harmless(text):
    assert all(c.isprintable() or c == "\n" for c in text), repr(text)


@pytest.fixture
def table():
    return files_by_time(MemoryStorage(), files=3, rows=200)


def test_reprs_are_one_line_that_describes_the_object(table):
    scan = table.scan("ts < 250 and x > 3", columns=["id", "ts"], limit=10, order_by="ts desc")
    query = "2 columns, where ts < 250 and x > 3, order by ts desc, limit 10"
    assert repr(scan) == f"<mdt scan of {table.definition.name} at commit 3: {query}>"
    read = "2 of 3 files, 3 of 6 row groups, 300 of 600 rows"
    assert repr(scan.explain()) == f"<mdt explanation of a scan at commit 3: {read}>"
    assert repr(table.check()) == "<mdt check of 3 files, 600 live rows: no problems>"
    assert repr(table.snapshot()) == f"<mdt snapshot 3 of {table.definition.name!r}: 3 files>"
    assert repr(table).startswith("<mdt table ") and "key=id" in repr(table)
    result = table.create_index("bitmap(note)", mode="async")
    write_result = table.upsert(table.scan(limit=1).to_arrow())
    plan = scan.explain()
    for thing in (
        scan,
        plan,
        table,
        table.snapshot(),
        table.check(),
        result,
        write_result,
        *plan.indexes,
    ):
        assert "\n" not in repr(thing)


def test_notebooks_show_the_plan_schema_definition_and_problems(table):
    scan = table.scan("ts < 250", order_by="ts", limit=5)
    table.create_index("bitmap(note)")
    for thing, *parts in (
        (scan, "ts < 250", "ts asc", "int64", "k000000", "limit 5; all 5 rows"),
        (table, table.path, "MERGE_ON_READ", "600", "string", "bitmap(note)\n3 of 3, 100 %"),
        (scan.explain(), "column_stats"),
        (table.check(), "problems\nnone"),
    ):
        text = text_of(thing)
        assert all(part in text for part in parts), text


def test_displaying_a_table_or_a_scan_repr_reads_no_data_file():
    storage = Watched()
    files_by_time(storage, files=3, rows=50)
    scan = mdt.open(storage).scan("x > 5", order_by="x", limit=3)
    storage.seen.clear()
    assert repr(scan) and text_of(mdt.open(storage))
    assert not storage.seen


@pytest.mark.parametrize(
    ("query", "shown", "files"),
    [
        ({}, "10 of 3,300 rows", 1),
        ({"limit": 12}, "10 of 12 rows", 1),
        ({"limit": 3}, "all 3 rows", 1),
        ({"limit": 0}, "all 0 rows", 0),
        ({"order_by": "ts desc"}, "10 of 3,300 rows", 1),
        ({"where": "ts >= 10 and note is not null"}, "the first 10 matching rows", 1),
        ({"where": "ts in (1200, 1201)"}, "all 2 rows", 1),
        ({"columns": []}, "10 of 3,300 rows", 0),
    ],
)
def test_a_notebook_shows_ten_rows_and_reads_only_their_file(query, shown, files):
    storage = Watched()
    files_by_time(storage, files=3, rows=1_100)
    scan = mdt.open(storage).scan(**query)
    storage.seen.clear()
    text = text_of(scan)
    assert f"; {shown}\n" in text
    assert len(storage.seen) <= files
    assert text.count("\nk0") == (min(10, scan.count()) if scan.columns else 0)


def test_a_preview_shows_types_nulls_and_the_beginning_of_long_values():
    far = pa.array([2**40, None], pa.timestamp("s"))
    nested = pa.array([{"a": [1, None]}, None])
    data = pa.table({"id": ["<1>", "2"], "at": far, "n": nested, "b": ["x" * 500, "\x1b[2J"]})
    table = mdt.create(MemoryStorage(), data.schema, ["id"])
    table.bulk_insert(data)
    html = table.scan(order_by="id desc")._repr_html_()
    text = text_of(html)
    assert "<1>" not in html and "<1>" in text
    assert "timestamp[s]" in text and "{'a': [1, None]}" in text and "36812-02-20" in text
    assert text.count("null\n") == 2
    assert "x" * 80 + "…" in text and "x" * 81 not in text
    assert_harmless(text)


def test_a_preview_shows_forty_columns():
    schema = pa.schema({f"c{n}": pa.int64() for n in range(50)})
    text = text_of(mdt.create(MemoryStorage(), schema, ["c0"]).scan())
    assert "all 0 rows, 40 of 50 columns" in text
    assert "c39\n" in text and "c40\n" not in text


@pytest.mark.parametrize(
    "error", [mdt.Corrupt("<b>broken</b>", path="p"), KeyError("<b>broken</b>")]
)
def test_a_notebook_shows_the_error_of_a_scan_whose_rows_cannot_be_read(table, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(first_rows, "read", fail)
    text = text_of(table.scan("ts < 5"))
    assert "cannot be read" in text and "<b>broken</b>" in text and "int64" in text


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_displayed_as_text_and_never_as_markup(hostile, table):
    note = IndexNote(hostile, True, 1, 1, "used", hostile)
    scan = table.scan([("note", "=", hostile)], order_by="note")
    plan = replace(
        scan.explain(), indexes=(note, replace(note, used=False, reason=hostile)), stops=hostile
    )
    report = CheckReport((Problem(hostile, hostile, offset=5), Problem("a", "b")), 1, 1, 1, 1)
    named_table = mdt.create(MemoryStorage(), table.schema, ["id"], options={"mdt.table.name": "t"})
    object.__setattr__(named_table.definition, "name", hostile)
    for thing in (scan, plan, report, named_table, named_table.scan()):
        text = text_of(thing)
        assert_harmless(text)
        assert_harmless(repr(thing))
        assert "\n" not in repr(thing)
    assert visible(hostile) in text_of(report)


def test_a_notebook_shows_the_error_of_a_scan_that_cannot_be_planned(table, monkeypatch):
    def fail(*_, **__):
        raise mdt.Corrupt("<b>broken</b>", path="somewhere")

    scan = table.scan("ts < 5")
    monkeypatch.setattr(planner, "plan", fail)
    assert "cannot be read" in text_of(scan) and "<b>broken</b>" in text_of(scan)


def test_long_values_and_tables_are_truncated(table):
    long_scan = table.scan([("id", "in", [f"k{n}" for n in range(20_000)])])
    assert len(repr(long_scan)) < 2 * TEXT_CHARACTERS_MAX and len(long_scan._repr_html_()) < 5_000
    text = text_of(html_table("t", ("a", "b"), ((n, "x" * 1000) for n in range(3 * ROWS_MAX))))
    assert f"… and {2 * ROWS_MAX} more" in text and str(ROWS_MAX) not in text.split()
    columns = pa.schema({f"c{n}": pa.int64() for n in range(501)})
    assert "… and 401 more" in text_of(mdt.create(MemoryStorage(), columns, ["c0"]))

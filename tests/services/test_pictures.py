"""``t.show()``: the text summary and the drawing of a table."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from indexes.values import encode
from mdt.errors import Expired, Invalid
from mdt.services.reports import file_map
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, a float64, b timestamp[us], city string")
OPTIONS = {"mdt.max.file.bytes": 40_000, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
SVG = "{http://www.w3.org/2000/svg}"


def rows(count, first=0):
    random = np.random.default_rng(first)
    columns = [
        np.arange(first, first + count),
        random.random(count),
        random.integers(0, 10**9, count),
        ["x"] * count,
    ]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def filled_table(**more):
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], table_type="MERGE_ON_READ", options={**OPTIONS, **more}
    )
    for first in range(0, 6_000, 1_000):
        table.bulk_insert(rows(1_000, first))
    return table


def rectangles(picture):
    return [
        shape
        for shape in ElementTree.fromstring(picture).iter(f"{SVG}rect")
        if shape.get("stroke-width")
    ]


def texts(picture):
    return [str(text.text) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_the_text_shows_commits_file_groups_log_files_deleted_rows_and_indexes():
    table = filled_table()
    table.create_index("bitmap(city)")
    table.upsert(rows(100, 50))
    table.tag("good")
    lines = str(table.show(commits=4)).splitlines()
    summary = table.show().summary
    assert (summary.rows, summary.dead, summary.log_files) == (6_000, 100, 1)
    assert summary.files == summary.groups + 1 == len(table.files())
    assert sum(summary.group_sizes.values()) == summary.groups
    assert summary.bytes == sum(table.files()["size"].to_pylist()) > summary.log_bytes > 0
    marks = {line.split()[0]: line.split()[1] for line in lines if "■" in line}
    assert marks["upsert"] == "··■·" and marks["tag"] == "···■"
    assert f"readable: states 0 to {summary.seq}; tags: good (commit {summary.seq - 1})" in lines
    assert "indexes: bitmap(city) 100%" in lines
    assert len(table.show(commits=4).summary.commits) == 4
    assert repr(table.show()) == f"<mdt picture of {table.definition.name}, commit {summary.seq}>"


def test_due_services_are_listed_until_they_have_run():
    table = filled_table(**{"mdt.compact.log.files": 2, "mdt.clean.retain.commits": 1})
    assert table.show().summary.due == ()
    for first in range(16):
        table.upsert(rows(10, first))
    table.create_index("bitmap(city)", mode="async")
    logs, states, index = table.show().summary.due
    assert logs == "compaction of 1 file groups with 2 or more log files"
    assert states.startswith("cleaning of ") and index == "build of bitmap(city)"
    table.compact()
    table.clean()
    table.build_indexes()
    assert table.show().summary.due == ()


def test_files_are_drawn_as_before_and_after_the_newest_clustering():
    table = filled_table()
    assert len(rectangles(table.show(["a", "b"]).svg())) == len(table.files())
    before = len(table.files())
    table.cluster(["a", "b"], curve="hilbert")
    picture = table.show(["a", "b"])
    assert picture.layout is not None
    old, new = picture.layout.states
    assert (len(old.is_log), len(new.is_log)) == (before, len(table.files()))
    assert np.mean((new.high - new.low)[0] * (new.high - new.low)[1]) < 0.5 * np.mean(
        (old.high - old.low)[0] * (old.high - old.low)[1]
    )
    for state in (old, new):
        assert (state.low <= state.high).all() and state.low.min() >= 0 and state.high.max() <= 1
    assert len(rectangles(picture.svg())) == before + len(table.files())
    assert len(rectangles(table.show(["a", "b"], before=1).svg())) == 1 * len(
        table.snapshot(1)
    ) + len(table.files())


def test_by_default_files_are_drawn_over_the_two_columns_with_the_least_overlap():
    table = filled_table()
    layout = table.show().layout
    assert layout is not None and layout.columns[0] == "id"
    table.cluster(["a", "b"], curve="zorder")
    layout = table.show().layout
    assert layout is not None and set(layout.columns) == {"a", "b"}


def test_axes_of_numbers_and_times_are_linear_and_axes_of_texts_are_not_to_scale():
    at = pa.field("at", pa.timestamp("us", "UTC"))
    table = mdt.create(MemoryStorage(), columns("id int64, city string").append(at), ["id"])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for first in (0, 90):
        days = [first, first + 10]
        table.bulk_insert(
            [{"id": day, "at": start + timedelta(days=day), "city": f"c{day}"} for day in days]
        )
    layout = table.show(["id", "at"]).layout
    assert layout is not None
    identifiers, times = layout.axes
    assert identifiers.is_linear and times.is_linear
    assert list(identifiers.labels.values()) == ["0", "33.3", "66.7", "100"]
    assert [times.labels[0.0], times.labels[1.0]] == ["2026-01-01", "2026-04-11"]
    (state,) = layout.states
    assert np.allclose(np.sort(state.low[0]), [0, 0.9])
    assert np.allclose(np.sort(state.high[1]), [0.1, 1])
    picture = table.show(["id", "city"])
    assert picture.layout is not None and not picture.layout.axes[1].is_linear
    assert "↑ city (in order of values, not to scale)" in texts(picture.svg())


@pytest.mark.parametrize(
    ("values", "is_linear", "labels"),
    [
        ([0, 1, 2, 3, 4, 10**12], False, ["0", "1e+12"]),
        ([0.5, 0.75], True, ["0.5", "0.5833", "0.6667", "0.75"]),
        ([1.5, float("inf")], False, ["1.5", "inf"]),
        (["the same street 1", "the same street 25"], False, ["…1", "…25"]),
        ([datetime(2026, 1, 1, 8), datetime(2026, 1, 1, 14)], True, ["01-01 08:00", "01-01 14:00"]),
        ([Decimal("1.50"), Decimal("4.50")], True, ["1.5", "2.5", "3.5", "4.5"]),
        ([date(1, 1, 1), date(9999, 12, 31)], True, ["0001-01-01", "9999-12-31"]),
        (["only"], False, ["only"]),
        ([], False, []),
    ],
)
def test_labels_of_axes_are_short_and_correct(values, is_linear, labels):
    array = pa.array(values) if values else pa.array([], "string")
    positions, axis = file_map._scale(encode(array), array.type)
    assert axis.is_linear == is_linear and len(positions) == len(values)
    texts_shown = list(axis.labels.values())
    assert texts_shown == labels or [texts_shown[0], texts_shown[-1]] == labels
    assert all(0 <= position <= 1 for position in [*positions, *axis.labels])


def test_the_timeline_has_times_and_a_legend_and_its_labels_do_not_overlap():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=OPTIONS)
    for first in range(12):
        table.upsert(rows(1, first))
        table.tag(f"release-{first}")
    picture = ElementTree.fromstring(table.show().svg())
    labels = [
        (float(text.get("y", 0)), float(text.get("x", 0)), str(text.text))
        for text in picture.iter(f"{SVG}text")
        if str(text.text).startswith("release-")
    ]
    assert len(labels) == 12
    for (row, x, name), (next_row, next_x, _) in pairwise(sorted(labels)):
        assert row != next_row or x + 6 * len(name) <= next_x
    assert [str(title.text) for title in picture.iter(f"{SVG}title")].count("tag release-11") == 1
    words = texts(table.show().svg())
    assert {"commit 0", "commit 24", "rows", "other", "base file", "log file"} < set(words)
    assert sum(word.startswith("2023-11-14 ") for word in words) == 5


def test_of_many_files_only_a_sample_is_drawn_and_a_note_is_shown(
    monkeypatch,
):
    monkeypatch.setattr(file_map, "FILES_DRAWN_MAX", 3)
    table = filled_table()
    picture = table.show(["id", "a"])
    assert picture.layout is not None and len(picture.layout.states[0].is_log) <= 3
    assert any("of them shown" in text for text in texts(picture.svg()))


def test_names_and_values_are_escaped_in_every_picture():
    table = mdt.create(MemoryStorage(), columns("k string, v string"), ["k"])
    table.upsert([{"k": "<script>", "v": '"&x"'}])
    table.tag("<i>")
    for picture in (table.show().svg(), table.show()._repr_html_()):
        assert "<script>" not in picture and "<i>" not in picture
    assert {"<script>", '"&x"', "<i>"} < set(texts(table.show().svg()))


def test_a_table_without_rows_or_with_one_column_is_shown_as_a_timeline_only():
    empty = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    single = mdt.create(MemoryStorage(), columns("id int64"), ["id"])
    single.upsert([{"id": 1}])
    for table in (empty, single):
        picture = table.show()
        assert picture.layout is None and not rectangles(picture.svg())
        assert "due: nothing" in str(picture)


def test_files_with_unknown_bounds_are_drawn_over_the_whole_axis():
    table = filled_table()
    table.alter(add={"c": "int64"})
    table.upsert([{"id": 1, "a": None, "b": None, "city": None, "c": None}])
    table.upsert([{"id": 5_001, "a": 0.5, "b": None, "city": None, "c": 7}])
    layout = table.show(["a", "c"], before=1).layout
    assert layout is not None
    old, new = ((state.low == 0) & (state.high == 1) for state in layout.states)
    assert old.tolist() == [[False], [True]]
    assert new.tolist() == [[False] * 6 + [True, False], [True] * 6 + [True, False]]


def test_showing_invalid_columns_or_unreadable_states_is_refused():
    table = filled_table()
    for names in (["a"], ["a", "a"], ["a", "none"], ["a", "b", "id"]):
        with pytest.raises(Invalid, match="two columns"):
            table.show(names)
    with pytest.raises(Invalid):
        table.show(before=99)
    table.clean(retain_commits=1)
    with pytest.raises(Expired):
        table.show(before=1)
    assert any("no longer readable" in text for text in texts(table.show().svg()))
    assert (
        mdt.open(table.storage, as_of=table.snapshot().seq).show().summary.seq
        == table.snapshot().seq
    )

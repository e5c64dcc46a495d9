"""ARCHITECTURE.md and CONTRIBUTING.md name what is there, and the flows pass the functions that the
page says.
"""

import inspect
import re
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from importlib import import_module

import documents
import pooled
import pyarrow as pa
import pytest

import mdt
from mdt.commit import transaction
from mdt.config import options_list
from mdt.metadata.files import paths
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.testing.local_engine import LocalEngine

PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "tests/golden/README.md"]
PAGES += sorted(
    page.relative_to(documents.ROOT).as_posix()
    for page in (documents.ROOT / "docs/decisions").glob("*.md")
)
OPTIONS = {option["name"] for option in options_list()}
CODE = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"(mdt|indexes)(\.\w+)+")
PATH = re.compile(r"(mdt|indexes|tests|docs|benchmarks)(/[\w.-]+)*/?|[\w-]+\.(md|toml)")
STEP = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
ONLY_THEN = "*(only then)*"
"""Ends the steps that a flow takes in other cases than the one that is run here."""
SPARK = "mdt.engines.spark."
ON_SPARK = ("4", "20")
"""Flows of Spark: their names are looked up, they are not run here.  What tasks do is run on
threads.
"""


def text_of(page):
    return (documents.ROOT / page).read_text(encoding="utf-8")


def found(name):
    """Return what a dotted name is.  Raises ImportError or AttributeError where it is nothing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with suppress(ModuleNotFoundError):
            thing = import_module(".".join(parts[:end]))
            for part in parts[end:]:
                thing = inspect.getattr_static(thing, part)
            return thing
    raise ImportError(name)


def missing(text):
    """Yield the names and paths in code spans of a page that are nothing."""
    for span in CODE.findall(text):
        if DOTTED.fullmatch(span) and not PATH.fullmatch(span) and span not in OPTIONS:
            try:
                found(span)
            except (ImportError, AttributeError):
                yield span
        elif (
            PATH.fullmatch(span)
            and not span.startswith(".")
            and not (documents.ROOT / span).exists()
        ):
            yield span


@pytest.mark.parametrize("page", PAGES)
def test_every_name_and_path_on_the_page_is_there(page):
    assert not list(missing(text_of(page)))


def test_what_is_not_there_is_found():
    text = (
        "`mdt.plan.planner.plan` `mdt.plan.nothing` `mdt.plan.planner.Nothing.run` `mdt/nowhere.py`"
        " `mdt.compression` `tests/`"
    )
    assert list(missing(text)) == [
        "mdt.plan.nothing",
        "mdt.plan.planner.Nothing.run",
        "mdt/nowhere.py",
    ]


def test_the_map_has_every_room():
    named = {
        span.strip("/")
        for span in CODE.findall(text_of("ARCHITECTURE.md").partition("## Words")[0])
    }
    inside = (documents.ROOT / "mdt").iterdir()
    rooms = {
        path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms -= {"__main__", "__init__"}
    unnamed = {room for room in rooms if not {f"mdt/{room}", f"mdt/{room}.py"} & named}
    assert unnamed <= {"create_table"}, "a room that nobody finds on the map"


# The flows


def flows():
    """Return number of a flow -> the functions that its steps name, without those of other
    cases.
    """
    text = text_of("ARCHITECTURE.md").partition("## Flows")[2].partition("## Invariants")[0]
    sections = re.split(r"^### (\d+)\. .*$", text, flags=re.MULTILINE)[1:]
    return {
        number: [
            name
            for step in STEP.findall(body)
            if not step.endswith(ONLY_THEN)
            for name in CODE.findall(step)
            if DOTTED.fullmatch(name) and not PATH.fullmatch(name) and not name.startswith(SPARK)
            if code_of(found(name)) is not None
        ]
        for number, body in zip(sections[::2], sections[1::2], strict=True)
    }


def code_of(thing):
    """Return the code that runs when a function, method or property is used, None for a class or
    module.
    """
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, cached_property):
        thing = thing.func
    return getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None


@contextmanager
def watched():
    """Collect the code that runs meanwhile, in threads that are started, too."""
    ran = set()

    def note(frame, event, argument):
        if event == "call":
            ran.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield ran
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def rows(ids, ts):
    columns = [f"id_{i:04}" for i in ids], [f"s{i % 50}" for i in ids], [f"n{i}" for i in ids]
    return pa.table([*columns, [ts] * len(ids)], ["id", "status", "note", "ts"])


def made(storage):
    """Return a merge-on-read table of a few row groups, with a bitmap and a log file."""
    table = mdt.create(
        storage,
        rows(range(1), 1).schema,
        ["id"],
        ordering="ts",
        key_index="record",
        indexes=["bitmap(status)"],
        options={"mdt.row.group.rows": 500, "mdt.small.file.bytes": 0, "mdt.table.name": "watched"},
    )
    table.bulk_insert(rows(range(3000), 1))
    table.upsert(rows(range(5, 9), 2))
    return table


def in_tasks(t, monkeypatch):
    """The tasks of Spark, on threads; they open the table where it stands."""
    folder = tempfile.TemporaryDirectory()
    monkeypatch.setattr(pooled, "processes", lambda: LocalEngine.on_threads(1))
    there = pooled.PooledTable(made(LocalStorage(folder.name, durable=False)).storage)

    def run():
        with folder:
            there.upsert(rows(range(10, 20), 3))

    return run


def conflict(t, monkeypatch):
    """Another writer changes the same file group once, after this one has claimed its instant."""
    other, claim = mdt.open(t.storage), transaction.claim_instant
    left = [rows(range(10, 12), 4)]

    def late(*given):
        claimed = claim(*given)
        if left:
            other.upsert(left.pop())
        return claimed

    monkeypatch.setattr(transaction, "claim_instant", late)
    return lambda: t.upsert(rows(range(10, 14), 5))


def recovery(t, monkeypatch):
    """One writer has died before its commit, one after it."""
    seq = t.snapshot().seq
    for change in range(1, 40):
        dying = t.storage.copy()
        with suppress(Crash):
            mdt.open(FaultyStorage(dying, change)).upsert(rows(range(30, 40), 3))
        if mdt.open(dying).snapshot().seq > seq:
            break
    dying.sleep(1)
    at_once = {"mdt.rollback.after.seconds": 0}
    with suppress(Crash):
        mdt.open(FaultyStorage(dying, 12), at_once).upsert(rows(range(50, 60), 3))
    dying.sleep(9999)
    return lambda: mdt.open(dying).upsert(rows(range(1, 2), 4))


def cluster(t, monkeypatch):
    t.bulk_insert(rows(range(5_000, 5_040), 3))
    return lambda: t.cluster(["note", "ts"], curve="zorder")


def clean(t, monkeypatch):
    """There are enough checkpoints for the log to be archived."""
    monkeypatch.setattr("mdt.services.reclaiming.cleaning.ARCHIVE_RECORDS_MIN", 1)
    for n in range(4):
        t.upsert(rows(range(10, 20), 4 + n))
        t.metadata.compact()
    return lambda: t.clean(retain_commits=1)


def repair(t, monkeypatch):
    """What was written beside data files is gone, and a checkpoint."""
    t.metadata.compact()
    for place in (paths.attachments_dir(), paths.checkpoints_dir()):
        for info in t.storage.list(place):
            t.storage.delete(info.path)
    return lambda: t.repair().ok and mdt.repair(t.storage).ok


def scan(t):
    mdt.open(t.storage).scan("status = 's7' and ts < 9", columns=["id"]).to_arrow()


def changes(t):
    for mode in ("net", "all"):
        t.changes(1, mode=mode, where="ts < 9").to_arrow()


def alter(t):
    """An alter, and a scan that reads row groups and pages of older files."""
    t.alter(add={"more": "int64"}, drop=["note"])
    t.scan().to_arrow()
    t.scan("status = 's7'", columns=["more"]).to_arrow()


def merge(t):
    by_key = t.merge(rows(range(2_990, 3_010), 7)).when_matched("source.ts > target.ts")
    by_key.update({"note": "'x'"}).when_not_matched().insert().execute()
    other = t.merge({"status": ["s7"]}, on="status").when_matched()
    other = other.update({"note": "target.note || '!'"})
    other.when_not_matched_by_source("target.status = 's6'").delete().execute()


def blend(t):
    data = rows(range(5, 20), 9).select(["id", "ts", "status"])
    t.upsert(data, partial=True, mergers={"status": "coalesce"})


def gather(t):
    with t.writer(max_seconds=3600) as writer:
        for ts in (7, 8):
            writer.upsert(rows(range(5, 20), ts))


RUNS = {
    "1": lambda t: t.upsert(rows(range(10, 20), 3)),
    "3": scan,
    "5": lambda t: t.create_index("bitmap(note)"),
    "6": lambda t: t.compact(),
    "10": changes,
    "12": alter,
    "13": lambda t: t.restore(1),
    "15": lambda t: t.update_where({"note": "note || '!'"}, "status = 's7'"),
    "16": lambda t: t.insert_overwrite(rows(range(10), 9)),
    "17": merge,
    "18": blend,
    "19": gather,
}
PREPARED = {
    "2": in_tasks,
    "7": conflict,
    "8": recovery,
    "9": cluster,
    "11": clean,
    "14": repair,
}
"""Flows that begin with more than a table: what is to be watched is returned."""


@pytest.mark.parametrize("number", [*RUNS, *PREPARED])
def test_a_flow_passes_the_functions_that_the_page_names(number, monkeypatch):
    named, table = flows()[number], made(MemoryStorage())
    run = partial(RUNS[number], table) if number in RUNS else PREPARED[number](table, monkeypatch)
    with watched() as ran:
        assert run() is not False
    assert len(named) >= 4
    assert [name for name in named if code_of(found(name)) not in ran] == []


def test_every_flow_is_run_or_belongs_to_spark():
    assert set(flows()) == {*RUNS, *PREPARED, *ON_SPARK}

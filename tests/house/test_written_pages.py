"""ARCHITECTURE.md and CONTRIBUTING.md name what is there, and the flows pass the functions that the
page says.
"""

import inspect
import re
import sys
import threading
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module

import documents
import pyarrow as pa
import pytest

import mdt
from mdt.commit import transaction
from mdt.option_lists import options_list
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "tests/golden/README.md"]
PAGES += sorted(
    page.relative_to(documents.ROOT).as_posix()
    for page in (documents.ROOT / "docs/decisions").glob("*.md")
)
OPTIONS = {option["name"] for option in options_list()}
CODE = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"(mdt|indexes)(\.\w+)+")
PATH = re.compile(r"(mdt|indexes|tests|docs|benchmarks)(/[\w.-]+)*/?|[\w-]+\.(md|toml)")
STEP = re.compile(r"^\d+\. .*(?:\n   .*)*", re.MULTILINE)


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
        for span in CODE.findall(text_of("ARCHITECTURE.md").partition("## Terms")[0])
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
    """Return the number of each flow -> the functions that its steps name."""
    text = text_of("ARCHITECTURE.md").partition("## Flows")[2].partition("## Invariants")[0]
    sections = re.split(r"^### (\d+)\. .*$", text, flags=re.MULTILINE)[1:]
    return {
        number: [
            name
            for step in STEP.findall(body)
            for name in CODE.findall(step)
            if DOTTED.fullmatch(name) and not PATH.fullmatch(name)
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


def scan(t, monkeypatch):
    return lambda: mdt.open(t.storage).scan("status = 's7' and ts < 9", columns=["id"]).to_arrow()


RUNS = {
    "1": lambda t, monkeypatch: lambda: t.upsert(rows(range(10, 20), 3)),
    "2": scan,
    "3": conflict,
    "4": recovery,
}


def test_every_flow_is_run():
    assert set(flows()) == set(RUNS)


@pytest.mark.parametrize("number", RUNS)
def test_a_flow_calls_the_functions_that_the_page_names(number, monkeypatch):
    named, run = flows()[number], RUNS[number](made(MemoryStorage()), monkeypatch)
    with watched() as ran:
        run()
    assert len(named) >= 4
    assert [name for name in named if code_of(found(name)) not in ran] == []

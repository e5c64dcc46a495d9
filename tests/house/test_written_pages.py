"""Names and paths in ARCHITECTURE.md and CONTRIBUTING.md exist, and each flow calls the functions
that the page lists.
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


def resolve(name):
    """Return the object with a dotted name.  Raises ImportError or AttributeError without one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with suppress(ModuleNotFoundError):
            value = import_module(".".join(parts[:end]))
            for part in parts[end:]:
                value = inspect.getattr_static(value, part)
            return value
    raise ImportError(name)


def missing(text):
    """Yield the names and paths in code spans of a page that do not exist."""
    for span in CODE.findall(text):
        if DOTTED.fullmatch(span) and not PATH.fullmatch(span) and span not in OPTIONS:
            try:
                resolve(span)
            except (ImportError, AttributeError):
                yield span
        elif (
            PATH.fullmatch(span)
            and not span.startswith(".")
            and not (documents.ROOT / span).exists()
        ):
            yield span


@pytest.mark.parametrize("page", PAGES)
def test_every_name_and_path_on_the_page_exists(page):
    assert not list(missing(text_of(page)))


def test_names_and_paths_that_do_not_exist_are_reported():
    text = (
        "`mdt.plan.planner.plan` `mdt.plan.nothing` `mdt.plan.planner.Nothing.run` `mdt/nowhere.py`"
        " `mdt.compression` `tests/`"
    )
    assert list(missing(text)) == [
        "mdt.plan.nothing",
        "mdt.plan.planner.Nothing.run",
        "mdt/nowhere.py",
    ]


def test_the_map_in_the_architecture_page_has_every_module_of_mdt():
    named = {
        span.strip("/")
        for span in CODE.findall(text_of("ARCHITECTURE.md").partition("## Terms")[0])
    }
    entries = (documents.ROOT / "mdt").iterdir()
    modules = {
        path.stem for path in entries if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    modules -= {"__main__", "__init__"}
    unnamed = {module for module in modules if not {f"mdt/{module}", f"mdt/{module}.py"} & named}
    assert unnamed <= {"create_table"}, "modules that are missing on the map"


# The flows


def flows():
    """Return the number of each flow -> the functions that its steps list."""
    text = text_of("ARCHITECTURE.md").partition("## Flows")[2].partition("## Invariants")[0]
    sections = re.split(r"^### (\d+)\. .*$", text, flags=re.MULTILINE)[1:]
    return {
        number: [
            name
            for step in STEP.findall(body)
            for name in CODE.findall(step)
            if DOTTED.fullmatch(name) and not PATH.fullmatch(name)
            if code_of(resolve(name)) is not None
        ]
        for number, body in zip(sections[::2], sections[1::2], strict=True)
    }


def code_of(value):
    """Return the code object that runs when a function, method or property is used, or None for a
    class or module.
    """
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, cached_property):
        value = value.func
    return getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None


@contextmanager
def record_calls():
    """Collect the code objects that run in the block, including threads that it starts."""
    ran = set()

    def record_call(frame, event, argument):
        if event == "call":
            ran.add(frame.f_code)

    old_profile = sys.getprofile()
    sys.setprofile(record_call)
    threading.setprofile(record_call)
    try:
        yield ran
    finally:
        sys.setprofile(old_profile)
        threading.setprofile(None)


def rows(ids, ts):
    columns = [f"id_{i:04}" for i in ids], [f"s{i % 50}" for i in ids], [f"n{i}" for i in ids]
    return pa.table([*columns, [ts] * len(ids)], ["id", "status", "note", "ts"])


def make_table(storage):
    """Return a merge-on-read table with several row groups, a bitmap index and a log file."""
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
    """Let another writer change the same file group once, after this writer claimed its instant."""
    other, claim = mdt.open(t.storage), transaction.claim_instant
    conflicting_rows = [rows(range(10, 12), 4)]

    def claim_before_conflict(*arguments):
        claimed = claim(*arguments)
        if conflicting_rows:
            other.upsert(conflicting_rows.pop())
        return claimed

    monkeypatch.setattr(transaction, "claim_instant", claim_before_conflict)
    return lambda: t.upsert(rows(range(10, 14), 5))


def recovery(t, monkeypatch):
    """Let a writer crash after its commit, and another writer before its commit."""
    seq = t.snapshot().seq
    for change in range(1, 40):
        storage = t.storage.copy()
        with suppress(Crash):
            mdt.open(FaultyStorage(storage, change)).upsert(rows(range(30, 40), 3))
        if mdt.open(storage).snapshot().seq > seq:
            break
    storage.sleep(1)
    options = {"mdt.rollback.after.seconds": 0}
    with suppress(Crash):
        mdt.open(FaultyStorage(storage, 12), options).upsert(rows(range(50, 60), 3))
    storage.sleep(9999)
    return lambda: mdt.open(storage).upsert(rows(range(1, 2), 4))


def scan(t, monkeypatch):
    return lambda: mdt.open(t.storage).scan("status = 's7' and ts < 9", columns=["id"]).to_arrow()


RUNS = {
    "1": lambda t, monkeypatch: lambda: t.upsert(rows(range(10, 20), 3)),
    "2": scan,
    "3": conflict,
    "4": recovery,
}


def test_every_flow_on_the_page_is_run():
    assert set(flows()) == set(RUNS)


@pytest.mark.parametrize("number", RUNS)
def test_a_flow_calls_the_functions_that_the_page_names(number, monkeypatch):
    named, run = flows()[number], RUNS[number](make_table(MemoryStorage()), monkeypatch)
    with record_calls() as ran:
        run()
    assert len(named) >= 4
    assert [name for name in named if code_of(resolve(name)) not in ran] == []

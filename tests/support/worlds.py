"""Small tables in memory for the tests that crash, lose replies and interleave writers. The model
is a dict.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import pyarrow as pa
import pytest
from counting import count
from hudi import HudiTable

import mdt
from mdt.commit import publish
from mdt.commit.operation import Operation
from mdt.commit.recovery import pending
from mdt.commit.transaction import CommitResult, run, steps
from mdt.config import Options
from mdt.hudi.layout import layout_of
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.services.layout import small_files
from mdt.services.layout.budget import everywhere
from mdt.services.layout.clustering import Clustering
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.curves import SORT
from mdt.services.layout.log_compaction import LogCompaction
from mdt.services.layout.split_groups import SplitGroups
from mdt.stores.storage import MemoryStorage, Storage
from mdt.table import Table
from mdt.testing.faulty import Crash, FaultyStorage

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
MOR, COW = "MERGE_ON_READ", "COPY_ON_WRITE"
LATER_SECONDS = 2 * 3600
"""Longer than the time after which a writer considers an unfinished transaction crashed."""
S = TypeVar("S", bound=Storage)
MODES = ("before", "after", "torn")
"""How the k-th change of storage may end when its process crashes."""
VERSIONS = (6, 9)
"""Hudi's table versions."""
VERSION = "mdt.table.version"
OPTIONS: dict[str, Any] = {
    "mdt.writer.threads": 1,
    "mdt.reader.threads": 1,
    "mdt.table.name": "world",
    VERSION: 6,
}
"""One thread, so that the k-th storage operation of a flow is the same in every run."""

State = Mapping[str, tuple[int, float]]
"""The rows of a table: id -> (ts, fare)."""


def city(number: int) -> str:
    """Even numbers are in x, odd numbers in y."""
    return "xy"[number % 2]


def rows(ids: Iterable[int], ts: int, fare: float) -> pa.Table:
    """Return one row for each number."""
    numbers = list(ids)
    n = len(numbers)
    columns = [[f"k{i}" for i in numbers], [city(i) for i in numbers], [ts] * n, [fare] * n]
    return pa.table(columns, schema=SCHEMA)


def history(table: Table, seed: str, commits: int, retain: int) -> Iterator[None]:
    """Upsert random rows so many times, with other operations and services in between. Yields after
    each upsert and the operation that follows it.

    Args:
        retain: Commits that a cleaning keeps.
    """
    draw = random.Random(seed)
    for ts in range(1, commits + 1):
        table.upsert(rows(draw.sample(range(30), 5), ts, 1.0))
        step = draw.random()
        if step < 0.2:
            table.delete(rows(draw.sample(range(30), 2), ts, 1.0))
        elif step < 0.3:
            table.compact()
        elif step < 0.4:
            table.cluster("fare")
        elif step < 0.5:
            table.clean(retain_commits=retain)
        elif step < 0.6:
            table.delete_where("fare > 5 or id = 'k3'")
        elif step < 0.7:
            table.update_where({"fare": "7.0"}, "id = 'k4'")
        yield


def upserted(state: State, ids: Iterable[int], ts: int, fare: float) -> State:
    """Return the model after an upsert of :func:`rows`: the larger ts wins, at equal values the
    later upsert.
    """
    fresh = {f"k{i}": (ts, fare) for i in ids}
    return {
        **state,
        **{key: row for key, row in fresh.items() if key not in state or state[key][0] <= ts},
    }


def deleted(state: State, ids: Iterable[int]) -> State:
    """Return the model after a delete."""
    deleted_keys = {f"k{i}" for i in ids}
    return {key: row for key, row in state.items() if key not in deleted_keys}


def as_state(table: pa.Table | None) -> State:
    """Return the rows of a table. Assert that each key occurs once and is in its partition."""
    if table is None:
        return {}
    live_rows = table.select(SCHEMA.names).to_pylist()
    state = {row["id"]: (row["ts"], row["fare"]) for row in live_rows}
    assert len(state) == len(live_rows), (
        f"a key is live twice: {sorted(row['id'] for row in live_rows)}"
    )
    assert all(row["city"] == city(int(row["id"][1:])) for row in live_rows), (
        "a row is in a wrong partition"
    )
    return state


@contextmanager
def tables_of(version: int) -> Iterator[None]:
    """Context in which new worlds have a table version."""
    with patch.dict(OPTIONS, {VERSION: version}):
        yield


def make(
    storage: Storage,
    table_type: str,
    key_index: str,
    schema: pa.Schema = SCHEMA,
    scope: str | None = None,
    **options: Any,
) -> Table:
    """Create an empty table."""
    return mdt.create(
        storage,
        schema,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=table_type,
        key_index=key_index,
        scope=scope,
        options={**OPTIONS, **options},
    )


Objects = tuple[tuple[str, bytes], ...]
"""All objects of a storage. Worlds repeat exactly, so many crashes and schedules leave the same
bytes. Results for the same objects are cached, which saves three of four checks of crashes.
"""


def objects_of(storage: Storage) -> Objects | None:
    """Return the objects of a storage in memory, or None for another storage, which may fail or
    count.
    """
    if type(storage) is not MemoryStorage:
        return None
    return tuple((info.path, storage.read(info.path)) for info in storage.list(""))


R = TypeVar("R")


def once_a_world(look: Callable[[Storage], R]) -> Callable[[Storage], R]:
    """Return a function of a storage that is called only once for storages with the same
    objects.
    """
    results: dict[Objects, R] = {}

    def look_once(storage: Storage) -> R:
        objects = objects_of(storage)
        if objects is None:
            return look(storage)
        if objects not in results:
            results[objects] = look(storage)
        return results[objects]

    return look_once


@once_a_world
def ours(storage: Storage) -> State:
    """Open the table again and return the rows of a scan."""
    return as_state(mdt.open(storage).scan().to_arrow())


@dataclass(frozen=True)
class TransactionLog:
    """The commits of a table: the newest, all in the history, their transactions, and the number of
    pending claims.
    """

    seq: int
    seqs: list[int]
    txns: set[str]
    pending: int


@once_a_world
def transaction_log(storage: Storage) -> TransactionLog:
    """Open the table again and return its commits."""
    table = mdt.open(storage)
    history = table.history()
    seqs, txns = history["seq"].to_pylist(), set(history["txn"].to_pylist())
    return TransactionLog(table.snapshot().seq, seqs, txns, len(pending(table.metadata)))


def replayed(table: Table) -> State:
    """Return the state that results from all changes since the oldest readable state, applied one
    after the other.
    """
    horizon = table.snapshot().retention.horizon
    state = dict(as_state(table.scan(as_of=horizon).to_arrow()))
    for change in table.changes(horizon, mode="all").to_arrow().to_pylist():
        row = change["ts"], change["fare"]
        if change["_change"] in ("insert", "update_after"):
            assert state.setdefault(change["id"], row) == row, "a key is inserted twice"
        else:
            assert state.pop(change["id"]) == row, "a deleted row was not live"
    return state


def theirs(storage: MemoryStorage) -> State | None:
    """Return the rows that hudi-rs sees in an export of ``storage``, or None if it sees
    no table.
    """
    if storage.size(paths.PROPERTIES) is None:
        return None
    names = [info.path for info in storage.list("") if not info.path.startswith(paths.PRIVATE)]
    return _read_by_hudi(tuple((name, MemoryStorage.read(storage, name)) for name in names))


@cache
def _read_by_hudi(objects: Objects) -> State:
    folder = tempfile.mkdtemp(prefix="world")
    try:
        for name, data in objects:
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        batches = HudiTable(folder).read()
        return as_state(
            pa.Table.from_batches([pa.record_batch(b) for b in batches]) if batches else None
        )
    finally:
        shutil.rmtree(folder)


@once_a_world
def assert_clean(storage: Storage) -> None:
    """Assert that nothing is damaged, and that no object of an unfinished transaction is left."""
    table = mdt.open(storage)
    report = table.check()
    assert report.ok, report
    assert not pending(table.metadata), "claims are left"
    if table.schema.names == SCHEMA.names:
        assert replayed(table) == as_state(table.scan().to_arrow()), (
            "changes do not result in the newest state"
        )
    all_records = map(table.metadata.record, range(table.snapshot().seq + 1))
    records = [record for record in all_records if record is not None]
    used = [r.instant for r in records if r.action not in publish.NO_INSTANTS]
    instants = set(used)
    assert len(instants) == len(used), "an instant is used twice"
    layout = layout_of(table.definition)
    instants |= {r.instant for r in records if "plan" in r.header.get("indexing", {})}
    if table.tags().num_rows:  # tags retain instants on Hudi's timeline, but not in the log
        instants.update(table.history()["instant"].to_pylist())
    for info in [*storage.list_dir(paths.HUDI), *storage.list_dir(layout.timeline)]:
        instant = layout.instant_at(info.path)
        known_time = instant is not None and instant.time in instants
        assert known_time or info.path == paths.PROPERTIES, f"a stray instant {info.path}"
    known = set(references.all_paths(table.metadata, table.snapshot()).to_pylist())
    assert {info.path for info in storage.list(paths.ATTACHMENTS_DIR)} <= known, (
        "orphaned attachments"
    )


@dataclass(frozen=True, eq=False)
class Flow:
    """An operation on a table: ``start`` makes the table, ``run`` runs the operation. The model is
    ``before`` and ``after``.
    """

    name: str
    start: Callable[[], MemoryStorage]
    run: Callable[[Storage], object]
    before: State
    after: State


BASE_STATE: State = upserted(upserted({}, range(6), 1, 1.0), range(3), 2, 2.0)


P = ParamSpec("P")


def copied(make: Callable[P, MemoryStorage]) -> Callable[P, MemoryStorage]:
    """Return a function that returns a fresh copy of a world. The world is made once in each
    version.
    """
    in_version = {version: cache(make) for version in VERSIONS}
    return lambda *arguments, **keywords: in_version[OPTIONS[VERSION]](
        *arguments, **keywords
    ).copy()


def fill(table: Table) -> MemoryStorage:
    """Write BASE_STATE into an empty table: two commits, the second an update."""
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    assert isinstance(table.storage, MemoryStorage)
    return table.storage


@copied
def filled(table_type: str, key_index: str, records: int = 32, **options: Any) -> MemoryStorage:
    """Return a table that holds BASE_STATE. Its metadata are compacted after ``records``
    commits.
    """
    options["mdt.metadata.compact.records"] = records
    return fill(make(MemoryStorage(), table_type, key_index, **options))


CLUSTERED_STATE: State = upserted(BASE_STATE, range(6, 12), 1, 1.5)


@copied
def spread(table_type: str, key_index: str) -> MemoryStorage:
    """Return a table that holds CLUSTERED_STATE in two file groups per partition, which overlap in
    ``fare``.
    """
    storage = filled(table_type, key_index)
    mdt.open(storage).bulk_insert(rows(range(6, 12), 1, 1.5))
    return storage


@copied
def logged(table_type: str, key_index: str) -> MemoryStorage:
    """Return a table that holds BASE_STATE and has two log files in each file group."""
    storage = filled(table_type, key_index)
    mdt.open(storage).upsert(rows(range(2), 2, 2.0))
    return storage


def compact_logs(table: Table) -> CommitResult[Any]:
    """Join the log files of every file group that has two of similar size."""
    groups = table.snapshot().file_groups
    operation = LogCompaction(
        table.metadata, table.options, names=groups.names(range(groups.count))
    )
    return run(table.metadata, operation)


def join_small_files(table: Table) -> bool:
    """Join small file groups wherever there are many of similar size. Return whether any were
    joined.
    """
    return small_files.join(
        table.metadata, table.snapshot(), table.options, everywhere(table.options)
    ).is_done


def later(storage: MemoryStorage) -> MemoryStorage:
    """Let enough time pass that unfinished transactions are considered crashed."""
    storage.sleep(LATER_SECONDS)
    return storage


def survivors(start: Callable[[], S], run: Callable[[Storage], object]) -> Iterator[tuple[str, S]]:
    """Yield the storage after a crash at each changing operation in each mode, with its name.

    A crash after an operation leaves the same state as a crash before the next one. Deletes cannot
    be torn.
    """
    complete_run = FaultyStorage(start())
    run(complete_run)
    for k, operation in enumerate(complete_run.operations, 1):
        for mode in MODES:
            is_last = k == len(complete_run.operations)
            if (mode == "after" and not is_last) or (
                mode == "torn" and operation.startswith("delete")
            ):
                continue
            storage = start()
            with pytest.raises(Crash):
                run(FaultyStorage(storage, k, mode))  # type: ignore[arg-type]
            yield f"{mode} {k} {operation}", storage


def recovered(
    start: Callable[[], S], run: Callable[[Storage], object], states: Collection[State], what: str
) -> Iterator[S]:
    """Yield the storage after a crash at each changing operation, and an abort. It holds one of
    ``states``, the same before and after the abort.

    ``what``: the name under which the crashes are counted.
    """
    for where, survivor in survivors(start, run):
        count(what)
        before = ours(survivor)
        assert before in states, f"a mixture {where}"
        mdt.open(survivor).abort()
        assert ours(survivor) == before, where
        assert_clean(survivor)
        yield survivor


@contextmanager
def meanwhile(operation: type[Operation[Any]], act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` when the first such operation has written its files and has not yet committed.
    Assert that this happened.
    """
    write, waiting = operation.write, [act]

    def write_and_act(self: Any, *arguments: Any) -> Any:
        changes = write(self, *arguments)
        if waiting:
            waiting.pop()()
        return changes

    with patch.object(operation, "write", write_and_act):
        yield
    assert not waiting, "nothing was written"


def cutting(metadata: Metadata) -> SplitGroups:
    """Return the operation that splits each file group of a table into files of up to two thirds of
    its largest file.
    """
    snapshot = metadata.newest()
    sizes = snapshot.files.numpy("size")[snapshot.live_numbers]
    options = replace(_options(metadata), max_file_bytes=int(sizes.max(initial=0)) * 2 // 3 + 1)
    names = snapshot.file_groups.names(range(snapshot.file_groups.count))
    return SplitGroups(metadata, options, snapshot.definition.key, SORT, names=names)


def cut(storage: Storage) -> None:
    """Split the file groups of a table with :func:`cutting`."""
    metadata = Metadata(storage)
    run(metadata, cutting(metadata))


def while_another_commits(make: Callable[[Metadata], Operation[Any]]) -> Callable[[Storage], None]:
    """Return a flow: an operation on all file groups. When its files are written, a writer changes
    one of the groups.
    """

    def run_beside_writer(storage: Storage) -> None:
        metadata = Metadata(storage)
        driver = steps(metadata, make(metadata))
        while next(driver, "written") != "written":
            pass
        mdt.open(storage).upsert(rows([0], 3, 3.0))
        for _ in driver:
            pass

    return run_beside_writer


def _options(metadata: Metadata) -> Options:
    return metadata.options(metadata.newest().definition)


cluster_while_another_commits = while_another_commits(
    lambda m: Clustering(m, _options(m), ("fare", "id"), "sort")
)
compact_while_another_commits = while_another_commits(lambda m: Compaction(m, _options(m)))
cut_while_another_commits = while_another_commits(cutting)

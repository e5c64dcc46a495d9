"""Deletes in tasks: the same as in process, on engines of threads, of processes, and of rows on
disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from counting import count
from pooled import PooledTable, copies, thread
from spilled import SpilledTable, in_pieces
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    as_state,
    assert_clean,
    filled,
    make,
    ours,
    recovered,
    rows,
    theirs,
)

import mdt
from mdt.engines import write as writes
from mdt.engines.spilled import Spilled, SpillingEngine
from mdt.errors import Conflict, Invalid
from mdt.progress import Progress
from mdt.schema.input import to_table
from mdt.stores.storage import LocalStorage, MemoryStorage, Storage
from mdt.write.operations import RowOperation

SMALL = {"mdt.write.memory.max": 1}
COUNTS = ("inserted", "updated", "deleted", "late", "missing")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sub", pa.int16()),
        ("city", pa.dictionary(pa.int32(), pa.string())),
        ("ts", pa.int64()),
        ("at", pa.timestamp("s")),
    ]
)


class ThreadTable(mdt.Table):
    """A table whose keys are deleted by tasks on one thread."""

    def _delete_rows(self, keys: Any, progress: Progress | None) -> mdt.WriteResult:
        self._before_rows()
        rows = to_table(keys, self.schema)
        operation = writes.write(
            thread(), self.metadata, self.options, [rows], rows.schema, "delete", progress
        )
        return mdt.WriteResult.of(self._commit_rows(operation), engine="arrow")


def data(
    seed: int, size: int, keys: int = 60, cities: tuple[str | None, ...] = ("Oslo", "Rome", None)
) -> pa.Table:
    """Random rows, of which some repeat keys."""
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, keys, size)
    return pa.table(
        {
            "id": [f"k{n // 2}" for n in numbers],
            "sub": numbers % 2,
            "city": draw.choice(list(cities), size),
            "ts": draw.integers(0, 9, size),
            "at": draw.integers(0, 10**9, size),
        }
    ).cast(SCHEMA)


def seen(table: mdt.Table) -> list[Any]:
    return sorted(
        (str(row), row["_hoodie_partition_path"])
        for row in (
            table.scan(columns=[*SCHEMA.names, "_hoodie_partition_path"]).to_arrow().to_pylist()
        )
    )


SHAPES = list(
    itertools.product(
        (MOR, COW),
        ("table", "partition"),
        ("keeps", "repeats", "plain"),
        ("bloom", "record", "bucket(buckets='3')"),
    )
)


def options_of(kind: str) -> dict[str, Any]:
    more = {
        "keeps": {"mdt.delete.keeps.ordering": True},
        "repeats": {"mdt.keys.repeat": True},
        "plain": {},
    }[kind]
    return {"mdt.max.file.bytes": 2048, "mdt.metadata.compact.records": 3, **more}


@pytest.mark.parametrize("engine", [ThreadTable, SpilledTable])
@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=[pytest.mark.nightly] if n % 5 else []) for n, s in enumerate(SHAPES)],
)
def test_a_delete_in_tasks_is_that_in_process(
    engine: type[mdt.Table], shape: tuple[str, str, str, str]
) -> None:
    """Counts, rows, and what the table remembers of deletes: shown by rows that come again, late or
    not.
    """
    table_type, scope, kind, index = shape
    if index.startswith("bucket") and (kind == "repeats" or scope == "table"):
        index = "simple"
    # a row does not leave its partition for none
    known = ("Oslo", "Rome") if scope == "table" else ("Oslo", "Rome", None)
    tables = []
    for opened in (mdt.Table, engine):
        storage = MemoryStorage()
        mdt.create(
            storage,
            SCHEMA,
            key=["id", "sub"],
            partition_by=["city"],
            scope=scope,
            ordering=None if kind == "plain" else "ts",
            table_type=table_type,
            key_index=index,
            options=options_of(kind),
        )
        tables.append(opened(storage))
    for table in tables:
        table.upsert(data(1, 80))
        if kind == "repeats":
            table.insert(data(2, 30), check=False)
    steps: list[Callable[[mdt.Table], Any]] = [
        lambda t: t.delete(data(3, 12, 90)),
        lambda t: t.delete(data(4, 20, 90).drop_columns(["ts", "at"])),
        lambda t: t.upsert(data(5, 25, cities=known)),
        lambda t: t.delete(data(6, 0)),
        lambda t: t.delete(data(7, 40, 200)),
        lambda t: t.upsert(data(8, 60, 200, cities=known)),
    ]
    for step in steps:
        found = [step(table) for table in tables]
        assert [getattr(found[0], name) for name in COUNTS] == [
            getattr(found[1], name) for name in COUNTS
        ]
        assert bool(found[0].instant) == bool(found[1].instant)
        assert seen(tables[0]) == seen(tables[1])
        for name in ("deleted", "late", "missing"):
            count(f"rows {name} by deletes in tasks", getattr(found[1], name))
    assert (
        tables[0].history()["operation"].to_pylist() == tables[1].history()["operation"].to_pylist()
    )
    assert_clean(tables[1].storage)


def _then(self: Any, write: Callable[..., Any], waiting: list[Callable[[], Any]], *of: Any) -> Any:
    """Write, then let another writer commit, once."""
    changes = write(self, *of)
    while waiting:
        waiting.pop()()
    return changes


@pytest.mark.parametrize("engine", [ThreadTable, SpilledTable])
@pytest.mark.parametrize(
    ("theirs", "attempts"),
    [
        (lambda t: t.upsert(rows([30], 9, 9.0)), 2),
        (lambda t: t.upsert(rows([2], 9, 9.0)), 2),
        (lambda t: t.delete(rows([30], 9, 9.0)), 2),
        (lambda t: t.upsert(rows([4, 40], 9, 9.0)), 1),
    ],
    ids=[
        "inserted an absent key",
        "changed a row that ends",
        "deleted an absent key",
        "touched others",
    ],
)
def test_a_commit_meanwhile_sends_it_through_once_more_if_it_conflicts(
    monkeypatch: pytest.MonkeyPatch,
    engine: type[mdt.Table],
    theirs: Callable[[mdt.Table], Any],
    attempts: int,
) -> None:
    """Absent keys are told by tasks, and asked for only now."""
    options = {"mdt.delete.keeps.ordering": True}
    found = []
    for kind in (mdt.Table, engine):
        storage = MemoryStorage()
        make(storage, MOR, "record", **options).upsert(rows(range(6), 1, 1.0))
        table, other = kind(storage), mdt.open(storage)
        waiting = [partial(theirs, other)]
        done = partialmethod(_then, RowOperation.write, waiting)
        monkeypatch.setattr(RowOperation, "write", done)
        result = table.delete(rows([0, 2, 30], 5, 1.0))
        monkeypatch.undo()
        found.append(
            [getattr(result, name) for name in (*COUNTS, "attempts")]
            + [as_state(table.scan().to_arrow())]
        )
        assert_clean(storage)
    assert found[0] == found[1]
    assert found[1][5] == attempts


def test_a_delete_that_rests_on_a_state_finds_that_a_key_came_since() -> None:
    storage = MemoryStorage()
    make(storage, MOR, "record").upsert(rows(range(6), 1, 1.0))
    table = SpilledTable(storage)
    rested = table.resting_on(table.snapshot().seq)
    table.upsert(rows([41], 1, 1.0))
    assert rested.delete(rows([0, 30], 1, 1.0)).missing == 1
    rested = table.resting_on(table.snapshot().seq - 2)
    with pytest.raises(Conflict, match="rests on the state"):
        rested.delete(rows([41], 1, 1.0))
    once = table.once("s", 1)
    assert [once.delete(rows([1], 1, 1.0)).deleted for _ in range(2)] == [1, 0]
    assert_clean(storage)


def _forms(table: pa.Table, folder: Path) -> list[Any]:
    ds.write_dataset(table, folder, format="parquet")
    return [
        table.to_reader(max_chunksize=4),
        (batch for batch in table.to_batches(max_chunksize=4)),
        in_pieces(table),
        ds.dataset(folder),
        ds.dataset(folder).scanner(batch_size=4),
        iter(table.to_pylist()),
        type(
            "Stream",
            (),
            {"__arrow_c_stream__": lambda _, schema=None: table.__arrow_c_stream__(schema)},
        )(),
    ]


def test_keys_in_pieces_are_put_aside_and_their_further_columns_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    grouped = SpillingEngine.grouped
    monkeypatch.setattr(
        SpillingEngine,
        "grouped",
        lambda self, rows, *more: widths.append(rows.shown.names) or grouped(self, rows, *more),
    )
    given = data(2, 30).append_column("more", pa.array([[n] * 50 for n in range(30)]))
    kept = []
    for number in range(7):
        table = mdt.create(
            MemoryStorage(), SCHEMA, key=["id", "sub"], partition_by=["city"], options=SMALL
        )
        table.upsert(data(1, 50))
        deleted = table.delete(_forms(given, tmp_path / str(number))[number])
        kept.append((seen(table), deleted.deleted, deleted.missing))
        assert_clean(table.storage)
    assert all(one == kept[0] for one in kept) and kept[0][1]
    assert widths == [["id", "sub", "city"]] * 7


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (["id", "city"], "needs the columns id, sub, city; missing: sub"),
        (["id", "sub"], "missing: city"),
    ],
)
def test_keys_that_lack_a_column_are_refused_as_they_are_in_memory(
    columns: list[str], why: str
) -> None:
    for options in ({}, SMALL):
        table = mdt.create(
            MemoryStorage(), SCHEMA, key=["id", "sub"], partition_by=["city"], options=options
        )
        with pytest.raises(Invalid, match=why):
            table.delete(data(1, 50).select(columns).to_reader(max_chunksize=4))
        with pytest.raises(Invalid, match=r"column 'sub'.* row 7 .*has 70000"):
            table.delete(
                iter(
                    [
                        pa.table({"id": ["a"], "sub": [n if n < 7 else 70_000], "city": ["x"]})
                        for n in range(9)
                    ]
                )
            )
        with pytest.raises(Invalid, match="twice|duplicate"):
            table.delete(
                pa.table([["a"], [1], ["x"], [2]], ["id", "sub", "city", "sub"]).to_reader()
            )
        assert_clean(table.storage)


def test_a_delete_holds_no_more_keys_than_memory_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MB of keys, for 4 MB: neither what comes, nor a task, nor the driver has more than a few
    of them at a time.
    """
    schema, size, most = pa.schema([("id", pa.int64()), ("v", pa.int32())]), 1 << 21, [0]
    storage = MemoryStorage()
    mdt.create(
        storage,
        schema,
        key=["id"],
        options={"mdt.max.file.bytes": 1 << 16, "mdt.small.file.bytes": 0},
    ).upsert(
        pa.table({"id": np.arange(0, size, 64), "v": np.zeros(size // 64, np.int32)}, schema=schema)
    )
    table = mdt.open(storage, options={"mdt.write.memory.max": 4 << 20, "mdt.writer.threads": 1})

    def look() -> None:
        most[0] = max(most[0], pa.total_allocated_bytes() - before)

    def keys() -> Any:
        for start in range(0, size, 1 << 12):
            look()
            yield pa.table({"id": np.arange(start, start + (1 << 12)), "more": np.zeros(1 << 12)})

    def read(self: Spilled, parts: Any, batches: Any = Spilled.batches) -> Any:
        for batch in batches(self, parts):
            look()
            yield batch

    monkeypatch.setattr(Spilled, "batches", read)
    before = pa.total_allocated_bytes()
    done = table.delete(keys())
    assert (done.deleted, done.missing) == (size // 64, size - size // 64)
    assert table.scan().count() == 0
    assert most[0] < 8 << 20


GONE = {key: row for key, row in BASE_STATE.items() if key not in ("k0", "k3")}


@pytest.mark.parametrize("table_type", [MOR, pytest.param(COW, marks=pytest.mark.nightly)])
def test_after_a_crash_of_a_delete_through_scratch_files_readers_see_all_or_nothing(
    table_type: str,
) -> None:
    def flow(storage: Storage) -> None:
        SpilledTable(storage).delete(rows([0, 3, 50], 9, 1.0))

    what = "crash points of deletes through scratch files"
    for crashed in recovered(lambda: filled(table_type, "bloom"), flow, (BASE_STATE, GONE), what):
        assert theirs(crashed) == ours(crashed)
        flow(crashed)
        assert ours(crashed) == GONE


def test_after_a_crash_of_a_delete_in_processes_readers_see_all_or_nothing(tmp_path: Path) -> None:
    def flow(storage: Storage) -> None:
        PooledTable(storage).delete(rows([0, 3, 50], 9, 1.0))

    start = make(LocalStorage(tmp_path / "start", durable=False), MOR, "record")
    start.upsert(rows(range(6), 1, 1.0))
    start.upsert(rows(range(3), 2, 2.0))
    what = "crash points of deletes in processes"
    for crashed in recovered(copies(tmp_path / "start"), flow, (BASE_STATE, GONE), what):
        flow(crashed)
        assert as_state(mdt.open(crashed).scan().to_arrow()) == GONE

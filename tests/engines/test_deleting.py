"""Deletes in tasks equal deletes in process, on engines that use threads, processes and rows
spilled to disk.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from pooled import ThreadTable
from spilled import SpilledTable, forms, memory_watched
from texts import columns
from worlds import COW, MOR, assert_clean

import mdt
from mdt.engines.spilled import SpillingEngine
from mdt.errors import Invalid
from mdt.stores.storage import MemoryStorage

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


def data(seed, size, keys=60, cities=("Oslo", "Rome", None)):
    """Random rows. Some keys repeat."""
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


def visible_rows(table):
    return sorted(
        (str(row), row["_hoodie_partition_path"])
        for row in (
            table.scan(columns=[*SCHEMA.names, "_hoodie_partition_path"]).to_arrow().to_pylist()
        )
    )


KINDS_OF_DELETES = {
    "keeps": {"mdt.delete.keeps.ordering": True},
    "repeats": {"mdt.keys.repeat": True},
    "plain": {},
}
SHAPES = list(
    itertools.product(
        (MOR, COW),
        ("table", "partition"),
        KINDS_OF_DELETES,
        ("bloom", "record", "bucket(buckets='3')"),
    )
)


@pytest.mark.parametrize("engine", [ThreadTable, SpilledTable])
@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=[pytest.mark.nightly] if n % 5 else []) for n, s in enumerate(SHAPES)],
)
def test_a_delete_in_tasks_equals_a_delete_in_process(engine, shape):
    """Compares counts, rows and the deletes that the table remembers. Later upserts of deleted
    keys, late or not, show what it remembers.
    """
    table_type, scope, kind, index = shape
    if index.startswith("bucket") and (kind == "repeats" or scope == "table"):
        index = "simple"
    # under table scope a row cannot move to the null partition
    cities = ("Oslo", "Rome") if scope == "table" else ("Oslo", "Rome", None)
    options = {"mdt.max.file.bytes": 2048, "mdt.metadata.compact.records": 3}
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
            options=options | KINDS_OF_DELETES[kind],
        )
        tables.append(opened(storage))
        tables[-1].upsert(data(1, 80))
        if kind == "repeats":
            tables[-1].insert(data(2, 30), check=False)
    steps = [
        lambda t: t.delete(data(3, 12, 90)),
        lambda t: t.delete(data(4, 20, 90).drop_columns(["ts", "at"])),
        lambda t: t.upsert(data(5, 25, cities=cities)),
        lambda t: t.delete(data(6, 0)),
        lambda t: t.delete(data(7, 40, 200)),
        lambda t: t.upsert(data(8, 60, 200, cities=cities)),
    ]
    for step in steps:
        results = [step(table) for table in tables]
        in_process, in_tasks = ([getattr(result, name) for name in COUNTS] for result in results)
        assert in_process == in_tasks and bool(results[0].instant) == bool(results[1].instant)
        assert visible_rows(tables[0]) == visible_rows(tables[1])
        for name in ("deleted", "late", "missing"):
            count(f"rows {name} by deletes in tasks", getattr(results[1], name))
    in_process, in_tasks = (table.history()["operation"].to_pylist() for table in tables)
    assert in_process == in_tasks
    assert_clean(tables[1].storage)


def created(**options):
    return mdt.create(
        MemoryStorage(), SCHEMA, key=["id", "sub"], partition_by=["city"], options=options
    )


def test_keys_in_pieces_are_spilled_without_their_other_columns(tmp_path, monkeypatch):
    widths = []
    group_by = SpillingEngine.group_by
    monkeypatch.setattr(
        SpillingEngine,
        "group_by",
        lambda self, rows, *more: (
            widths.append(rows.visible_schema.names) or group_by(self, rows, *more)
        ),
    )
    keys_with_extra_column = data(2, 30).append_column(
        "more", pa.array([[n] * 50 for n in range(30)])
    )
    outcomes = []
    for keys in forms(keys_with_extra_column, tmp_path):
        table = created(**{"mdt.write.memory.max": 1})
        table.upsert(data(1, 50))
        deleted = table.delete(keys)
        outcomes.append((visible_rows(table), deleted.deleted, deleted.missing))
        assert_clean(table.storage)
    assert all(outcome == outcomes[0] for outcome in outcomes) and outcomes[0][1]
    assert widths == [["id", "sub", "city"]] * 7


@pytest.mark.parametrize("options", [{}, {"mdt.write.memory.max": 1}], ids=["here", "tasks"])
@pytest.mark.parametrize(
    "keys, why",
    [
        (data(1, 50).select(["id", "city"]), "needs the columns id, sub, city; missing: sub"),
        (data(1, 50).select(["id", "sub"]), "missing: city"),
        (pa.table([["a"], [1], ["x"], [2]], ["id", "sub", "city", "sub"]), "twice|duplicate"),
        (
            pa.table({"id": ["a"] * 9, "sub": [*range(7), 70_000, 8], "city": ["x"] * 9}),
            r"column 'sub'.* row 7 .*has 70000",
        ),
    ],
)
def test_keys_with_wrong_columns_or_values_are_refused_in_process_and_in_tasks(keys, why, options):
    table = created(**options)
    with pytest.raises(Invalid, match=why):
        table.delete(keys.to_reader(max_chunksize=4))
    assert_clean(table.storage)


def test_a_delete_keeps_no_more_keys_in_memory_than_its_limit():
    """16 MB of keys with a limit of 4 MB. Neither the input, nor a task, nor the driver holds more
    than a few of them at a time.
    """
    schema, size = columns("id int64, v int32"), 1 << 21
    options = {"mdt.max.file.bytes": 1 << 16, "mdt.small.file.bytes": 0}
    table = mdt.create(MemoryStorage(), schema, key=["id"], options=options)
    table.upsert(
        pa.table({"id": np.arange(0, size, 64), "v": np.zeros(size // 64, np.int32)}, schema)
    )
    table = mdt.open(
        table.storage, options={"mdt.write.memory.max": 4 << 20, "mdt.writer.threads": 1}
    )
    with memory_watched() as look:

        def keys():
            for start in range(0, size, 1 << 12):
                look()
                ids = np.arange(start, start + (1 << 12))
                yield pa.record_batch({"id": ids, "more": np.zeros(len(ids))})

        result = table.delete(keys())
        assert (result.deleted, result.missing) == (size // 64, size - size // 64)
        assert look() < 8 << 20
    assert table.scan().count() == 0

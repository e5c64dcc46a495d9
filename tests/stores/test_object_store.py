"""A table on an object store: the same life as on a disk, with conditional puts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import mdt
from mdt.stores.object_store import ObjectStorage
from mdt.stores.storage import MemoryStorage, Storage

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)


def _trips(ids: range, ts: int, fare: float) -> pa.Table:
    columns = [
        list(ids),
        [("Oslo", "Rome")[i % 2] for i in ids],
        [ts] * len(ids),
        [fare] * len(ids),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_table_lives_on_an_object_store(table_type: str) -> None:
    store = MemoryStore()

    def storage() -> ObjectStorage:
        return ObjectStorage("memory:///trips", store)

    t = mdt.create(
        storage(), SCHEMA, key=["id"], partition_by=["city"], ordering="ts", table_type=table_type
    )
    t.upsert(_trips(range(100), 1, 1.0))
    t.upsert(_trips(range(50, 150), 2, 2.0))
    t.delete(_trips(range(10), 0, 0.0))
    expected = {i: 2.0 if i >= 50 else 1.0 for i in range(10, 150)}
    again = mdt.open(storage())
    rows = again.scan(columns=["id", "fare"]).to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["fare"].to_pylist(), strict=True)) == expected
    assert (
        again.scan(where="id = 77").to_arrow().to_pylist()
        == _trips(range(77, 78), 2, 2.0).to_pylist()
    )
    again.compact()
    assert mdt.open(storage()).scan().count() == len(expected)
    report = mdt.open(storage()).check()
    assert report.ok, str(report)


def codecs(t: mdt.Table, storage: Storage) -> set[str]:
    """Return the codecs of the column chunks of all files of ``t``."""
    footers = [
        pq.read_metadata(pa.BufferReader(storage.read(path)))
        for path in t.files()["name"].to_pylist()
    ]
    groups = [footer.row_group(i) for footer in footers for i in range(footer.num_row_groups)]
    return {group.column(i).compression for group in groups for i in range(group.num_columns)}


@pytest.mark.parametrize(
    ("is_remote", "options", "expected"),
    [
        (True, {}, "ZSTD"),
        (True, {"mdt.compression": "lz4"}, "LZ4"),
        (True, {"hoodie.parquet.compression.codec": "uncompressed"}, "UNCOMPRESSED"),
        (False, {}, "LZ4"),
    ],
)
def test_objects_are_written_with_zstd_unless_the_table_says_otherwise(
    is_remote: bool, options: dict[str, str], expected: str
) -> None:
    storage = ObjectStorage("memory:///t", MemoryStore()) if is_remote else MemoryStorage()
    t = mdt.create(storage, SCHEMA, key=["id"], options=options)
    assert ("mdt.compression" in t.definition.options) == (is_remote or bool(options))
    t.upsert(
        pa.table(
            [[*range(1000)], [f"city {i}" for i in range(1000)], [0] * 1000, [1.5] * 1000],
            schema=SCHEMA,
        )
    )
    found = codecs(mdt.open(storage), storage)
    assert expected in found and found <= {expected, "SNAPPY"}  # which columns of few values keep


def test_two_writers_on_an_object_store_both_commit() -> None:
    store = MemoryStore()
    mdt.create(
        ObjectStorage("memory:///t", store),
        SCHEMA,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
    )
    first, second = (mdt.open(ObjectStorage("memory:///t", store)) for _ in range(2))
    assert first.upsert(_trips(range(0, 20, 2), 1, 1.0)).seq == 1
    assert second.upsert(_trips(range(1, 20, 2), 1, 1.0)).seq == 2
    assert first.scan().count() == second.scan().count() == 20

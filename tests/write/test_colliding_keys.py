"""Two keys with the same MurmurHash3, which anybody can construct, are stored as two rows."""

from itertools import product

import mmh3
import pyarrow as pa
import pytest
from merges import merged
from old_tables import A, B
from pooled import EVERY_KIND
from texts import columns

import mdt
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, v string, ts int64")
KEY_INDEXES = ["record", "bloom", "simple", "bucket(buckets='2')", "memory", "lmdb"]
SHAPES = [
    pytest.param(index, scope, table_type, id=f"{index.partition('(')[0]}-{scope}-{table_type[:1]}")
    for index, scope, table_type in product(
        KEY_INDEXES, ["partition", "table"], ["COPY_ON_WRITE", "MERGE_ON_READ"]
    )
    if not (index.startswith("bucket") and scope == "table")
]


def row(key, value, ts=1):
    return {"id": key, "v": value, "ts": ts}


def values(table):
    rows = table.scan("id like '%tailtail'").to_arrow().to_pylist()
    assert len({record["id"] for record in rows}) == len(rows)
    return {record["id"]: record["v"] for record in rows}


def created_table(path, **settings):
    options = (
        {"mdt.key.store.dir": str(path / "keys")} if settings.get("key_index") == "lmdb" else {}
    )
    table = mdt.create(
        path / "t",
        SCHEMA,
        key=["id"],
        options={**options, **settings.pop("options", {})},
        **settings,
    )
    table.upsert([row(f"k{n}", "x") for n in range(100)])
    return table


def test_the_two_keys_have_equal_hashes_for_every_seed():
    assert all(mmh3.hash128(A, seed) == mmh3.hash128(B, seed) for seed in (0, 1, 77, 2**32 - 1))


@pytest.mark.parametrize("key_index,scope,table_type", SHAPES)
def test_rows_of_both_keys_are_stored_side_by_side(tmp_path, key_index, scope, table_type):
    table = created_table(tmp_path, key_index=key_index, scope=scope, table_type=table_type)
    assert table.upsert([row(A, "a1")]).inserted == 1
    assert table.get(B) is None
    assert table.delete([B]).deleted == 0
    with pytest.raises(mdt.Invalid, match="exist"):
        table.insert([row(A, "a2")])
    assert table.insert([row(B, "b1")]).inserted == 1
    assert table.upsert([row(A, "a2")]).updated == 1
    assert values(table) == {A: "a2", B: "b1"}
    table.compact()
    assert [table.get(key)["v"] for key in (A, B)] == ["a2", "b1"]
    assert table.get([B, A]).column("v").to_pylist() == ["b1", "a2"]
    assert table.scan(f"id = '{A}'").to_arrow()["v"].to_pylist() == ["a2"]
    assert table.delete([A]).deleted == 1
    assert values(table) == {B: "b1"} and table.get(A) is None
    result = merged(table, [row(A, "a3"), row(B, "b3")])
    assert (result.inserted, result.updated) == (1, 1) and values(table) == {A: "a3", B: "b3"}
    assert table.check().ok


@EVERY_KIND
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_one_batch_may_contain_rows_of_both_keys(operation, table_type, kind):
    created = mdt.create(MemoryStorage(), SCHEMA, key=["id"], ordering="ts", table_type=table_type)
    table = kind(created.storage)
    result = getattr(table, operation)([row(A, "a1", 2), row(B, "b1", 1)])
    assert (result.inserted, result.late) == (2, 0)
    assert values(table) == {A: "a1", B: "b1"} and table.check().ok
    assert (
        merged(table, [row(A, "a2", 3)]).updated == 1 == table.delete(pa.table({"id": [B]})).deleted
    )
    assert values(table) == {A: "a2"}


def test_deleting_one_key_leaves_no_tombstone_for_the_other(tmp_path):
    options = {"mdt.delete.keeps.ordering": True}
    table = created_table(tmp_path, ordering="ts", options=options)
    table.upsert([row(A, "a1", 5)])
    table.delete([{"id": A, "ts": 9}])
    assert table.upsert([row(B, "b1", 3)]).late == 0
    assert values(table) == {B: "b1"}
    assert table.upsert([row(A, "a2", 3)]).late == 1

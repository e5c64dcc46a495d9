"""Record keys of a single key column, with its name and without."""

import pyarrow as pa
import pytest
from other_writer import OtherWriter
from shared_tables import SCHEMA, batch, rows_of

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import MemoryStorage

PARTITIONS = ["city", "note"]


def keys_of(t):
    return set(t.scan(columns=["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist())


@pytest.mark.parametrize("key_index", ["record", "bucket(buckets='4')"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("named", [True, False])
def test_both_writers_of_an_adopted_table_write_the_same_keys(named, table_type, key_index):
    storage = MemoryStorage()
    theirs = mdt.create(
        OtherWriter(storage),
        SCHEMA,
        ["id"],
        partition_by=PARTITIONS,
        ordering="v",
        table_type=table_type,
        version=9 if named else 6,
        key_index=key_index,
        options={"mdt.key.names.column": named},
    )
    first = batch(list(range(10)), 1)
    theirs.upsert(first)
    ours = mdt.adopt(storage, key_index=key_index)
    changed = first.set_column(2, "v", pa.array([2] * 10))
    ours.upsert(changed.slice(0, 4))
    ours.delete(changed.slice(8, 2))
    theirs.upsert(batch([3, 20], 3).set_column(3, "note", pa.array(["n1"] * 2)))
    assert rows_of(ours) == rows_of(theirs) and ours.check().ok
    assert ours.get({"id": 3, "city": "Oslo", "note": "n1"})["v"] == 3
    assert ours.scan("id = 3").count() == 1
    begin = "id:" if named else ""
    assert keys_of(ours) == {f"{begin}{number}" for number in (*range(8), 20)}


@pytest.mark.parametrize(
    ("version", "partition_by", "expected"),
    [(9, PARTITIONS, "id:7"), (9, ["city"], "7"), (6, PARTITIONS, "7")],
)
def test_new_tables_have_the_keys_that_hudi_writes_by_default(version, partition_by, expected):
    t = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=partition_by, version=version)
    t.insert(batch([7], 1))
    assert keys_of(t) == {expected}


def test_a_table_with_keys_that_hudi_writes_otherwise_in_version_9_is_not_upgraded():
    storage, false = MemoryStorage(), {"mdt.key.names.column": False}
    with pytest.raises(Invalid, match="Hudi's writers name the column 'id'"):
        mdt.create(storage, SCHEMA, ["id"], partition_by=PARTITIONS, version=9, options=false)
    t = mdt.create(storage, SCHEMA, ["id"], partition_by=PARTITIONS, version=6)
    with pytest.raises(Unsupported, match="the record keys are values of 'id'"):
        t.upgrade(9)


@pytest.mark.parametrize("named", [True, False])
def test_an_option_of_hudi_that_contradicts_the_keys_is_refused(named):
    storage, named_text = MemoryStorage(), str(named).lower()
    options = {"mdt.key.names.column": named_text}
    mdt.create(storage, SCHEMA, ["id"], partition_by=PARTITIONS, options=options)
    option = "hoodie.write.complex.keygen.new.encoding"
    mdt.open(storage, {option: str(not named).lower()})
    with pytest.raises(Invalid, match=r"the table has mdt\.key\.names\.column"):
        mdt.open(storage, {option: named_text})

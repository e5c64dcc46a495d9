"""Adoption of tables with keys that Hudi generates."""

import pyarrow as pa
import pytest
from hidden import HiddenMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from other_writer import OtherWriter
from refusals import refused
from shared_tables import rows_of
from test_adopted_paths import change_properties
from texts import columns

import mdt
from mdt.errors import Unsupported
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage

KEY = "_hoodie_record_key"
SCHEMA = columns("id string, city string, v int64")
TYPES, VERSIONS = ("COPY_ON_WRITE", "MERGE_ON_READ"), (6, 9)


def other_table(table_type="MERGE_ON_READ", version=9):
    """Return a table of another writer with generated keys, and its storage."""
    storage = MemoryStorage()
    table_arguments = {"partition_by": ["city"], "table_type": table_type, "version": version}
    created = mdt.create(storage, SCHEMA, ["id"], **table_arguments)
    created.upsert(rows(["20240229120000123_0_0", "20240229120000123_0_1"], 1))
    change_properties(storage, "hoodie.table.", {}, without="recordkey.fields")
    storage.delete_many([info.path for info in storage.list(paths.PRIVATE)])
    return mdt.adopt(OtherWriter(storage)), storage


def rows(ids, v, city="Oslo"):
    return pa.table({"id": ids, "city": [city] * len(ids), "v": [v] * len(ids)})


def rows_of_hudi_reader(storage):
    """Return the rows with their keys, as our reader of plain Hudi tables merges them."""
    return rows_of_columns(mdt.open(HiddenMetadata(storage)))


def rows_of_columns(table):
    rows_found = table.scan(columns=[KEY, *SCHEMA.names]).to_arrow()
    return sorted(map(repr, rows_found.to_pylist()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
def test_rows_with_generated_keys_can_be_read_inserted_updated_and_deleted(table_type, version):
    theirs, storage = other_table(table_type, version)
    assert mdt.open(storage).schema.names == SCHEMA.names
    ours = mdt.adopt(storage, indexes=["bitmap(v)"])
    assert ours.definition.key == (KEY,) and ours.schema.names == [KEY, *SCHEMA.names]
    for insert, city in ((ours.insert, "Oslo"), (ours.bulk_insert, "Rome")):
        assert insert(rows(["x", "x"], 2, city)).inserted == 2
    ours.insert(iter([rows(["y"], 3), rows(["y"], 3)]))
    keys = ours.scan(columns=[KEY]).to_arrow()[KEY].to_pylist()
    assert len(set(keys)) == len(keys) == 8
    assert ours.update_where({"v": "v + 10"}, "v = 2").updated == 4
    assert ours.delete_where("v = 3 or id like '%_0'").deleted == 3
    assert "bitmap/1(v)" in str(ours.scan("v = 12").explain())
    assert ours.scan("v = 12").count() == 4
    changed = ours.scan("city = 'Rome'").to_arrow()
    changed = changed.set_column(changed.column_names.index("v"), "v", [[20, 21]])
    assert ours.upsert(changed).updated == 2
    [merge] = [ours.merge(pa.table({"v": [20], "id": ["m"]}), on=["v"])]
    assert merge.when_matched().update({"id": "source.id"}).execute().updated == 1
    [row] = ours.scan("id = 'm'").to_arrow().to_pylist()
    assert ours.get({KEY: row[KEY], "city": "Rome"}) == row
    ours.delete([{KEY: row[KEY], "city": "Rome"}])
    assert rows_of_hudi_reader(storage) == rows_of_columns(ours) and ours.scan().count() == 4
    ours.compact()
    ours.cluster(by=["v"])
    ours.clean()
    assert rows_of_hudi_reader(storage) == rows_of_columns(ours)
    assert ours.insert_overwrite(rows(["z"], 5)).inserted == 1
    assert len(ours.changes(since=1, mode="net").to_arrow()) == 4
    assert rows_of_hudi_reader(storage) == rows_of_columns(ours)
    assert rows_of(theirs.anew()) == rows_of(ours)
    assert ours.check().ok


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["theirs", "insert", "insert", "update", "delete", "compact"]),
        st.integers(0, 5),
        st.sampled_from(["Oslo", "Rome"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=15)
@given(steps=STEPS)
def test_writers_that_take_turns_see_the_rows_of_each_other(table_type, version, steps):
    theirs, storage = other_table(table_type, version)
    ours = mdt.adopt(storage)
    expected = [("20240229120000123_0_0", "Oslo", 1), ("20240229120000123_0_1", "Oslo", 1)]
    for number, (action, value, city) in enumerate(steps, 2):
        if action in ("theirs", "insert"):
            new = [(f"{number}_{row}", city, value) for row in range(2)]
            expected += new
            writer = theirs if action == "theirs" else ours
            writer.insert(rows([row[0] for row in new], value, city))
        elif action == "update":
            ours.update_where({"v": "v + 1"}, f"v = {value}")
            expected = [(i, c, v + (v == value)) for i, c, v in expected]
        elif action == "delete":
            ours.delete_where(f"v = {value}")
            expected = [row for row in expected if row[2] != value]
        else:
            ours.compact()
        rows_found = ours.scan(columns=SCHEMA.names).to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in rows_found) == sorted(expected)
        assert rows_of_hudi_reader(storage) == rows_of_columns(ours)
    assert ours.check().ok


def test_operations_that_need_keys_are_refused_without_them():
    _, storage = other_table()
    ours = mdt.adopt(storage)
    new = rows(["x"], 2)
    refused(f"upsert needs the column {KEY}", ours.upsert, new, kind=Unsupported)
    refused(f"delete needs the column {KEY}", ours.delete, new, kind=Unsupported)
    merge = ours.merge(new, on=["id"]).when_not_matched()
    refused(f"the source lacks {KEY}", merge.insert, "*")
    refused(f"needs a value for the column '{KEY}'", merge.insert, {"v": "source.v"})
    message = f"cannot have the format Delta: column '{KEY}' has keys that Hudi generates"
    refused(message, ours.alter, formats=["hudi", "delta"])
    refused(message, ours.alter, formats=["hudi", "delta"], add={"w": "int64"}, rewrite=True)
    mdt.release(storage)
    refused(message, mdt.adopt, storage, formats=["hudi", "delta"])
    assert not storage.list("_delta_log")
    own = pa.schema({KEY: pa.string(), "v": pa.int64()})
    refused("creates no tables", mdt.create, MemoryStorage(), own, [KEY], kind=Unsupported)
    refused("reserved for Hudi", mdt.create, MemoryStorage(), own, ["v"])


def test_both_writers_can_add_columns():
    theirs, storage = other_table()
    ours = mdt.adopt(storage)
    theirs.alter(add={"note": "string"})
    theirs.insert([{"id": "1_0_0", "city": "Oslo", "v": 1, "note": "n"}])
    assert ours.schema.names == [KEY, *SCHEMA.names, "note"]
    ours.insert([{"id": "x", "city": "Oslo", "v": 2, "note": "o"}])
    ours.alter(add={"more": "int64"})
    ours.insert([{"id": "x", "city": "Oslo", "v": 2, "note": "o", "more": 1}])
    assert ours.scan("note = 'n'").count() == 1 and ours.scan("note = 'o'").count() == 2
    assert mdt.open(HiddenMetadata(storage)).scan("more = 1").count() == 1
    refused("is part of the record key", ours.alter, drop=[KEY])
    assert ours.check().ok


def test_a_tagged_state_with_generated_keys_can_be_restored_after_a_cleaning():
    _, storage = other_table()
    ours = mdt.adopt(storage)
    before = rows_of_columns(ours)
    ours.tag("before")
    ours.insert(rows(["x"], 2))
    ours.delete_where("id like '%_0'")
    ours.compact()
    ours.clean(retain_commits=1)
    ours.restore("before")
    assert rows_of_columns(ours) == before == rows_of_hudi_reader(storage)

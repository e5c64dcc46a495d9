"""Other Hudi writers may insert the same key again. Our writes find all rows of such a key."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from other_writer import OtherWriter
from reader import agreed, bag, hudi_table
from refusals import refused

import mdt
from mdt.commit import hudi_record_index
from mdt.errors import Invalid, Unsupported
from mdt.hudi.read.key_indexes import load_key_indexes
from mdt.metadata.keys.key_changes import key_changes
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
kinds = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def create(path, kind, **options):
    options |= {"mdt.services.auto": False, "mdt.hudi.metadata": False}
    return mdt.create(
        path, SCHEMA, ["id"], partition_by=["city"], table_type=kind, version=9, options=options
    )


def row(key, city, n):
    return {"id": key, "city": city, "n": n}


def adopt_with_repeated_keys(path, kind, scope, key_index="record"):
    """Adopt a table with two live rows of the key a in one partition, and rows of b in two
    partitions.
    """
    table = create(path, kind, **{"mdt.keys.repeat": True})
    table.insert([row("a", "x", 1), row("b", "x", 2), row("c", "x", 3)])
    table.insert([row("a", "x", 10), row("b", "y", 20)], check=False)
    shutil.rmtree(path / ".hoodie/.mdt")
    options = {"mdt.services.auto": False}
    return mdt.adopt(path, scope=scope, key_index=key_index, options=options)


def assert_hudi_agrees(table, path):
    """Assert that hudi-rs reads the same rows, and that Hudi's index has no deleted rows after a
    compaction.
    """
    our_rows = table.scan().to_arrow()
    assert bag(our_rows) == bag(hudi_table(path, SCHEMA)) and table.check().ok
    table.compact()
    assert bag(agreed(table)) == bag(our_rows)


def values(table):
    return sorted(tuple(record.values()) for record in table.scan().to_arrow().to_pylist())


@kinds
@pytest.mark.parametrize("scope", ["partition", "table"])
def test_an_upsert_leaves_one_row_of_a_key_and_a_delete_leaves_none(tmp_path, kind, scope):
    table = adopt_with_repeated_keys(tmp_path / "t", kind, scope)
    assert "live more than once" in table.check().problems[0].text
    with pytest.raises(Invalid, match="1 keys exist in several rows"):
        table.get([row("a", "x", 0)])
    table.upsert([row("a", "x", 100), row("b", "x", 200)])
    in_other_partition = [("b", "y", 20)] if scope == "partition" else []
    assert values(table) == [("a", "x", 100), ("b", "x", 200), *in_other_partition, ("c", "x", 3)]
    assert_hudi_agrees(table, tmp_path / "t")
    table.delete([row("a", "x", 0), row("b", "x", 0)])
    assert values(table) == [*in_other_partition, ("c", "x", 3)]
    assert_hudi_agrees(table, tmp_path / "t")


@kinds
def test_a_delete_removes_all_rows_of_a_key(tmp_path, kind):
    table = adopt_with_repeated_keys(tmp_path / "t", kind, "table")
    table.delete({"id": ["a", "b"]})
    assert values(table) == [("c", "x", 3)]
    assert_hudi_agrees(table, tmp_path / "t")


@kinds
@pytest.mark.parametrize("key_index", ["bloom", "simple", "lmdb", "memory"])
def test_each_key_index_finds_all_rows_of_a_key(tmp_path, kind, key_index):
    table = adopt_with_repeated_keys(tmp_path / "t", kind, "table", key_index)
    table.upsert([row("a", "x", 100)])
    assert values(table) == [("a", "x", 100), ("b", "x", 2), ("b", "y", 20), ("c", "x", 3)]
    table.delete({"id": ["a", "b"]})
    assert values(table) == [("c", "x", 3)]
    assert_hudi_agrees(table, tmp_path / "t")


@kinds
def test_a_partial_row_is_completed_from_one_of_the_rows_of_its_key(tmp_path, kind):
    table = adopt_with_repeated_keys(tmp_path / "t", kind, "partition")
    table.upsert([{"id": "a", "city": "x"}], partial=True)
    assert values(table) in (
        [("a", "x", n), ("b", "x", 2), ("b", "y", 20), ("c", "x", 3)] for n in (1, 10)
    )
    assert_hudi_agrees(table, tmp_path / "t")


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_rows_of_a_key_in_one_file_are_replaced_together(tmp_path, scope):
    path = tmp_path / "t"
    create(path, "COPY_ON_WRITE").insert([row("a", "x", 1), row("b", "x", 2)])
    shutil.rmtree(path / ".hoodie/.mdt")
    [file] = path.glob("*/*.parquet")
    rows = pq.read_table(file)
    metadata = {name: text for name, text in rows.schema.metadata.items() if b"mdt" not in name}
    repeated = pa.concat_tables([rows.slice(0, 1), rows, rows.slice(0, 1)])
    pq.write_table(repeated.replace_schema_metadata(metadata), file)
    table = mdt.adopt(path, scope=scope, options={"mdt.services.auto": False})
    assert len(table.scan().to_arrow()) == 4
    table.upsert([row("a", "x", 100)])
    assert values(table) == [("a", "x", 100), ("b", "x", 2)]
    assert_hudi_agrees(table, tmp_path / "t")
    table.delete([row("a", "x", 0)])
    assert values(table) == [("b", "x", 2)]
    assert_hudi_agrees(table, tmp_path / "t")


@kinds
def test_key_changes_name_the_remaining_row_of_a_key(tmp_path, kind):
    """Hudi's index has one entry per key, which may be any of its rows."""
    table = adopt_with_repeated_keys(tmp_path / "t", kind, "table")
    table.upsert([row("a", "x", 100), row("c", "x", 4)])
    changes = newest_key_changes(table)
    assert changes.located["key"].to_pylist() == ["a"]
    assert changes.deleted["key"].to_pylist() == []
    table.delete({"id": ["a", "c"]})
    changes = newest_key_changes(table)
    assert changes.located["key"].to_pylist() == []
    assert sorted(changes.deleted["key"].to_pylist()) == ["a", "c"]


def newest_key_changes(table):
    """Return the key changes of the newest commit."""
    snapshot = table.snapshot()
    record = table.metadata.record(snapshot.seq)
    return key_changes(table.metadata, record, snapshot, by_partition=False)


@kinds
@pytest.mark.parametrize("scope", ["partition", "table"])
def test_file_groups_that_share_a_key_are_not_merged(tmp_path, kind, scope):
    """Hudi merges by key, and would replace only one of two rows in a base file."""
    table = adopt_with_repeated_keys(tmp_path / "t", kind, scope)
    table.cluster(["n"])
    table.upsert([row("a", "x", 100)])
    assert [row_values for row_values in values(table) if row_values[0] == "a"] == [("a", "x", 100)]
    assert bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", SCHEMA))


@kinds
@pytest.mark.parametrize("scope", ["partition", "table"])
@pytest.mark.parametrize("change", ["upsert", "delete", "insert"])
def test_restore_refuses_to_change_keys_with_several_rows(kind, scope, change):
    storage = MemoryStorage()
    other = create(OtherWriter(storage), kind, **{"mdt.keys.repeat": True})
    other.insert([row("a", "x", 1), row("b", "x", 2), row("c", "x", 3)])
    if change != "insert":
        other.insert([row("a", "x", 10), row("b", "y", 20)], check=False)
    table = mdt.adopt(storage, scope=scope, options={"mdt.services.auto": False})
    seq = table.snapshot().seq
    table.upsert([row("c", "x", 30)])
    table.restore(seq)
    assert ("c", "x", 3) in values(table), "other keys are restored"
    if change == "insert":
        mdt.open(OtherWriter(storage)).insert([row("a", "x", 10)], check=False)
    else:
        getattr(table, change)([row("a", "x", 100), row("b", "x", 200)])
    before = values(table)
    refused("a key was live in several rows", table.restore, seq, kind=Unsupported)
    assert values(table) == before


def adopt_with_ordering(kind, type, rows, **options):
    """Adopt a table with the ordering field ``at``, with one commit per row."""
    storage, by = MemoryStorage(), {"partition_by": ["city"], "ordering": "at"}
    options |= {"mdt.services.auto": False, "mdt.small.file.bytes": 0}
    schema = SCHEMA.append(pa.field("at", type))
    other = mdt.create(OtherWriter(storage), schema, ["id"], table_type=kind, options=options, **by)
    for row_to_insert in rows:
        other.insert([row_to_insert], check="mdt.keys.repeat" not in options)
    return mdt.adopt(storage, scope="table", options={"mdt.services.auto": False})


@kinds
def test_a_row_is_late_if_a_row_of_its_key_in_another_partition_has_a_larger_ordering_value(kind):
    at = "2024-01-01 00:00:0{}".format
    rows = [row("a", "x", 1) | {"at": at(1)}, row("a", "y", 5) | {"at": at(5)}]
    table = adopt_with_ordering(kind, pa.string(), rows)
    assert table.upsert([row("a", "x", 3) | {"at": at(3)}]).late == 1
    assert table.upsert([row("a", "x", 7) | {"at": at(7)}]).late == 0
    assert values(table) == [("a", "x", 7, at(7))]


@kinds
def test_values_are_merged_into_the_newest_row_of_a_key(kind):
    rows = [row("a", "x", n) | {"at": n} for n in (1, 5, 2)]
    table = adopt_with_ordering(kind, pa.int64(), rows, **{"mdt.keys.repeat": True})
    table.upsert([row("a", "x", 100) | {"at": 3}], mergers={"n": "sum"})
    assert values(table) == [("a", "x", 105, 5)]


@kinds
def test_key_changes_name_another_row_if_one_of_several_rows_of_a_key_is_deleted(tmp_path, kind):
    table = adopt_with_repeated_keys(tmp_path / "t", kind, "table")
    table.delete_where("n = 2")
    changes = newest_key_changes(table)
    assert changes.located.select(["key", "partition"]).to_pylist() == [
        {"key": "b", "partition": "city=y"}
    ]
    assert changes.deleted.num_rows == 0
    table.delete_partition({"city": "y"})
    assert newest_key_changes(table).deleted["key"].to_pylist() == ["b"]
    table.delete_where("n = 1")
    assert newest_key_changes(table).located["key"].to_pylist() == ["a"]


@kinds
def test_hudis_record_index_has_one_entry_per_key_after_commits_that_delete_other_rows(
    kind, monkeypatch
):
    storage, options = MemoryStorage(), {"mdt.services.auto": False, "mdt.hudi.metadata": True}
    options |= {"mdt.hudi.record.index": True, "mdt.keys.repeat": True}
    with monkeypatch.context() as patch:  # Hudi's writers allow this
        patch.setattr(hudi_record_index, "problem", lambda *arguments, **keywords: "")
        by = {"partition_by": ["city"], "scope": "table", "table_type": kind, "version": 9}
        other = mdt.create(OtherWriter(storage), SCHEMA, ["id"], options=options, **by)
        other.insert([row("a", "x", 1), row("c", "x", 3)])
        other.insert([row("a", "x", 10)], check=False)
        other.insert([row("a", "y", 4)], check=False)
    table = mdt.adopt(storage, scope="table", options={"mdt.services.auto": False})
    for change in (
        lambda: table.upsert([row("c", "x", 30)]),
        lambda: table.delete_where("n = 10"),
        lambda: table.delete_partition({"city": "y"}),
    ):
        change()
        keys = load_key_indexes(storage).records("record_index")["key"]
        assert sorted(keys.to_pylist()) == ["a", "c"]

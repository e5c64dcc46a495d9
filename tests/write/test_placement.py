"""A key that is inserted again after its deletion returns to the file group of its deleted row,
because Hudi's own indexes treat the deleted row as a live one.
"""

import numpy as np
import pytest
from reader import agreed
from texts import columns, rows_of

import mdt
from indexes.base import KeyHashes
from mdt.metadata.files.file_group import BASE
from mdt.metadata.keys.locate import locate
from mdt.stores.storage import MemoryStorage
from mdt.write import rules
from mdt.write.normalize import normalize, partition_names

SCHEMA = columns("id string, p string, ts int64, v int64")
SMALL_FILES = {
    "hoodie.parquet.max.file.size": 6000,
    "mdt.metadata.compact.records": 1000,
    "mdt.durable": False,
}


def rows(*ids, p="x", ts=1, v=1):
    return rows_of(SCHEMA, *(f"{id} {p} {ts} {v}" for id in ids))


def keys(*ids, p="x"):
    return rows(*ids, p=p).select(["id", "p"])


def filled_table(path, **arguments):
    """Return a table with three file groups in partition x. Key a is in the first."""
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["p"], options=SMALL_FILES, **arguments)
    for number, first in enumerate(("a", "n1", "n2")):
        table.bulk_insert(rows(first, *(f"k{number}{i}" for i in range(5))))
    return table


def file_groups_of(table, key):
    """Return the file ids of the files with live or deleted rows of a key."""
    hashes, snapshot = normalize(rows(key), table.definition).hashes, table.snapshot()
    files = [file for file in map(snapshot.segment, snapshot.live_numbers.tolist()) if file.key_map]
    maps = [table.metadata.objects.key_map(file.key_map) for file in files]
    return [
        file.file_id
        for file, key_map in zip(files, maps, strict=True)
        if (key_map.find(hashes) >= 0).any()
    ]


KINDS = [(index, ordering) for index in ("bloom", "record") for ordering in (None, "ts")]


@pytest.mark.parametrize("how", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize("key_index, ordering", KINDS)
@pytest.mark.parametrize("beside", [(), ("new1", "new2")], ids=["alone", "beside new keys"])
def test_a_deleted_key_that_is_inserted_again_returns_to_its_file_group(
    key_index, ordering, how, beside, tmp_path
):
    table = filled_table(tmp_path / "t", key_index=key_index, ordering=ordering)
    first = set(file_groups_of(table, "a"))
    table.delete(keys("a", "k11"))
    result = getattr(table, how)(rows("a", *beside, ts=0, v=2))
    assert result.inserted == 1 + len(beside) and not result.updated
    file_groups = file_groups_of(table, "a")
    assert set(file_groups) == first, "the key is in one file group"
    assert len(file_groups) == (1 if ordering else 2), (
        "an ordering field requires a new slice, otherwise a log file is written"
    )
    agreed(table)
    assert table.get("a") == {"id": "a", "p": "x", "ts": 0, "v": 2}
    table.delete(keys("a"))
    table.upsert(rows("a", ts=5, v=3))
    assert set(file_groups_of(table, "a")) == first
    assert table.scan("id = 'a'").to_arrow().to_pylist() == [{"id": "a", "p": "x", "ts": 5, "v": 3}]
    agreed(table)


def test_compaction_removes_the_positions_of_deleted_keys():
    table = filled_table(MemoryStorage())
    table.delete(keys("a"))
    table.compact()
    batch = normalize(rows("a"), table.definition)
    located = locate(
        table.metadata, table.snapshot(), batch.sort_keys, batch.hashes, partition_names(batch)
    )
    assert located.dead_in.tolist() == [-1]
    table.upsert(rows("a", v=2))
    assert table.check().ok


def test_updated_and_returning_keys_of_a_file_group_share_one_log_file():
    table = filled_table(MemoryStorage(), key_index="record")
    table.delete(keys("a"))
    files = len(table.files())
    table.upsert(rows("a", "k00", "k01", v=9))
    assert len(table.files()) == files + 1
    assert table.scan("v = 9").count() == 3 and table.check().ok


def test_check_warns_of_keys_in_two_file_groups_and_compaction_fixes_them(
    monkeypatch,
):
    table = filled_table(MemoryStorage(), key_index="record")
    table.delete(keys("a"))
    monkeypatch.setattr(
        rules,
        "new_in_partition",
        lambda located, late, moved: ((~located.is_live | moved).nonzero()[0], moved.nonzero()[0]),
    )
    table.upsert(rows("other1", "other2", "other3", "a"))
    while len(set(file_groups_of(table, "a"))) == 1:
        table.delete(keys("a"))
        table.bulk_insert(rows("a"))
    monkeypatch.undo()
    report = table.check()
    assert report.ok and "compact() fixes it" in str(report.warnings[0])
    assert "warning: p=x" in str(report)
    table.upsert(rows("a", v=2))
    assert table.scan("id = 'a'").count() == 1
    table.compact()
    assert not table.check().warnings
    assert set(table.files()["kind"].to_pylist()) == {BASE}


def test_keys_without_candidate_files_are_not_sorted(monkeypatch):
    """For example the many keys of a first load."""
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["p"])
    batch = normalize(rows(*map(str, range(100))), table.definition)
    monkeypatch.setattr(KeyHashes, "order", lambda self: pytest.fail("they were"))
    located = locate(
        table.metadata, table.snapshot(), batch.keys, batch.hashes, np.array(["p=x"] * 100, object)
    )
    assert not located.is_live.any()

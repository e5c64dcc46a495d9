"""An open table whose directory is replaced by another table or by an older copy of itself."""

import shutil

import pytest
from texts import columns
from worlds import meanwhile

import mdt
from mdt.errors import Conflict
from mdt.write.operations import RowOperation

SCHEMA = columns("id string, v int64")
OPTIONS = {"mdt.durable": False}


def values_by_id(table):
    return {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}


def replace_table(path, commits):
    """Replace the table at ``path`` by a new one with this number of commits."""
    shutil.rmtree(path)
    table = mdt.create(path, SCHEMA, ["id"], options=OPTIONS)
    for number in range(commits):
        table.upsert({"id": ["both", f"new{number}"], "v": [number, number]})


@pytest.mark.parametrize("commits", [1, 3, 5])
@pytest.mark.parametrize("is_compacted", [False, True], ids=["records", "checkpoint"])
def test_an_open_table_reads_and_writes_the_table_that_replaced_it(tmp_path, commits, is_compacted):
    path = tmp_path / "t"
    table = mdt.create(path, SCHEMA, ["id"], options=OPTIONS)
    for number in range(3):
        table.upsert({"id": ["both", f"old{number}"], "v": [number, number]})
    if is_compacted:
        table.metadata.compact()
    assert len(values_by_id(table)) == 4
    assert table.scan(as_of=1).count() == 2
    replace_table(path, commits)
    expected = {"both": commits - 1, **{f"new{number}": number for number in range(commits)}}
    assert values_by_id(table) == values_by_id(mdt.open(path)) == expected
    assert table.scan(as_of=1).to_arrow()["id"].to_pylist() == ["both", "new0"]
    done = table.upsert({"id": ["both", "new0", "more"], "v": [7, 8, 9]})
    assert (done.inserted, done.updated) == (1, 2)
    expected |= {"both": 7, "new0": 8, "more": 9}
    assert values_by_id(mdt.open(path)) == expected
    assert table.check().ok


def test_an_open_table_reads_and_writes_the_backup_that_replaced_it(tmp_path):
    path, saved = tmp_path / "t", tmp_path / "saved"
    table = mdt.create(path, SCHEMA, ["id"], options=OPTIONS)
    table.upsert({"id": ["a", "b"], "v": [1, 1]})
    shutil.copytree(path, saved)
    table.upsert({"id": ["b", "lost"], "v": [2, 2]})
    assert values_by_id(table) == {"a": 1, "b": 2, "lost": 2}
    shutil.rmtree(path)
    shutil.copytree(saved, path)
    for number in range(3):
        mdt.open(path).upsert({"id": ["b", "c"], "v": [number, number]})
    assert values_by_id(table) == {"a": 1, "b": 2, "c": 2}
    assert table.upsert({"id": ["a", "c"], "v": [5, 5]}).updated == 2
    assert values_by_id(mdt.open(path)) == {"a": 5, "b": 2, "c": 5}
    assert table.check().ok


@pytest.mark.parametrize("commits", [0, 2, 5])
@pytest.mark.parametrize("version", [6, 9])
def test_a_write_is_not_committed_to_a_table_that_replaced_its_own_meanwhile(
    tmp_path, commits, version
):
    path = tmp_path / "t"
    table = mdt.create(path, SCHEMA, ["id"], version=version, options=OPTIONS)
    for number in range(3):
        table.upsert({"id": ["both", f"old{number}"], "v": [number, number]})
    with (
        pytest.raises(Conflict, match="another table"),
        meanwhile(RowOperation, lambda: replace_table(path, commits)),
    ):
        table.upsert({"id": ["both", "lost"], "v": [9, 9]})
    expected = {f"new{number}": number for number in range(commits)}
    assert values_by_id(mdt.open(path)) == expected | ({"both": commits - 1} if commits else {})
    assert table.upsert({"id": ["both", "more"], "v": [7, 7]}).updated == bool(commits)
    for number in range(4):
        mdt.open(path).upsert({"id": ["later"], "v": [number]})
    assert (
        values_by_id(table)
        == values_by_id(mdt.open(path))
        == expected | {"both": 7, "more": 7, "later": 3}
    )
    assert table.check().ok


@pytest.mark.parametrize("index", ["bitmap(v)", "bloom(v)"])
def test_an_old_scan_of_a_replaced_table_adds_no_summaries_that_prune_later_scans(tmp_path, index):
    path, saved = tmp_path / "t", tmp_path / "saved"
    table = mdt.create(path, SCHEMA, ["id"], indexes=[index], options=OPTIONS)
    table.insert({"id": ["a", "b"], "v": [1, 1]})
    shutil.copytree(path, saved)
    table.insert({"id": ["lost", "lost too"], "v": [0, 20]})
    old_scan = table.scan("v = 10")
    shutil.rmtree(path)
    shutil.copytree(saved, path)
    mdt.open(path).insert({"id": ["c", "d", "e"], "v": [0, 10, 20]})
    assert table.snapshot().seq == old_scan.snapshot.seq
    assert old_scan.count() == 0
    assert table.scan("v = 10").to_arrow()["id"].to_pylist() == ["d"]

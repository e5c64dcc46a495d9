"""File groups that large commits would rewrite repeatedly are split. Every reader sees the same
rows.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reader import agreed
from texts import columns
from worlds import MOR, cut_while_another_commits, filled

import mdt
from mdt.metadata.files.file_group import BASE
from mdt.services import auto_maintenance
from mdt.services.layout import small_files, split_groups

SCHEMA = columns("id int64, ts int64, x float64, note string")
LOADED = 20_000


@pytest.fixture(autouse=True)
def a_part_is_small(monkeypatch):
    monkeypatch.setattr(small_files, "REWRITTEN_BYTES_MAX", 0)
    monkeypatch.setattr(split_groups, "PART_BYTES", 100_000)
    monkeypatch.setattr(split_groups, "PART_ROWS", 100)
    monkeypatch.setattr(
        auto_maintenance, "FREE_BYTES", 1 << 40
    )  # so that the speed of writes does not matter


def rows(ids, ts):
    # no encoding makes these small
    notes = [f"{i * 2654435761**2 % 2**36:09x}" for i in map(int, ids)]
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([ts] * len(ids)),
        7919.0 * np.array(ids) % LOADED,
        notes,
    ]
    return pa.table(columns, schema=SCHEMA)


def updated_table(path, batch, commits, by="id"):
    """Return a table of LOADED rows in the order of a column, after ``commits`` upserts of ``batch``
    rows each, spread over all keys.
    """
    options = {
        "mdt.durable": False,
        "mdt.compact.log.files": 4,
        "mdt.small.file.bytes": 0,
        "mdt.row.group.rows": 1_000,
    }
    table = mdt.create(
        path,
        SCHEMA,
        ["id"],
        table_type="MERGE_ON_READ",
        key_index="record",
        ordering="ts",
        options=options,
    )
    table.bulk_insert(rows(range(LOADED), 0))
    if by != "id":
        table.cluster(by=[by])
    rng = np.random.default_rng(5)
    for ts in range(1, commits + 1):
        assert (
            table.upsert(rows(np.sort(rng.choice(LOADED, batch, replace=False)), ts)).warnings == ()
        )
    return table


def base_files(table, path):
    return [
        pq.read_table(path / file["name"])
        for file in table.files().to_pylist()
        if file["kind"] == BASE
    ]


def operations(table):
    return Counter(table.history()["operation"].to_pylist())


@pytest.mark.parametrize("by", ["id", "x"])
def test_a_file_group_that_large_commits_would_rewrite_repeatedly_is_split(tmp_path, by):
    table = updated_table(tmp_path / "t", 1_000, 7, by)
    assert operations(table)["cluster"] == 1 + (by == "x"), "it is split once"
    parts = [part.column(by).to_numpy() for part in base_files(table, tmp_path / "t")]
    is_sorted = [bool((np.diff(part) > 0).all()) for part in parts]
    assert is_sorted.count(True) >= (4 if by == "id" else 3) and (by == "x" or all(is_sorted)), (
        "new rows are inserted in key order, or appended to rows in another order"
    )
    assert len(agreed(table)) == LOADED


def test_after_a_split_each_write_compacts_a_part_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    table = updated_table(tmp_path / "t", 1_000, 24)
    seqs = [row["seq"] for row in table.history().to_pylist() if row["operation"] == "compact"]
    records = [record for seq in seqs if (record := table.metadata.record(seq)) is not None]
    assert len(records) > 3 and {len(record.table("files")) for record in records} == {1}
    assert table.scan().count() == LOADED and table.check().ok


def test_small_commits_do_not_split_a_file_group(tmp_path):
    table = updated_table(tmp_path / "t", 90, 30)
    assert operations(table)["cluster"] == 0 and table.snapshot().file_groups.count == 1


def count_groups(storage, partition):
    files = mdt.open(storage).files().to_pylist()
    return len({file["file_id"] for file in files if file["partition"] == partition})


def test_a_file_group_changed_by_another_writer_is_not_split_but_the_others_are():
    storage = filled(MOR, "record")
    assert (count_groups(storage, "city=x"), count_groups(storage, "city=y")) == (1, 1)
    cut_while_another_commits(storage)
    assert (count_groups(storage, "city=x"), count_groups(storage, "city=y")) == (1, 2)

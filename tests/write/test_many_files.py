"""Writes that touch many partitions: a key is looked up in its partition only, and a file that
fails leaves no other file of the write behind.
"""

import os

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from indexes import column_stats
from indexes.bloom import FilterSet
from mdt.errors import Unavailable
from mdt.stores.local import LocalStorage
from mdt.stores.storage import MemoryStorage
from mdt.write import new_files, summarize
from mdt.write.normalize import keyed_rows

PARTITIONS = 150
SCHEMA = columns("id string, p string, v int64")


def rows(first, count, v):
    ids = range(first, first + count)
    return pa.table(
        [[f"k{i:06d}" for i in ids], [f"p{i % PARTITIONS}" for i in ids], [v] * count],
        schema=SCHEMA,
    )


def new_table(root, **more):
    return mdt.create(
        root, SCHEMA, key=["id"], partition_by=["p"], table_type="MERGE_ON_READ", **more
    )


def rows_by_value(table):
    counts = table.scan().to_arrow().group_by("v").aggregate([("id", "count")])
    return dict(zip(counts["v"].to_pylist(), counts["id_count"].to_pylist(), strict=True))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_key_is_looked_up_in_the_files_of_its_partition_only(tmp_path, monkeypatch, reopened):
    table = new_table(tmp_path / "t")
    table.bulk_insert(rows(0, 20 * PARTITIONS, 1))
    if reopened:  # the snapshot is then read from a checkpoint
        for n in range(40):
            table.insert(rows(100_000 + n, 1, 7))
        table = mdt.open(tmp_path / "t")
    pairs = []
    probe = FilterSet.probe_pairs

    def counting(self, which, key, hashes):
        pairs.append(len(which))
        return probe(self, which, key, hashes)

    monkeypatch.setattr(FilterSet, "probe_pairs", counting)
    result = table.upsert(rows(10 * PARTITIONS, 20 * PARTITIONS, 2))
    assert (result.updated, result.inserted) == (10 * PARTITIONS, 10 * PARTITIONS)
    assert 10 * PARTITIONS <= sum(pairs) <= 2 * 20 * PARTITIONS
    assert rows_by_value(table) == {1: 10 * PARTITIONS, 2: 20 * PARTITIONS} | (
        {7: 40} if reopened else {}
    )
    assert table.check().ok


class Full(LocalStorage):
    """Fails to create the 100th data file, and all later ones."""

    left = 10**9

    def create(self, path, data):
        """See :class:`LocalStorage`."""
        if path.endswith(".parquet"):
            self.left -= 1
            if self.left < 0:
                raise Unavailable("no space left")
        super().create(path, data)


def data_files(root):
    return [name for _, _, names in os.walk(root) for name in names if name.endswith(".parquet")]


def test_a_file_that_cannot_be_stored_fails_the_write_and_abort_deletes_the_others(
    tmp_path,
):
    storage = Full(tmp_path / "t", durable=False)
    table = new_table(storage)
    storage.left = 100
    with pytest.raises(Unavailable, match="no space left"):
        table.bulk_insert(rows(0, 5 * PARTITIONS, 1))
    storage.left = 10**9
    table.bulk_insert(rows(0, 5 * PARTITIONS, 2))
    assert rows_by_value(table) == {2: 5 * PARTITIONS}
    table.abort()
    assert len(data_files(tmp_path / "t")) == PARTITIONS and table.check().ok


def test_a_file_that_cannot_be_encoded_fails_the_write_and_leaves_no_data_files(
    tmp_path, monkeypatch
):
    table = new_table(LocalStorage(tmp_path / "t", durable=False))
    filters_left = list(range(100))
    monkeypatch.setattr(
        new_files, "footer_bloom", lambda keys, options: str(filters_left.pop()).encode()
    )
    with pytest.raises(IndexError, match="pop from empty list"):
        table.bulk_insert(rows(0, 5 * PARTITIONS, 1))
    assert data_files(tmp_path / "t") == []
    monkeypatch.undo()
    table.bulk_insert(rows(0, 5 * PARTITIONS, 2))
    assert rows_by_value(table) == {2: 5 * PARTITIONS} and table.check().ok


def test_statistics_of_many_small_files_are_computed_in_one_batch(tmp_path, monkeypatch):
    """They equal the statistics computed file by file, as is still done for large files."""
    batch_sizes = []
    to_batch = column_stats.to_batch
    counted = {"to_batch": lambda stats: (batch_sizes.append(len(stats)), to_batch(stats))[1]}
    data, stats_tables = rows(0, 3 * PARTITIONS, 1), []
    for name, rows_max in (("together", summarize._SMALL_FILE_ROWS), ("alone", 0)):
        batch_sizes.clear()
        monkeypatch.setattr(summarize, "_SMALL_FILE_ROWS", rows_max)
        table = new_table(tmp_path / name)
        monkeypatch.setattr(column_stats, "to_batch", counted["to_batch"])
        table.bulk_insert(data)
        monkeypatch.setattr(column_stats, "to_batch", to_batch)
        assert batch_sizes == ([3 * PARTITIONS] if name == "together" else [3] * PARTITIONS)
        record = table._metadata.record(table.snapshot().seq)
        assert record is not None and table.check().ok
        stats_tables.append(record.table("stats").to_pylist())
        assert table.scan("p = 'p7' and v = 1").count() == 3
    assert stats_tables[0] == stats_tables[1]


def test_consecutive_rows_are_taken_without_a_copy():
    batch = keyed_rows(
        rows(0, 20, 1), mdt.create(MemoryStorage(), SCHEMA, key=["id"]).snapshot().definition
    )
    for at in ([7], [7, 8, 9], list(range(20)), [9, 8, 7], [7, 9], [7, 7, 9], []):
        selection = batch.rows(np.array(at, np.int64))
        assert selection.table.to_pylist() == [batch.table.to_pylist()[i] for i in at]
        assert (
            selection.keys.to_pylist()
            == selection.sort_keys.to_pylist()
            == [batch.keys[i].as_py() for i in at]
        )
        assert selection.hashes.hi.tolist() == batch.hashes.hi[at].tolist()
        shared = (
            len(at) > 0 and selection.keys.buffers()[2].address == batch.keys.buffers()[2].address
        )
        assert shared == (len(at) > 0 and at == list(range(at[0], at[0] + len(at))))

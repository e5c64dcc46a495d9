"""Writes that touch many partitions: what is looked for is looked for in its partition, and files
that fail leave nothing.
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


def made(root, **more):
    return mdt.create(
        root, SCHEMA, key=["id"], partition_by=["p"], table_type="MERGE_ON_READ", **more
    )


def sums(table):
    counted = table.scan().to_arrow().group_by("v").aggregate([("id", "count")])
    return dict(zip(counted["v"].to_pylist(), counted["id_count"].to_pylist(), strict=True))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_key_is_compared_with_the_files_of_its_partition_only(tmp_path, monkeypatch, reopened):
    table = made(tmp_path / "t")
    table.bulk_insert(rows(0, 20 * PARTITIONS, 1))
    if reopened:  # the snapshot comes from a checkpoint then
        for n in range(40):
            table.insert(rows(100_000 + n, 1, 7))
        table = mdt.open(tmp_path / "t")
    pairs = []
    probe = FilterSet.probe_pairs

    def counting(self, which, key, hashes):
        pairs.append(len(which))
        return probe(self, which, key, hashes)

    monkeypatch.setattr(FilterSet, "probe_pairs", counting)
    done = table.upsert(rows(10 * PARTITIONS, 20 * PARTITIONS, 2))
    assert (done.updated, done.inserted) == (10 * PARTITIONS, 10 * PARTITIONS)
    assert 10 * PARTITIONS <= sum(pairs) <= 2 * 20 * PARTITIONS
    assert sums(table) == {1: 10 * PARTITIONS, 2: 20 * PARTITIONS} | ({7: 40} if reopened else {})
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


def test_a_file_that_cannot_be_stored_fails_the_write_and_nothing_of_it_is_left(
    tmp_path,
):
    storage = Full(tmp_path / "t", durable=False)
    table = made(storage)
    storage.left = 100
    with pytest.raises(Unavailable, match="no space left"):
        table.bulk_insert(rows(0, 5 * PARTITIONS, 1))
    storage.left = 10**9
    table.bulk_insert(rows(0, 5 * PARTITIONS, 2))
    assert sums(table) == {2: 5 * PARTITIONS}
    table.abort()
    assert len(data_files(tmp_path / "t")) == PARTITIONS and table.check().ok


def test_a_file_that_cannot_be_made_fails_the_write_and_nothing_of_it_is_left(
    tmp_path, monkeypatch
):
    table = made(LocalStorage(tmp_path / "t", durable=False))
    left = list(range(100))
    monkeypatch.setattr(new_files, "footer_bloom", lambda keys, options: str(left.pop()).encode())
    with pytest.raises(IndexError, match="pop from empty list"):
        table.bulk_insert(rows(0, 5 * PARTITIONS, 1))
    assert data_files(tmp_path / "t") == []
    monkeypatch.undo()
    table.bulk_insert(rows(0, 5 * PARTITIONS, 2))
    assert sums(table) == {2: 5 * PARTITIONS} and table.check().ok


def test_statistics_of_many_small_files_are_made_together(tmp_path, monkeypatch):
    """They are those that each file would have by itself, which large files still have."""
    made_of = []
    to_batch = column_stats.to_batch
    counted = {"to_batch": lambda stats: (made_of.append(len(stats)), to_batch(stats))[1]}
    given, found = rows(0, 3 * PARTITIONS, 1), []
    for name, rows_max in (("together", summarize._SMALL_FILE_ROWS), ("alone", 0)):
        made_of.clear()
        monkeypatch.setattr(summarize, "_SMALL_FILE_ROWS", rows_max)
        table = made(tmp_path / name)
        monkeypatch.setattr(column_stats, "to_batch", counted["to_batch"])
        table.bulk_insert(given)
        monkeypatch.setattr(column_stats, "to_batch", to_batch)
        assert made_of == ([3 * PARTITIONS] if name == "together" else [3] * PARTITIONS)
        record = table._metadata.record(table.snapshot().seq)
        assert record is not None and table.check().ok
        found.append(record.table("stats").to_pylist())
        assert table.scan("p = 'p7' and v = 1").count() == 3
    assert found[0] == found[1]


def test_rows_that_follow_each_other_are_not_copied():
    given = keyed_rows(
        rows(0, 20, 1), mdt.create(MemoryStorage(), SCHEMA, key=["id"]).snapshot().definition
    )
    for at in ([7], [7, 8, 9], list(range(20)), [9, 8, 7], [7, 9], [7, 7, 9], []):
        taken = given.rows(np.array(at, np.int64))
        assert taken.table.to_pylist() == [given.table.to_pylist()[i] for i in at]
        assert (
            taken.keys.to_pylist()
            == taken.sort_keys.to_pylist()
            == [given.keys[i].as_py() for i in at]
        )
        assert taken.hashes.hi.tolist() == given.hashes.hi[at].tolist()
        shared = len(at) > 0 and taken.keys.buffers()[2].address == given.keys.buffers()[2].address
        assert shared == (len(at) > 0 and at == list(range(at[0], at[0] + len(at))))

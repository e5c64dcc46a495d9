"""Tables and scans are pickled by the arguments that open them, never with their content."""

import copy
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import pytest
import trees
from refusals import refused
from texts import columns

import mdt
from mdt.errors import Invalid
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import FaultyStorage

SCHEMA = columns("id int64, city string, x double")


@pytest.fixture
def table(tmp_path):
    created = trees.create(tmp_path / "a table, 100%", SCHEMA, partition_by=["city"])
    created.upsert(
        pa.table(
            {"id": range(100), "city": ["x", "y"] * 50, "x": [i / 7 for i in range(100)]}, SCHEMA
        )
    )
    return mdt.open(created.path, {"mdt.reader.threads": 1})


def rows_of(source):
    scan = source.scan() if isinstance(source, mdt.Table) else source
    return trees.ordered(scan.to_arrow())


def insert_one(table):
    return table.insert(pa.table({"id": [1000], "city": ["z"], "x": [0.5]}, SCHEMA)).seq


def test_a_pickled_table_is_reopened_with_its_options(table):
    data = pickle.dumps(table)
    assert len(data) < 500, "only the path and options"
    insert_one(table)
    restored = pickle.loads(data)
    assert (restored.path, restored.options) == (table.path, table.options)
    assert restored.snapshot().seq == table.snapshot().seq and rows_of(restored) == rows_of(table)
    assert rows_of(copy.deepcopy(table)) == rows_of(table)


def test_a_pickled_scan_reads_the_rows_of_its_snapshot(table):
    scans = [
        table.scan(),
        table.scan("x > 3 and city in ('x', 'z')", ["id", "city"]),
        table.scan([("x", "<", 9.5)]),
        table.scan(order_by="x desc nulls last, id", limit=5),
        table.scan(limit=0),
    ]
    expected = [rows_of(scan) for scan in scans]
    insert_one(table)
    for scan, rows in zip(scans, expected, strict=True):
        restored = pickle.loads(pickle.dumps(scan))
        assert rows_of(restored) == rows_of(scan) == rows
        assert restored.schema == scan.schema
        assert str(restored.explain()).splitlines()[:5] == str(scan.explain()).splitlines()[:5]


def test_a_pickle_of_a_version_missing_from_a_restored_backup_is_refused(table, tmp_path):
    shutil.copytree(table.path, tmp_path / "saved")
    table.delete_where("id = 1")
    pinned = mdt.open(table.path, as_of=table.snapshot().seq)
    past_scan, newer = table.scan(as_of=1), [table.scan(), table.changes(1), pinned]
    pickles = [pickle.dumps(newer_object) for newer_object in newer]
    expected = rows_of(past_scan)
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "saved", table.path)
    mdt.open(table.path).delete_where("id = 2")  # has the seq of the lost commit
    for data in pickles:
        with pytest.raises(Invalid, match="a table or a backup has taken its place"):
            pickle.loads(data)
    assert rows_of(pickle.loads(pickle.dumps(past_scan))) == expected


def test_spawned_processes_can_read_and_write_a_pickled_table(table):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(rows_of, table).result() == rows_of(table)
        seq = pool.submit(insert_one, table).result()
        scan = table.scan("city = 'z'")
        assert scan.snapshot.seq == seq
        assert pool.submit(rows_of, scan).result() == [{"id": 1000, "city": "z", "x": 0.5}]


def test_pickling_a_table_in_memory_is_refused():
    for storage in (MemoryStorage(), FaultyStorage(MemoryStorage())):
        table = mdt.create(storage, SCHEMA, ["id"])
        for thing in (table, table.scan(), storage):
            refused("cannot be pickled … hint: ", pickle.dumps, thing, kind=mdt.Unsupported)


def test_unpickling_a_table_that_was_moved_raises(table, tmp_path):
    data = pickle.dumps(table)
    (tmp_path / "a table, 100%").rename(tmp_path / "elsewhere")
    refused("not an mdt table", pickle.loads, data)


def test_pickled_storage_keeps_its_durability(tmp_path):
    for durable in (True, False):
        restored = pickle.loads(pickle.dumps(LocalStorage(tmp_path, durable=durable)))
        assert (restored.url, restored.is_durable) == (str(tmp_path), durable)

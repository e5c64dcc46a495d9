"""A worker opens a table once for all tasks that read its changes. It never uses a cached table in
place of another table or another copy.
"""

import shutil

import pyarrow as pa
import pytest
from counted_storages import counted_storages
from reader import bag
from texts import columns

import mdt
from mdt.engines import tasks
from mdt.engines.spark import changes
from mdt.engines.spark.failures import TaskFailed
from mdt.errors import Unsupported
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, v int64")


@pytest.fixture
def counted(monkeypatch):
    """The storages that a new worker opens. This process acts as the worker."""
    storages = counted_storages(monkeypatch, tasks)
    forget()
    yield storages
    forget()


def forget():
    tasks._metadata.cache_clear()
    changes._open_range.cache_clear()


def table_at(path, *values, **options):
    """Return a table with a commit for each value. Each commit updates and adds rows."""
    table = mdt.create(path, SCHEMA, ["id"], options=options)
    for value in values:
        put(table, value)
    return table


def put(table, value):
    table.upsert({"id": [0, value, value + 1], "v": [value] * 3})


class Query:
    """The input of the tasks of a query: one piece for each task."""

    def __init__(self, table, since, mode="all"):
        self.stream = table.changes(since, mode=mode)
        self.relation = changes._ChangesRelation(self.stream._rows())
        self.pieces = self.relation._find_pieces([])
        self.place = changes._ChangesSource.from_changes(self.relation._changes)

    def run(self, task=0):
        """Return the rows that a task reads."""
        batch = pa.record_batch([pa.array([self.pieces[task]], pa.binary())], ["piece"])
        arguments = self.relation._read_arguments(SCHEMA.names)
        schema = pa.schema([*changes.CHANGE, *SCHEMA])
        return pa.Table.from_batches(
            changes._read(self.place, arguments, schema, iter([batch])), schema
        )

    def is_right(self):
        read = pa.concat_tables([self.run(n) for n in range(len(self.pieces))])
        expected = self.stream.to_arrow().select(read.column_names)
        return bool(bag(read) == bag(expected.cast(read.schema)))


def test_a_worker_opens_a_table_once_and_finds_later_commits_without_the_version_hint(
    tmp_path, counted, monkeypatch
):
    monkeypatch.setattr("mdt.scan.changed_rows._BATCH_ROWS", 2)
    table = table_at(tmp_path / "t", 10, 20, 30)
    query = Query(table, 0)
    assert len(query.pieces) > 4 and query.is_right()
    assert len(counted) == 1
    before = len(counted[0].made)
    assert query.is_right() and query.is_right()
    assert all(".parquet" in path for _, path in counted[0].made[before:]), (
        "only data is read again"
    )
    put(table, 40)
    later = Query(table, 3)
    assert later.is_right() and Query(table, 0).is_right()
    assert len(counted) == 1 and not any("hint" in path for _, path in counted[0].made[before:])


@pytest.mark.parametrize("mode", ["all", "net"])
def test_a_restored_copy_with_other_commits_is_not_confused_with_the_table_before(
    tmp_path, counted, mode
):
    path, backup = tmp_path / "t", tmp_path / "aside"
    table = table_at(path, 10, 20)
    shutil.copytree(path, backup)
    put(table, 30)
    assert Query(table, 1, mode).is_right()
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    table = mdt.open(path)
    put(table, 77)
    query = Query(table, 1, mode)
    assert query.is_right() and 77 in query.run()["id"].to_pylist()


def test_a_worker_distinguishes_a_new_table_at_the_path_from_the_old_one(tmp_path, counted):
    path = tmp_path / "t"
    old = Query(table_at(path, 10, 20), 0)
    assert old.is_right()
    shutil.rmtree(path)
    new = Query(table_at(path, 50, 60, 70), 0)
    assert new.is_right()
    forget()
    with pytest.raises(TaskFailed, match="a worker cannot find the driver's table at "):
        old.run()
    shutil.rmtree(path)
    forget()
    with pytest.raises(TaskFailed, match="a worker cannot find the driver's table at "):
        new.run()


def test_a_cleaned_range_raises_expired_in_workers_with_and_without_the_table_cached(
    tmp_path, counted, monkeypatch
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 2)
    table = table_at(tmp_path / "t", 10, 20, **{"mdt.metadata.compact.records": 3})
    query = Query(table, 0)
    other = Query(table, 1)
    assert other.is_right()
    for value in range(30, 42):
        put(table, value)
    table.compact()
    table.clean(retain_commits=1)
    for _ in range(2):
        with pytest.raises(TaskFailed, match="Expired"):
            query.run()
        forget()
    put(table, 99)
    assert Query(table, table.snapshot().seq - 1).is_right()


def test_changes_of_a_table_in_memory_cannot_be_read_by_workers(counted):
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    put(table, 1)
    with pytest.raises(Unsupported, match="exists in this process only"):
        Query(table, 0)


def test_spark_workers_read_the_right_changes_after_any_earlier_table_at_the_path(spark, tmp_path):
    path = tmp_path / "t"
    for first in (10, 1000):
        table = table_at(path, first, first + 10)
        for value in (first + 20, first + 5):
            for mode in ("all", "net"):
                expected = table.changes(0, mode=mode).to_arrow()
                read = table.changes(0, mode=mode).to_spark(spark).toArrow()
                assert bag(read.cast(expected.schema)) == bag(expected)
            put(table, value)
        shutil.rmtree(path)

"""Another Hudi writer writes to our table. Each open, refresh and write detects its commits, with
few requests.
"""

from __future__ import annotations

import os
import shutil
import time
from functools import partial

import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from refusals import refused as refused_with
from texts import columns

import mdt
from mdt.errors import Corrupt, Unsupported
from mdt.hudi import properties, timeline
from mdt.hudi.commit_metadata import PROFILE_START
from mdt.hudi.v6 import Version6
from mdt.limits import FOREIGN_CLOCK_BEHIND_SECONDS
from mdt.metadata.files import paths
from mdt.stores.storage import LocalStorage, MemoryStorage, ObjectStorage
from mdt.table import Table
from mdt.testing.faulty import FaultyStorage

SCHEMA = columns("id string, v int64")
LATER = "20990101000000000"


def rows(*ids, v=1):
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def _local(folder):
    return LocalStorage(folder / "t", durable=False)


STORAGES = {
    "local": _local,
    "memory": lambda _: MemoryStorage(),
    "objects": lambda _: ObjectStorage("memory:///", MemoryStore()),
}


@pytest.fixture(params=STORAGES)
def storage(request, tmp_path):
    new_storage = STORAGES[request.param](tmp_path)
    mdt.create(new_storage, SCHEMA, ["id"]).upsert(rows("a", "b"))
    return new_storage


def rewrite_properties(storage, **values):
    """Rewrite the properties with other values as another writer does, with a backup meanwhile."""
    old_content = storage.read(paths.PROPERTIES)
    storage.create(f"{paths.PROPERTIES}.backup", old_content)
    changes = {f"hoodie.{name.replace('_', '.')}": value for name, value in values.items()}
    storage.delete(paths.PROPERTIES)
    storage.create(paths.PROPERTIES, properties.encode(properties.decode(old_content) | changes))
    storage.delete(f"{paths.PROPERTIES}.backup")


def upgrade(storage):
    """Do what Hudi 1.2 does by default: move the timeline and set table version 9."""
    for info in storage.list_dir(".hoodie"):
        name = info.path.rpartition("/")[2]
        if Version6().instant_at(info.path) is not None:
            storage.create(f".hoodie/timeline/{name}", storage.read(info.path))
            storage.delete(info.path)
    rewrite_properties(storage, table_version="9", timeline_layout_version="2")


def upgrade_halfway(storage):
    """Leave the table as it is while Hudi replaces the properties: with only a backup, which has
    another version.
    """
    rewrite_properties(storage, table_version="8")
    storage.create(f"{paths.PROPERTIES}.backup", storage.read(paths.PROPERTIES))
    storage.delete(paths.PROPERTIES)


CHANGES = {
    "an upgrade": (upgrade, "table version 9"),
    "an upgrade under way": (upgrade_halfway, "table version 8"),
    "properties without version": (
        lambda storage: rewrite_properties(storage, table_version=""),
        "table version (none)",
    ),
}
COMPLETED = ("commit", "deltacommit", "replacecommit", "clean", "restore", "schemacommit")
AT_WORK = (
    "clean.inflight",
    "rollback.requested",
    "compaction.requested",
    "replacecommit.requested",
)
READS = {
    "scan": lambda table: table.scan("id = 'a'").to_arrow(),
    "get": lambda table: table.get("a"),
    "explain": lambda table: table.scan().explain(),
    "history": lambda table: table.history(),
    "files": lambda table: table.files(),
    "check": lambda table: table.check(),
    "indexes": lambda table: table.indexes(),
    "stats": lambda table: table.stats(),
    "warm": lambda table: table.warm(),
}
WRITES = {
    "upsert": lambda table: table.upsert(rows("a", v=2)),
    "insert": lambda table: table.insert(rows("z")),
    "delete": lambda table: table.delete(rows("a")),
    "compact": lambda table: table.compact(),
    "create_index": lambda table: table.create_index("bitmap(v)"),
    "build_indexes": lambda table: table.build_indexes(),
    "rollback": lambda table: table.abort(),
}


def refused(text, act, *arguments):
    error = refused_with(text, act, *arguments, kind=Unsupported)
    assert error.is_of_others


@pytest.mark.parametrize("name", COMPLETED)
def test_a_commit_of_another_writer_is_read_without_writing_and_imported_by_the_next_write(
    storage, name
):
    table = mdt.open(storage)
    assert table.scan().count() == 2
    storage.create(f".hoodie/{LATER}.{name}", b"{}")
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    refused(f"completed {name} {LATER} here", table.snapshot)
    for reader in (table, mdt.open(storage)):
        for act in READS.values():
            act(reader)
        assert reader.scan().count() == 2
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before
    writer = mdt.open(storage)
    assert writer.upsert(rows("c")).inserted == 1
    assert writer.history()["operation"].to_pylist()[2:] == ["import", "upsert"]
    assert writer.snapshot().last_instant > LATER
    assert table.scan().count() == 3 and table.upsert(rows("d")).inserted == 1


@pytest.mark.parametrize("name", AT_WORK)
def test_a_pending_service_of_another_writer_stops_writers_but_not_readers(storage, name):
    table = mdt.open(storage)
    storage.create(f".hoodie/{LATER}.{name}", b"{}")
    for each_table in (table, mdt.open(storage)):
        assert each_table.scan().count() == 2
        for act in WRITES.values():
            refused_with(f"pending instants {LATER}", act, each_table, kind=Unsupported)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_table_version_stops_writers_and_snapshots(storage, name):
    table = mdt.open(storage)
    change, text = CHANGES[name]
    change(storage)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    for act in (table.snapshot, *(partial(act, table) for act in WRITES.values())):
        refused(text, act)
    assert "at " in repr(table), "repr works for a table that is refused"
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before


def test_an_upgraded_table_is_read_in_its_new_version(storage):
    table = mdt.open(storage)
    upgrade(storage)
    assert table.scan().count() == mdt.open(storage).scan().count() == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[:500],
        lambda data: data[:-60],
        lambda _: b"<html><body><h1>Log in</h1></body></html>",
    ],
    ids=["empty", "half", "the end is gone", "a page of another server"],
)
def test_unreadable_properties_are_corrupt_and_not_attributed_to_another_writer(storage, damage):
    table, original = mdt.open(storage), storage.read(paths.PROPERTIES)
    storage.replace(paths.PROPERTIES, damage(original))
    message = "the table properties cannot be read … hoodie.properties … hint: … mdt.repair"
    for act in (*READS.values(), *WRITES.values(), lambda _: Table(storage)):
        assert "writer" not in str(refused_with(message, act, table, kind=Corrupt))
    storage.replace(paths.PROPERTIES, original)
    table.upsert(rows("a", v=3))
    assert table.scan().count() == 2 and table.check().ok


@pytest.mark.parametrize("name", ["savepoint", "savepoint.inflight", "indexing", "txt"])
def test_instants_and_files_that_change_no_rows_do_not_stop_readers_or_writers(storage, name):
    table = mdt.open(storage)
    storage.create(f".hoodie/{LATER}.{name}", b"")
    for each_table in (table, mdt.open(storage)):
        assert each_table.upsert(rows("c")).warnings == ()
        assert each_table.scan().count() == 3


@pytest.mark.parametrize("names", [("commit.requested",), ("commit.requested", "inflight")])
def test_a_pending_write_of_another_writer_without_content_stops_writers_but_not_readers(
    storage, names
):
    """After a later commit of ours, Hudi could neither roll it back nor write again."""
    table = mdt.open(storage)
    for name in names:
        storage.create(f".hoodie/{LATER}.{name}", b"")
    for each_table in (table, mdt.open(storage)):
        assert each_table.scan().count() == 2
        for act in WRITES.values():
            refused_with(f"pending instants {LATER}", act, each_table, kind=Unsupported)
    storage.delete_many([f".hoodie/{LATER}.{name}" for name in names])
    assert table.upsert(rows("c")).inserted == 1


def begin_commit(storage):
    """Start a commit of another writer 5 ms after our newest one, and return its instant."""
    newest = timeline.instant_us(mdt.open(storage).snapshot().last_instant)
    instant = timeline.instant_text(newest + 5_000)
    storage.create(f".hoodie/{instant}.deltacommit.requested", b"")
    return instant


def test_a_pending_commit_of_another_writer_stops_writers_and_a_completed_one_stops_snapshots(
    storage,
):
    table = mdt.open(storage)
    instant = begin_commit(storage)
    storage.create(f".hoodie/{instant}.deltacommit.inflight", b'{"partitionToWriteStats": {}}')
    message = f"running here, or has died: it has pending instants {instant}"
    for each_table in (table, mdt.open(storage)):
        assert each_table.scan().count() == 2
        for act in WRITES.values():
            refused_with(message, act, each_table, kind=Unsupported)
    storage.create(f".hoodie/{instant}.deltacommit", b"{}")
    refused(instant, table.snapshot)
    refused(instant, Table(storage).snapshot)


@pytest.mark.parametrize("content", [PROFILE_START, PROFILE_START[:5], PROFILE_START + b"abc"])
def test_a_pending_write_with_the_first_bytes_of_our_commit_metadata_counts_as_ours(
    storage, content
):
    storage.create(f".hoodie/{begin_commit(storage)}.deltacommit.inflight", content)
    table = mdt.open(storage)
    assert table.snapshot() and table.metadata.watch.at_work == ()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_commit_that_began_long_before_ours_is_detected_when_it_completes(storage, is_compacted):
    """Refreshes list only the newest part of the timeline. A pending instant keeps that part open
    at its position, also for tables opened on compacted metadata. With a lock, writers do not wait.
    """
    table = mdt.open(storage)
    instant = begin_commit(storage)
    options = {"mdt.lock.provider": "storage" if storage.is_remote else "file_system"}
    for number in range(3):
        storage.now_us = lambda n=number: 2_000_000_000_000_000 + n * 10**10  # type: ignore[method-assign, misc]
        mdt.open(storage, options).upsert(rows(f"later{number}"))
        assert table.scan().count() == 3 + number
    if is_compacted:
        table.metadata.compact()
    late_reader = mdt.open(storage)
    assert late_reader.metadata.watch.since == instant
    storage.create(f".hoodie/{instant}.deltacommit", b"{}")
    for act in (table.snapshot, late_reader.snapshot, lambda: Table(storage).snapshot()):
        refused(instant, act)


def test_a_commit_of_a_writer_with_a_late_clock_is_detected(storage):
    table = mdt.open(storage)
    table.upsert(rows("c"))
    newest = timeline.instant_us(table.snapshot().last_instant)
    earlier_instant = timeline.instant_text(newest - (FOREIGN_CLOCK_BEHIND_SECONDS - 1) * 1_000_000)
    storage.create(f".hoodie/{earlier_instant}.deltacommit", b"{}")
    refused(earlier_instant, table.snapshot)


def test_a_commit_of_another_writer_during_our_transaction_is_imported_before_ours(
    storage, monkeypatch
):
    table = mdt.open(storage)
    create = type(storage).create

    def create_and_complete_another_commit(self, path, data):
        create(self, path, data)
        if path.endswith(".parquet"):
            self.put_if_absent(f".hoodie/{LATER}.commit", b"{}")

    monkeypatch.setattr(type(storage), "create", create_and_complete_another_commit)
    assert table.insert(rows("n0", "n1", "n2")).inserted == 3
    monkeypatch.undo()
    assert table.history()["operation"].to_pylist()[2:] == ["import", "insert"]
    assert table.scan().count() == 5 and table.check().ok


def test_a_metadata_table_of_hudi_stops_writers_but_not_readers(storage):
    table = mdt.open(storage)
    rewrite_properties(storage, table_metadata_partitions="files")
    assert table.scan().count() == mdt.open(storage).scan().count() == 2
    for act in WRITES.values():
        refused_with("metadata table", act, table, kind=Unsupported)


def test_commits_of_our_own_writers_are_not_taken_for_commits_of_another():
    """Two tables on one directory write and compact in turns. The log explains every instant on the
    timeline.
    """
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 2})
    first_table, second_table = mdt.open(storage), mdt.open(storage)
    for number in range(6):
        (first_table, second_table)[number % 2].upsert(rows(f"k{number}"))
        assert first_table.scan().count() == second_table.scan().count() == number + 1
        first_table.compact()
    assert first_table.metadata.checkpoint_seq > 2
    assert mdt.open(storage).scan().count() == 6


def test_a_refresh_lists_nothing_without_changes_and_lists_once_after_a_commit():
    inner = MemoryStorage()
    mdt.create(inner, SCHEMA, ["id"]).upsert(rows("a"))
    counting = FaultyStorage(inner, count_reads=True)
    table = mdt.open(counting)
    table.snapshot()
    counting.operations.clear()
    table.snapshot()
    requests = [op for op in counting.operations if not op.startswith("stamp")]
    log = ".hoodie/.mdt/log/"
    assert requests == [f"read {log}{2:020d}", f"read {log}{1:020d}"], (
        "looks for a newer record, and whether its own still exists"
    )
    mdt.open(inner).upsert(rows("b"))
    counting.operations.clear()
    table.snapshot()
    assert [op for op in counting.operations if op.startswith("list")] == ["list_dir .hoodie"]


class ListingStorage(MemoryStorage):
    """Records the number of names in each listing of a directory."""

    def __init__(self):
        super().__init__()
        self.listed: list[int] = []

    def list_dir(self, prefix, **bounds):
        infos = super().list_dir(prefix, **bounds)
        self.listed.append(len(infos))
        return infos


def test_a_refresh_lists_only_the_end_of_a_long_timeline_and_earlier_instants_only_once():
    inner = ListingStorage()
    table = mdt.create(inner, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 10})
    for number in range(30):
        inner.sleep(3600)
        table.upsert(rows(f"k{number}"))
    reader = mdt.open(inner)
    inner.listed.clear()
    table.upsert(rows("z"))
    assert max(inner.listed) <= 6, (
        "the properties, the instants of this commit, and the completed one of the commit before"
    )
    assert reader.scan().count() == mdt.open(inner).scan().count() == 31
    assert max(inner.listed) < 40 < 3 * 31, inner.listed


def test_a_change_within_one_tick_of_the_clock_is_detected_on_a_local_disk(tmp_path):
    storage = _local(tmp_path)
    table = mdt.create(storage, SCHEMA, ["id"])
    for number in range(40):
        table.upsert(rows(f"k{number}"))
        assert table.scan().count() == number + 1
        storage.create(f".hoodie/{LATER}.commit", b"{}")
        refused(LATER, table.snapshot)
        storage.delete(f".hoodie/{LATER}.commit")


def test_the_stamp_of_a_local_directory_is_used_only_if_its_last_change_is_some_time_ago(
    tmp_path,
):
    storage = _local(tmp_path)
    storage.create("d/a", b"1")
    for change in (
        lambda: storage.create("d/b", b"2"),
        lambda: storage.delete("d/b"),
        lambda: storage.replace("d/a", b"3"),
    ):
        os.utime(tmp_path / "t" / "d", ns=(10**18, 10**18 + 1))
        assert storage.stamp("d") is not None
        change()
        assert storage.stamp("d") is None
    now = time.time_ns()
    os.utime(tmp_path / "t" / "d", ns=(now, (now // 10**9 - 1) * 10**9))
    assert storage.stamp("d") is None, (
        "a file system with timestamps of whole seconds may hide a change for two seconds"
    )
    shutil.rmtree(tmp_path / "t" / "d")
    assert storage.stamp("d") == storage.stamp("d/a") == "absent"

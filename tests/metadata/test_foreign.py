"""Another Hudi writer on our table: whatever it completes is noticed at every open, refresh and
write, and never costs much.
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
    made = STORAGES[request.param](tmp_path)
    mdt.create(made, SCHEMA, ["id"]).upsert(rows("a", "b"))
    return made


def changed(storage, **values):
    """Rewrite the properties as another writer does: under a backup, with other values."""
    old = storage.read(paths.properties())
    storage.create(f"{paths.properties()}.backup", old)
    new = {f"hoodie.{name.replace('_', '.')}": value for name, value in values.items()}
    storage.delete(paths.properties())
    storage.create(paths.properties(), properties.encode(properties.decode(old) | new))
    storage.delete(f"{paths.properties()}.backup")


def upgrade(storage):
    """Do what Hudi 1.2 does by default: move the timeline, say version 9."""
    for info in storage.list_dir(".hoodie"):
        name = info.path.rpartition("/")[2]
        if Version6().instant_at(info.path) is not None:
            storage.create(f".hoodie/timeline/{name}", storage.read(info.path))
            storage.delete(info.path)
    changed(storage, table_version="9", timeline_layout_version="2")


def half_upgraded(storage):
    """Leave what stands there while Hudi replaces the properties: only a backup, which says another
    version.
    """
    changed(storage, table_version="8")
    storage.create(f"{paths.properties()}.backup", storage.read(paths.properties()))
    storage.delete(paths.properties())


CHANGES = {
    "an upgrade": (upgrade, "table version 9"),
    "an upgrade under way": (half_upgraded, "table version 8"),
    "properties without version": (
        lambda storage: changed(storage, table_version=""),
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


def refused(text, act, *given):
    error = refused_with(text, act, *given, kind=Unsupported)
    assert error.is_of_others


@pytest.mark.parametrize("name", COMPLETED)
def test_an_instant_of_another_writer_is_noticed_read_in_memory_and_imported_by_a_write(
    storage, name
):
    table = mdt.open(storage)
    assert table.scan().count() == 2
    storage.create(f".hoodie/{LATER}.{name}", b"{}")
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    refused(f"completed {name} {LATER} here", table.snapshot)
    for one in (table, mdt.open(storage)):
        for act in READS.values():
            act(one)
        assert one.scan().count() == 2
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before
    other = mdt.open(storage)
    assert other.upsert(rows("c")).inserted == 1
    assert other.history()["operation"].to_pylist()[2:] == ["import", "upsert"]
    assert other.snapshot().last_instant > LATER
    assert table.scan().count() == 3 and table.upsert(rows("d")).inserted == 1


@pytest.mark.parametrize("name", AT_WORK)
def test_a_pending_service_of_another_writer_stops_writers_but_no_readers(storage, name):
    table = mdt.open(storage)
    storage.create(f".hoodie/{LATER}.{name}", b"{}")
    for one in (table, mdt.open(storage)):
        assert one.scan().count() == 2
        for act in WRITES.values():
            refused_with(f"pending instants {LATER}", act, one, kind=Unsupported)


@pytest.mark.parametrize("name", CHANGES)
def test_another_table_version_is_noticed_and_stops_writers(storage, name):
    table = mdt.open(storage)
    happen, text = CHANGES[name]
    happen(storage)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    for act in (table.snapshot, *(partial(act, table) for act in WRITES.values())):
        refused(text, act)
    assert "at " in repr(table), "a table that is refused can still be shown"
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before


def test_a_table_that_was_upgraded_is_read_in_its_new_version(storage):
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
def test_what_cannot_be_read_as_properties_is_not_blamed_on_another_writer(storage, damage):
    table, whole = mdt.open(storage), storage.read(paths.properties())
    storage.replace(paths.properties(), damage(whole))
    said = "the table properties cannot be read … hoodie.properties … hint: … mdt.repair"
    for act in (*READS.values(), *WRITES.values(), lambda _: Table(storage)):
        assert "writer" not in str(refused_with(said, act, table, kind=Corrupt))
    storage.replace(paths.properties(), whole)
    table.upsert(rows("a", v=3))
    assert table.scan().count() == 2 and table.check().ok


@pytest.mark.parametrize("name", ["savepoint", "savepoint.inflight", "indexing", "txt"])
def test_what_changes_no_rows_is_not_in_the_way(storage, name):
    table = mdt.open(storage)
    storage.create(f".hoodie/{LATER}.{name}", b"")
    for one in (table, mdt.open(storage)):
        assert one.upsert(rows("c")).warnings == ()
        assert one.scan().count() == 3


@pytest.mark.parametrize("names", [("commit.requested",), ("commit.requested", "inflight")])
def test_a_write_of_another_writer_without_content_stops_writers_but_no_readers(storage, names):
    """If a commit of ours followed it, Hudi could never roll it back, and never write again."""
    table = mdt.open(storage)
    for name in names:
        storage.create(f".hoodie/{LATER}.{name}", b"")
    for one in (table, mdt.open(storage)):
        assert one.scan().count() == 2
        for act in WRITES.values():
            refused_with(f"pending instants {LATER}", act, one, kind=Unsupported)
    storage.delete_many([f".hoodie/{LATER}.{name}" for name in names])
    assert table.upsert(rows("c")).inserted == 1


def begin(storage):
    """Let another writer begin a commit five milliseconds after our newest; return its instant."""
    newest = timeline.instant_us(mdt.open(storage).snapshot().last_instant)
    begun = timeline.instant_text(newest + 5_000)
    storage.create(f".hoodie/{begun}.deltacommit.requested", b"")
    return begun


def test_a_commit_of_another_writer_that_is_under_way_stops_writers_and_its_end_stops_readers(
    storage,
):
    table = mdt.open(storage)
    begun = begin(storage)
    storage.create(f".hoodie/{begun}.deltacommit.inflight", b'{"partitionToWriteStats": {}}')
    said = f"running here, or has died: it has pending instants {begun}"
    for one in (table, mdt.open(storage)):
        assert one.scan().count() == 2
        for act in WRITES.values():
            refused_with(said, act, one, kind=Unsupported)
    storage.create(f".hoodie/{begun}.deltacommit", b"{}")
    refused(begun, table.snapshot)
    refused(begun, Table(storage).snapshot)


@pytest.mark.parametrize("content", [PROFILE_START, PROFILE_START[:5], PROFILE_START + b"abc"])
def test_a_pending_write_with_the_first_bytes_of_ours_is_not_that_of_another_writer(
    storage, content
):
    storage.create(f".hoodie/{begin(storage)}.deltacommit.inflight", content)
    table = mdt.open(storage)
    assert table.snapshot() and table.metadata.watch.at_work == ()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_commit_that_began_long_before_ours_is_noticed_when_it_ends(storage, is_compacted):
    """Refreshes list the newest part of the timeline only; what was pending there keeps that part
    open, also for those who open the table on compacted metadata.  With a lock, writers do not wait.
    """
    table = mdt.open(storage)
    begun = begin(storage)
    options = {"mdt.lock.provider": "storage" if storage.is_remote else "file_system"}
    for number in range(3):
        storage.now_us = lambda n=number: 2_000_000_000_000_000 + n * 10**10  # type: ignore[method-assign, misc]
        mdt.open(storage, options).upsert(rows(f"later{number}"))
        assert table.scan().count() == 3 + number
    if is_compacted:
        table.metadata.compact()
    late = mdt.open(storage)
    assert late.metadata.watch.since == begun
    storage.create(f".hoodie/{begun}.deltacommit", b"{}")
    for act in (table.snapshot, late.snapshot, lambda: Table(storage).snapshot()):
        refused(begun, act)


def test_a_commit_by_a_clock_that_is_behind_is_noticed(storage):
    table = mdt.open(storage)
    table.upsert(rows("c"))
    newest = timeline.instant_us(table.snapshot().last_instant)
    behind = timeline.instant_text(newest - (FOREIGN_CLOCK_BEHIND_SECONDS - 1) * 1_000_000)
    storage.create(f".hoodie/{behind}.deltacommit", b"{}")
    refused(behind, table.snapshot)


def test_a_commit_during_a_transaction_of_ours_is_imported_before_ours_counts(storage, monkeypatch):
    table = mdt.open(storage)
    create = type(storage).create

    def create_beside_another(self, path, data):
        create(self, path, data)
        if path.endswith(".parquet"):
            self.put_if_absent(f".hoodie/{LATER}.commit", b"{}")

    monkeypatch.setattr(type(storage), "create", create_beside_another)
    assert table.insert(rows("n0", "n1", "n2")).inserted == 3
    monkeypatch.undo()
    assert table.history()["operation"].to_pylist()[2:] == ["import", "insert"]
    assert table.scan().count() == 5 and table.check().ok


def test_a_metadata_table_of_hudi_stops_writers_but_no_readers(storage):
    table = mdt.open(storage)
    changed(storage, table_metadata_partitions="files")
    assert table.scan().count() == mdt.open(storage).scan().count() == 2
    for act in WRITES.values():
        refused_with("metadata table", act, table, kind=Unsupported)


def test_what_our_own_writers_do_is_never_taken_for_anothers():
    """Two tables on one directory, crashes in between: everything on the timeline is explained by
    the log.
    """
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 2})
    one, other = mdt.open(storage), mdt.open(storage)
    for number in range(6):
        (one, other)[number % 2].upsert(rows(f"k{number}"))
        assert one.scan().count() == other.scan().count() == number + 1
        one.compact()
    assert one.metadata.checkpoint_seq > 2
    assert mdt.open(storage).scan().count() == 6


def test_a_refresh_without_changes_lists_nothing_and_one_after_a_commit_lists_once():
    inner = MemoryStorage()
    mdt.create(inner, SCHEMA, ["id"]).upsert(rows("a"))
    counting = FaultyStorage(inner, count_reads=True)
    table = mdt.open(counting)
    table.snapshot()
    counting.operations.clear()
    table.snapshot()
    quiet = [op for op in counting.operations if not op.startswith("stamp")]
    log = ".hoodie/.mdt/log/"
    assert quiet == [f"read {log}{2:020d}", f"read {log}{1:020d}"], (
        "is there a newer record, is its own still there"
    )
    mdt.open(inner).upsert(rows("b"))
    counting.operations.clear()
    table.snapshot()
    assert [op for op in counting.operations if op.startswith("list")] == ["list_dir .hoodie"]


class Listing(MemoryStorage):
    """Keeps how many names each listing of a directory has."""

    def __init__(self):
        super().__init__()
        self.listed: list[int] = []

    def list_dir(self, prefix, **bounds):
        found = super().list_dir(prefix, **bounds)
        self.listed.append(len(found))
        return found


def test_a_look_at_a_long_timeline_sees_its_end_only_and_what_records_have_once():
    inner = Listing()
    table = mdt.create(inner, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 10})
    for number in range(30):
        inner.sleep(3600)
        table.upsert(rows(f"k{number}"))
    reader = mdt.open(inner)
    inner.listed.clear()
    table.upsert(rows("z"))
    assert max(inner.listed) <= 6, (
        "the properties, what this commit has put there, and what the one before completed last"
    )
    assert reader.scan().count() == mdt.open(inner).scan().count() == 31
    assert max(inner.listed) < 40 < 3 * 31, inner.listed


def test_a_change_within_the_tick_of_the_clock_is_noticed_on_a_local_disk(tmp_path):
    storage = _local(tmp_path)
    table = mdt.create(storage, SCHEMA, ["id"])
    for number in range(40):
        table.upsert(rows(f"k{number}"))
        assert table.scan().count() == number + 1
        storage.create(f".hoodie/{LATER}.commit", b"{}")
        refused(LATER, table.snapshot)
        storage.delete(f".hoodie/{LATER}.commit")


def test_the_stamp_of_a_local_directory_is_trusted_only_when_the_last_change_is_some_time_ago(
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
        "a file system that counts whole seconds may hide a change for two"
    )
    shutil.rmtree(tmp_path / "t" / "d")
    assert storage.stamp("d") == storage.stamp("d/a") == "absent"

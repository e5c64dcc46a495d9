"""Hudi's metadata table of a shared table: a write of mdt removes partitions that it does not
maintain, and leaves a timeline from which Hudi rebuilds them completely.
"""

import pytest
from hidden import HiddenMetadata
from other_writer import OtherWriter
from refusals import refused
from shared_tables import batch, other_table, rows_of

import mdt
from mdt.commit.metadata_partitions import PARTITIONS, partitions_in
from mdt.commit.upgrading import replace_properties
from mdt.errors import Unsupported
from mdt.hudi.layout import LAYOUTS
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.timeline import COMPLETED
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
LISTED = ".hoodie/metadata/files/a"
LATER = ("20990101000000000", "20990101000000500")
"""The instant of an index build in a time zone ahead of UTC, and its completion time."""

writes = pytest.mark.parametrize(
    "write",
    [lambda t: t.upsert(batch([2, 50], 9)), lambda t: t.delete_where("v = 77")],
    ids=["upsert", "nothing to delete"],
)
kinds = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def table_with_foreign_index(version, table_type="MERGE_ON_READ", **options):
    """Return the storage of an adopted table for which another writer has then built an index.

    In version 9 it has a metadata table that lists the files but has no index.
    """
    storage = MemoryStorage()
    theirs = other_table(storage, table_type, version)
    theirs.upsert(batch(list(range(10)), 1))
    mdt.adopt(storage, **options)
    for path, content in LAYOUTS[version].indexing(*LATER, []):
        storage.create(path, content)
    replace_properties(
        Metadata(storage), {**read_properties(storage), PARTITIONS: "files,record_index"}
    )
    storage.create(LISTED, b"a")
    return storage


def last_action(storage):
    """Return the action of the instant at which Hudi 1.2 would create a metadata table."""
    files = load_timeline(storage, load_properties(storage)).files
    return max((f for f in files if f.state == COMPLETED), key=lambda f: f.time).action


def metadata_partitions(storage):
    """Return the metadata partitions that the properties name."""
    return partitions_in(read_properties(storage))


@writes
@kinds
@pytest.mark.parametrize("version", [6, 9])
def test_a_write_after_an_index_build_of_another_writer_first_commits_without_files(
    version, table_type, write
):
    storage = table_with_foreign_index(version, table_type)
    t = mdt.open(storage)
    write(t)
    assert not metadata_partitions(storage)
    assert last_action(storage) == t.definition.commit_action
    operations = t.history()["operation"].to_pylist()
    assert operations.count("commit_without_files") == 1
    write(t)
    assert t.history()["operation"].to_pylist().count("commit_without_files") == 1
    assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert t.check().ok


def test_a_write_after_a_data_commit_needs_no_commit_without_files():
    storage = table_with_foreign_index(9)
    mdt.open(storage).upsert(batch([1], 5))
    replace_properties(Metadata(storage), {**read_properties(storage), PARTITIONS: "files"})
    t = mdt.open(storage)
    t.upsert(batch([1], 6))
    assert t.history()["operation"].to_pylist().count("commit_without_files") == 1
    assert not metadata_partitions(storage)


@pytest.mark.parametrize("content", [b"{}", b""])
def test_the_metadata_table_is_kept_while_hudi_writes_without_a_lock(content):
    storage = table_with_foreign_index(9)
    for state in ("requested", "inflight"):
        storage.create(f".hoodie/timeline/20990101000000000.deltacommit.{state}", content)
    refused(
        "pending instants 20990101000000000",
        mdt.open(storage).upsert,
        batch([1], 5),
        kind=Unsupported,
    )
    assert (
        metadata_partitions(storage) == {"files", "record_index"}
        and storage.size(LISTED) is not None
    )
    assert last_action(storage) == "indexing"


def test_removing_the_metadata_table_takes_and_releases_hudis_lock():
    storage = table_with_foreign_index(9, options={"hoodie.write.lock.provider": LOCK})
    mdt.open(storage).upsert(batch([1], 6))
    assert not metadata_partitions(storage) and last_action(storage) == "deltacommit"
    assert storage.size(".hoodie/lock") is None


@writes
def test_a_crash_at_any_change_leaves_a_timeline_for_a_complete_metadata_table(write):
    storage, fail_at, crashed = table_with_foreign_index(9), 0, True
    while crashed:
        fail_at += 1
        copy = storage.copy()
        try:
            write(mdt.open(FaultyStorage(copy, fail_at, "before")))
            crashed = False
        except Crash:
            pass
        is_complete = metadata_partitions(copy) == {"files", "record_index"}
        assert is_complete or last_action(copy) != "indexing", fail_at
        t = mdt.open(copy)
        write(t)
        assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(copy))), fail_at
        assert t.check().ok, fail_at
    assert fail_at > 5


@pytest.mark.parametrize("not_imported", [False, True])
def test_a_repair_imports_and_removes_the_metadata_table_first(not_imported):
    storage = MemoryStorage()
    other_table(storage).upsert(batch(list(range(10)), 1))
    t = mdt.adopt(storage)
    t.upsert(batch([2], 2))
    if not_imported:
        mdt.open(OtherWriter(storage)).upsert(batch([3, 60], 7))
    replace_properties(Metadata(storage), {**read_properties(storage), PARTITIONS: "files"})
    storage.create(LISTED, b"a")
    key_map = t.metadata.newest(watched=False).segment(0).key_map
    data = bytearray(storage.read(key_map.path))
    data[key_map.offset] ^= 1
    storage.replace(key_map.path, bytes(data))
    report = mdt.repair(storage)
    assert report.damaged and report.ok and not metadata_partitions(storage)
    assert rows_of(mdt.open(storage)) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert mdt.open(storage).check().ok

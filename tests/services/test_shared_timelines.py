"""The timeline of tables with two writers: which instants are archived, and which are kept."""

import json

import pytest
from hidden import HiddenMetadata
from other_writer import OtherWriter
from refusals import refused
from shared_tables import batch, other_table, rows_of

import mdt
from mdt.errors import Unsupported
from mdt.hudi.read.history import completion_times
from mdt.metadata.files import paths
from mdt.services.reclaiming import archiving, cleaning
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (6, 9)


def active_instants(storage, version):
    folder = {6: ".hoodie", 9: ".hoodie/timeline"}[version]
    names = [info.path.rpartition("/")[2] for info in storage.list_dir(folder)]
    return sorted(name for name in names if name[:14].isdigit())


def data_files(storage):
    paths_found = (info.path for info in storage.list("city=Oslo"))
    return {path for path in paths_found if "partition_metadata" not in path}


OFTEN_COMPACTED = {"mdt.services.auto": False, "mdt.metadata.compact.records": 4}


@pytest.fixture
def short_log(monkeypatch):
    """Let cleaning archive after few records. The default limit exceeds the commits of these tests."""
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 4)


def table_with_old_instants(table_type, version):
    """Return a table with many commits of two writers, the instants from before its adoption, and the
    data files that were replaced by then.
    """
    storage = MemoryStorage()
    theirs = other_table(storage, table_type, version)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([0], 1, "Rome"))
    replaced = data_files(storage)
    theirs.insert_overwrite(batch(list(range(10)), 2))
    before = active_instants(storage, version)
    ours = mdt.adopt(storage, options=OFTEN_COMPACTED)
    for number in range(3, 23):
        ours.upsert(batch([number % 10], number))
    theirs.anew().upsert(batch([3], 999))
    ours.upsert(batch([4], 999))
    return storage, set(before), replaced


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
def test_the_timeline_of_a_shared_table_is_archived(table_type, version):
    storage, before, replaced = table_with_old_instants(table_type, version)
    ours = mdt.open(storage)
    ours.clean(retain_commits=1)
    instants_after = active_instants(storage, version)
    assert instants_after and not before & set(instants_after)
    assert replaced and not replaced & data_files(storage)
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)
    theirs = mdt.open(OtherWriter(storage))
    assert rows_of(theirs) == rows_of(ours) and ours.check().ok
    theirs.upsert(batch([5], 1000))
    ours.upsert(batch([6], 1000))
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


@pytest.mark.usefixtures("short_log")
def test_an_old_heartbeat_of_another_writer_is_not_deleted():
    """A restore of Hudi removes a pending instant but not its heartbeat."""
    storage, before, _ = table_with_old_instants("MERGE_ON_READ", 9)
    heartbeat = paths.heartbeat(min(before)[:17])
    storage.create(heartbeat, b"")
    ours = mdt.open(storage)
    ours.clean(retain_commits=1)
    assert ours.snapshot().retention.instant > heartbeat[-17:]
    assert ours.check().ok
    ours.abort()
    assert storage.size(heartbeat) == 0


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("version", VERSIONS)
def test_many_bytes_of_instants_are_archived_in_several_files(version, monkeypatch):
    storage, before, _ = table_with_old_instants("MERGE_ON_READ", version)
    monkeypatch.setattr(archiving, "ARCHIVED_BYTES_MAX", 10_000)
    ours = mdt.open(storage)
    ours.clean(retain_commits=1)
    folder = {6: ".hoodie/archived", 9: ".hoodie/timeline/history"}[version]
    names = [info.path.rpartition("/")[2] for info in storage.list_dir(folder)]
    assert len([name for name in names if name[0] == "." or name.endswith(".parquet")]) > 2
    assert not before & set(active_instants(storage, version))
    for t in (mdt.open(HiddenMetadata(storage)), mdt.open(OtherWriter(storage))):
        assert rows_of(t) == rows_of(ours)
    assert ours.check().ok


@pytest.mark.usefixtures("short_log")
def test_replaced_file_groups_outside_of_the_table_do_not_stop_cleaning():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.insert_overwrite(batch(list(range(10)), 2))
    [name] = [name for name in active_instants(storage, 6) if name.endswith(".replacecommit")]
    commit = json.loads(storage.read(f".hoodie/{name}"))
    replaced = commit["partitionToReplaceFileIds"]
    for partition in ("../..", "/etc", ".", "a\0b", "x" * 5000, ".hoodie"):
        replaced[partition] = ["id"]
    storage.replace(f".hoodie/{name}", json.dumps(commit).encode())
    ours = mdt.adopt(storage, options=OFTEN_COMPACTED)
    for number in range(3, 23):
        ours.upsert(batch([number % 10], number))
    ours.clean(retain_commits=1)
    assert name not in active_instants(storage, 6)
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)


@pytest.mark.usefixtures("short_log")
def test_instants_without_a_completion_time_are_archived_with_the_time_of_their_request():
    storage = MemoryStorage()
    theirs = other_table(storage, "MERGE_ON_READ", 9)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([1, 2], 2))
    times = set()
    for name in active_instants(storage, 9):  # as Hudi 0.x named them
        if name.endswith(".deltacommit"):
            times.add(name[:17])
            content, path = storage.read(f".hoodie/timeline/{name}"), f"{name[:17]}.deltacommit"
            storage.delete(f".hoodie/timeline/{name}")
            storage.put_if_absent(f".hoodie/timeline/{path}", content)
    ours = mdt.adopt(storage, options=OFTEN_COMPACTED)
    for number in range(3, 23):
        ours.upsert(batch([5], number))
    ours.clean(retain_commits=1)
    assert not times & {name[:17] for name in active_instants(storage, 9)}
    completions = completion_times(storage, paths.HUDI + "/timeline/history", times)
    assert len(times) == 3 and completions == {time: time for time in times}
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)
    assert ours.check().ok


@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize("hold", ["savepoint", "tag"])
def test_instants_needed_by_savepoints_or_tags_stay_on_a_shared_timeline(hold):
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch(list(range(10)), 1))
    ours = mdt.adopt(storage, options=OFTEN_COMPACTED)
    if hold == "savepoint":
        theirs.savepoint("kept")
    if hold == "tag":
        ours.tag("kept")
    theirs.insert_overwrite(batch(list(range(10)), 2))
    needed = set(active_instants(storage, 6)[-1:])
    for number in range(3, 23):
        ours.upsert(batch([number % 10], number))
    ours.clean(retain_commits=1)
    assert needed <= set(active_instants(storage, 6))
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)
    assert ours.check().ok


@pytest.mark.nightly
@pytest.mark.usefixtures("short_log")
@pytest.mark.parametrize(("table_type", "version"), [(TYPES[0], 9), (TYPES[1], 6)])
@pytest.mark.parametrize("mode", ["before", "torn"])
def test_a_crash_during_the_archiving_of_a_shared_timeline_changes_no_rows(
    table_type, version, mode
):
    start, _, replaced = table_with_old_instants(table_type, version)
    rows = rows_of(mdt.open(start))
    counted = FaultyStorage(start.copy())
    mdt.open(counted).clean(retain_commits=1)
    for number in range(1, len(counted.operations) + 1, 7):
        storage = start.copy()
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(storage, number, mode)).clean(retain_commits=1)
        assert rows_of(mdt.open(HiddenMetadata(storage))) == rows, number
        assert rows_of(mdt.open(OtherWriter(storage))) == rows, number
        storage.sleep(3600)
        ours = mdt.open(storage, {"mdt.rollback.after.seconds": 1})
        ours.upsert(batch([5], 1000))
        ours.clean(retain_commits=1)
        assert not replaced & data_files(storage)
        assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours), number
        assert ours.check().ok


class CrashBeforeTheRecord(FaultyStorage):
    def put_if_absent(self, path, data):
        if "/.mdt/log/" in path:
            self.crashed = True
            raise Crash
        return super().put_if_absent(path, data)


def test_a_torn_log_file_of_a_crashed_writer_is_deleted():
    """The name of the log file contains the instant of the writer."""
    storage = MemoryStorage()
    other_table(storage, version=9).upsert(batch(list(range(10)), 1))
    mdt.adopt(storage)
    before = data_files(storage)
    crashing = CrashBeforeTheRecord(storage)
    with pytest.raises(Crash):
        mdt.open(crashing).upsert(batch([1], 5))
    [log] = data_files(storage) - before
    storage.replace(log, storage.read(log)[:500])
    storage.sleep(3600)
    ours = mdt.open(storage, {"mdt.rollback.after.seconds": 1})
    ours.upsert(batch([2], 6))
    assert log not in data_files(storage) and ours.check().ok


def test_a_scan_since_a_commit_number_is_refused_if_it_could_omit_imported_rows():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch([1], 1))
    ours = mdt.adopt(storage)
    snapshot = ours.snapshot()
    ours.upsert(batch([2], 1))
    assert ours.scan(since=snapshot.seq).to_arrow()["id"].to_pylist() == [2]
    theirs.upsert(batch([3], 1))
    ours.refresh()
    refused("cannot be found by commit number", ours.scan, since=snapshot.seq, kind=Unsupported)
    assert sorted(ours.scan(since=snapshot.last_instant).to_arrow()["id"].to_pylist()) == [2, 3]
    assert sorted(ours.changes(snapshot.seq).to_arrow()["id"].to_pylist()) == [2, 3]

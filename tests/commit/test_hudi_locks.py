"""Locks that transactions share with Hudi's writers."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from functools import partial

import pyarrow as pa
import pytest
from other_writer import OtherWriter
from pausing import PausedBefore
from refusals import refused
from shared_tables import SCHEMA, batch, other_table, rows_of

import mdt
from mdt import Conflict, Corrupt, Invalid, Unavailable, Unsupported
from mdt.commit import hudi_locks
from mdt.config import parse_options
from mdt.hudi import timeline
from mdt.limits import LOCK_BYTES_MAX, LOCK_VALID_SECONDS, STARTING_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

FILE, OBJECT = "file_system", "storage"
LOCKS = {FILE: paths.HUDI_LOCK, OBJECT: paths.HUDI_STORAGE_LOCK}
"""The path of the lock of each provider. Hudi 1.2 reads and writes the same objects."""


def lock(storage, provider, **options):
    named = {f"mdt.lock.{name}": value for name, value in options.items()}
    return hudi_locks.lock_of(storage, parse_options({"mdt.lock.provider": provider, **named}))


def is_locked(storage, provider):
    data = storage.read_if_exists(LOCKS[provider])
    if data is None or provider == FILE:
        return data is not None
    return not json.loads(data)["expired"]


@pytest.mark.parametrize("provider", LOCKS)
def test_a_lock_is_held_by_one_writer(provider):
    storage = MemoryStorage()
    first, second = lock(storage, provider), lock(storage, provider, **{"wait.ms": 200})
    assert not first.is_held()
    first.acquire()
    assert first.is_held() and not second.is_held() and is_locked(storage, provider)
    since = storage.now_us()
    refused("another writer holds the lock", lambda: second.acquire(), kind=Conflict)
    assert storage.now_us() - since > 200_000
    second.close()
    assert first.is_held()
    first.close()
    assert not is_locked(storage, provider)
    second.acquire()
    assert second.is_held() and not first.is_held()


def test_an_object_lock_has_the_format_of_hudi():
    storage = MemoryStorage()
    ours = lock(storage, OBJECT)
    ours.acquire()
    stored = json.loads(storage.read(LOCKS[OBJECT]))
    assert stored.keys() == {"expired", "validUntil", "owner"} and stored["expired"] is False
    assert 0 < stored["validUntil"] - storage.now_us() // 1000 <= LOCK_VALID_SECONDS * 1000
    ours.close()
    assert json.loads(storage.read(LOCKS[OBJECT])) == {**stored, "expired": True}


def test_an_object_lock_can_be_acquired_after_it_expires_and_not_before():
    storage = MemoryStorage()
    until = storage.now_us() // 1000 + 5_000
    theirs = {"expired": False, "validUntil": until, "owner": "hudi"}
    storage.replace(LOCKS[OBJECT], json.dumps(theirs).encode())
    refused(
        "another writer holds the lock",
        lambda: lock(storage, OBJECT, **{"wait.ms": 4_000}).acquire(),
        kind=Conflict,
    )
    ours = lock(storage, OBJECT, **{"wait.ms": 4_000})
    ours.acquire()
    assert storage.now_us() // 1000 > until + 500  # Hudi's margin for clocks
    assert ours.is_held()


TEXT_FOR_TRUE = b'{"expired": "false", "validUntil": 1, "owner": "hudi"}'


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"expired": 0}', b"{}" * 9, b"[" * 9000, TEXT_FOR_TRUE]
)
def test_a_malformed_object_lock_counts_as_held(data):
    storage = MemoryStorage()
    storage.replace(LOCKS[OBJECT], data)
    refused(
        "another writer holds the lock",
        lambda: lock(storage, OBJECT, **{"wait.ms": 100}).acquire(),
        kind=Conflict,
    )


def test_an_object_lock_is_renewed_while_valid_and_lost_to_another_writer_afterwards():
    storage = MemoryStorage()
    ours = lock(storage, OBJECT)
    ours.acquire()
    before = json.loads(storage.read(LOCKS[OBJECT]))["validUntil"]
    storage.sleep(LOCK_VALID_SECONDS * 0.7)
    assert ours.is_held()
    assert json.loads(storage.read(LOCKS[OBJECT]))["validUntil"] > before
    storage.sleep(LOCK_VALID_SECONDS + 1)
    theirs = lock(storage, OBJECT)
    theirs.acquire()
    assert not ours.is_held() and theirs.is_held()
    ours.close()
    assert theirs.is_held()


def test_an_old_file_lock_is_broken_if_that_is_configured():
    storage = MemoryStorage()
    abandoned = lock(storage, FILE)
    abandoned.acquire()
    storage.sleep(60 * 61)
    refused(
        "another writer holds the lock",
        lambda: lock(storage, FILE, **{"wait.ms": 100}).acquire(),
        kind=Conflict,
    )
    ours = lock(storage, FILE, **{"wait.ms": 100, "expire.minutes": 60})
    ours.acquire()
    assert ours.is_held() and not abandoned.is_held()
    abandoned.close()
    assert ours.is_held()


def test_a_file_lock_may_be_in_another_directory(tmp_path):
    storage = LocalStorage(tmp_path / "table")
    with closing(lock(storage, FILE, path=str(tmp_path / "locks"))) as ours:
        ours.acquire()
        assert (tmp_path / "locks" / "lock").exists() and ours.is_held()
    assert not (tmp_path / "locks" / "lock").exists()


def test_object_locks_are_refused_on_a_disk_and_file_locks_on_an_object_store(tmp_path):
    refused(
        "no versions of objects", lambda: lock(LocalStorage(tmp_path), OBJECT), kind=Unsupported
    )
    wrong = {"mdt.lock.provider": OBJECT}
    create = partial(mdt.create, tmp_path / "t", SCHEMA, ["id"])
    refused("no versions of objects", create, options=wrong, kind=Unsupported)
    refused("no versions of objects", create().alter, options=wrong, kind=Unsupported)
    relative = {"mdt.lock.provider": FILE, "mdt.lock.path": "locks"}
    refused("must be an absolute path", mdt.open(tmp_path / "t", relative).upsert, batch([1], 1))
    remote = MemoryStorage()
    remote.is_remote = True
    refused("no file system lock", lambda: lock(remote, FILE), kind=Unsupported)


def test_hudis_names_of_lock_providers_and_their_options_are_accepted():
    package = "org.apache.hudi.client.transaction.lock"
    options = parse_options(
        {
            "hoodie.write.lock.provider": f"{package}.FileSystemBasedLockProvider",
            "hoodie.write.lock.filesystem.path": "/locks",
            "hoodie.write.lock.filesystem.expire": "5",
            "hoodie.write.lock.wait_time_ms": "100",
        }
    )
    assert (options.lock_provider, options.lock_path) == (FILE, "/locks")
    assert (options.lock_expire_minutes, options.lock_wait_ms) == (5, 100)
    name = {"hoodie.write.lock.provider": f"{package}.StorageBasedLockProvider"}
    assert parse_options(name).lock_provider == OBJECT
    refused(
        "hoodie.write.lock.provider",
        lambda: parse_options(
            {"hoodie.write.lock.provider": f"{package}.ZookeeperBasedLockProvider"}
        ),
        kind=Invalid,
    )


class Observed(FaultyStorage):
    """A storage that records for each new object whether the lock is held."""

    def __init__(self, inner, provider):
        super().__init__(inner)
        self.provider = provider
        self.puts = []

    def put_if_absent(self, path, data):
        self.puts.append((path, is_locked(self.inner, self.provider)))
        return super().put_if_absent(path, data)

    def create(self, path, data):
        self.puts.append((path, is_locked(self.inner, self.provider)))
        super().create(path, data)


@pytest.mark.parametrize("provider", LOCKS)
def test_the_record_and_the_completed_instant_are_written_under_the_lock(provider):
    storage = Observed(MemoryStorage(), provider)
    t = mdt.create(storage, SCHEMA, ["id"], ordering="v", options={"mdt.lock.provider": provider})
    storage.puts.clear()
    result = t.upsert(batch([1, 2], 1))
    held = dict(storage.puts)
    assert held[paths.commit(result.seq)] is True
    assert held[f".hoodie/{result.instant}.deltacommit"] is True
    assert held[paths.pending(result.instant)] is True
    assert held[next(path for path in held if path.endswith(".parquet"))] is False
    assert not is_locked(storage, provider)
    assert t.check().ok


class BeforeCommit(FaultyStorage):
    """A storage that calls a function once, just before a transaction takes the lock to commit."""

    def __init__(self, inner, act):
        super().__init__(inner)
        self.act = act
        self.locks = 0

    def put_passing(self, path, data):
        if path == paths.HUDI_LOCK:
            self.locks += 1
            if self.locks == 2:  # the first one is for the claim
                self.act()
        return super().put_passing(path, data)


def locked_tables(table_type="MERGE_ON_READ", wait_ms=500):
    """Return the table of another writer, the same table adopted with a lock, and the storage."""
    storage = MemoryStorage()
    theirs = other_table(storage, table_type)
    theirs.upsert(batch(list(range(10)), 1))
    options = {"mdt.lock.provider": FILE, "mdt.services.auto": False}
    mdt.adopt(storage, options=options)
    return theirs, mdt.open(storage, {"mdt.lock.wait.ms": wait_ms}), storage


def begin_write(storage, action, instant="20990101000000000", content=b"{}", *, beats=True):
    """Begin a write or service as a Hudi writer does. Return the paths of its files."""
    inflight = f".hoodie/{instant}.{action}.inflight"
    if action == "commit":
        inflight = f".hoodie/{instant}.inflight"
    storage.put_if_absent(f".hoodie/{instant}.{action}.requested", b"")
    storage.put_if_absent(inflight, content)
    if beats:
        storage.replace(paths.heartbeat(instant), b"")
    return [f".hoodie/{instant}.{action}.requested", inflight, paths.heartbeat(instant)]


def test_a_commit_that_another_writer_makes_during_ours_is_kept():
    theirs, _, storage = locked_tables()
    hooked = BeforeCommit(storage, lambda: theirs.upsert(batch([3, 30], 7)))
    ours = mdt.open(hooked, {"mdt.lock.wait.ms": 500})
    ours.upsert(batch([3, 31], 8))
    assert hooked.locks > 2
    rows = {row["id"]: row["v"] for row in ours.scan().to_arrow().to_pylist()}
    assert (rows[3], rows[30], rows[31]) == (8, 7, 8)
    assert rows_of(theirs.anew()) == rows_of(ours)
    assert ours.check().ok


def test_a_write_of_hudi_in_flight_does_not_stop_ours_with_a_lock():
    _, ours, storage = locked_tables()
    begin_write(storage, "deltacommit")
    assert ours.upsert(batch([1], 5)).updated == 1
    unlocked = mdt.open(storage, {"mdt.lock.provider": ""})
    refused(
        "another Hudi writer is running", lambda: unlocked.upsert(batch([1], 6)), kind=Unsupported
    )


def test_a_write_of_hudi_that_ends_after_records_of_its_time_were_archived_is_imported(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 4)
    theirs, ours, storage = locked_tables()
    ours.alter(options={"mdt.metadata.compact.records": 4})

    def meanwhile():
        for number in range(20):
            ours.upsert(batch([number % 10], number))
        ours.clean(retain_commits=1)

    completes = "put_if_absent .hoodie/2"
    slow = OtherWriter(PausedBefore(storage, completes, meanwhile))
    instant = mdt.open(slow).upsert(batch([77], 7, "Rome")).instant
    assert ours.scan("id = 77").count() == 1
    ours.upsert(batch([1], 5))
    assert ours.snapshot().retention.instant < instant
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


@pytest.mark.parametrize("action", ["compaction", "replacecommit", "clean", "rollback"])
def test_writers_wait_for_pending_services_of_hudi(action):
    _, ours, storage = locked_tables()
    instants = begin_write(storage, action)
    since = storage.now_us()
    refused("compaction, clustering or clean", lambda: ours.upsert(batch([1], 5)), kind=Unsupported)
    assert storage.now_us() - since > 500_000
    storage.delete_many(instants)
    assert ours.upsert(batch([1], 5)).updated == 1


@pytest.mark.parametrize("content", [b"", b"{}"])
def test_our_compaction_waits_for_writes_of_hudi_in_flight(content):
    _, ours, storage = locked_tables()
    ours.upsert(batch([1], 5))
    instants = begin_write(storage, "deltacommit", content=content)
    refused("another Hudi writer is running", lambda: ours.compact(), kind=Unsupported)
    storage.delete_many(instants)
    assert ours.compact().seq


def test_a_crashed_writer_of_hudi_does_not_block_our_compaction():
    _, ours, storage = locked_tables()
    ours.upsert(batch([1], 5))
    begin_write(storage, "deltacommit", beats=False)
    assert ours.compact().seq


def test_log_files_that_a_compaction_plan_of_hudi_may_name_are_kept():
    _, ours, storage = locked_tables()
    instants = []
    hooked = BeforeCommit(storage, lambda: instants.extend(begin_write(storage, "compaction")))

    def log_files():
        return {i.path for i in storage.list("") if ".log." in i.path}

    before = log_files()
    refused(
        "compaction, clustering or clean",
        lambda: mdt.open(hooked, {"mdt.lock.wait.ms": 500}).upsert(batch([1], 5)),
        kind=Unsupported,
    )
    assert log_files() - before
    storage.delete_many(instants)
    assert ours.upsert(batch([1], 6)).updated == 1
    before_abort = log_files()
    assert ours.abort().files_removed
    assert before_abort - log_files() and ours.check().ok
    assert {row["v"] for row in ours.scan("id = 1").to_arrow().to_pylist()} == {6}


def test_the_metadata_table_is_not_removed_while_hudi_writes():
    _, ours, storage = locked_tables()
    text = storage.read(paths.PROPERTIES) + b"hoodie.table.metadata.partitions=files\n"
    storage.replace(paths.PROPERTIES, text)
    instants = begin_write(storage, "deltacommit", content=b"")
    refused("another Hudi writer is running", lambda: ours.upsert(batch([1], 5)), kind=Unsupported)
    assert storage.read(paths.PROPERTIES) == text
    storage.delete_many(instants)
    ours.upsert(batch([1], 5))
    assert b"metadata.partitions" not in storage.read(paths.PROPERTIES)


def test_a_long_write_renews_its_heartbeat(monkeypatch):
    monkeypatch.setattr(hudi_locks, "HEARTBEAT_SECONDS", 0.01)
    storage, instant = MemoryStorage(), "20260101000000000"
    beating = lock(storage, FILE)
    beating.begin_heartbeat(instant)
    for _ in range(1000):
        if storage.size(paths.heartbeat(instant)) is not None:
            break
        threading.Event().wait(0.01)
    assert storage.size(paths.heartbeat(instant)) == 0
    beating.close()
    storage.delete(paths.heartbeat(instant))
    threading.Event().wait(0.05)
    assert storage.size(paths.heartbeat(instant)) is None
    assert not [t for t in threading.enumerate() if t.name == "mdt-heartbeat"]


@pytest.mark.parametrize("provider", LOCKS)
@pytest.mark.parametrize("mode", ["before", "after", "torn"])
def test_a_crash_while_the_lock_is_held_loses_no_committed_rows(provider, mode):
    options = {"mdt.lock.provider": provider, "mdt.services.auto": False}
    start = MemoryStorage()
    mdt.create(start, SCHEMA, ["id"], ordering="v", options=options).upsert(batch([1, 2], 1))
    counted = FaultyStorage(start.copy())
    mdt.open(counted).upsert(batch([2, 3], 2))
    outcomes = set()
    for number in range(1, len(counted.operations) + 1):
        storage = start.copy()
        try:
            mdt.open(FaultyStorage(storage, number, mode)).upsert(batch([2, 3], 2))
        except Crash:
            pass
        was_locked = is_locked(storage, provider)
        storage.sleep(3600)
        t = mdt.open(storage, {"mdt.lock.expire.minutes": 10, "mdt.rollback.after.seconds": 1})
        t.upsert(batch([4], 4))
        rows = {row["id"]: row["v"] for row in t.scan().to_arrow().to_pylist()}
        assert rows in ({1: 1, 2: 1, 4: 4}, {1: 1, 2: 2, 3: 2, 4: 4})
        assert t.check().ok and not is_locked(storage, provider)
        outcomes.add((was_locked, 3 in rows))
    assert {was_locked for was_locked, _ in outcomes} == {False, True}
    assert {is_committed for _, is_committed in outcomes} == {False, True}


def starting(storage, us, *, beats=True):
    """Begin a write as a Hudi writer does that has not read the timeline yet. Return its instant
    and paths.
    """
    instant = timeline.instant_text(us)
    requested = f".hoodie/{instant}.deltacommit.requested"
    if beats:
        storage.replace(paths.heartbeat(instant), b"")
    storage.put_if_absent(requested, b"")
    return instant, [requested, paths.heartbeat(instant)]


def test_our_instants_precede_those_of_writers_that_start():
    _, ours, storage = locked_tables()
    theirs, files = starting(storage, storage.now_us() - 1000)
    instants = [
        ours.upsert(batch([1], 5)).instant,
        ours.delete([{"id": 2, "city": "Oslo"}]).instant,
    ]
    assert instants[0] < instants[1] < theirs
    storage.put_if_absent(f".hoodie/{theirs}.deltacommit.inflight", b"")
    assert ours.upsert(batch([1], 6)).instant > theirs
    storage.delete_many([*files, f".hoodie/{theirs}.deltacommit.inflight"])
    assert ours.check().ok


def test_a_write_waits_if_no_instant_is_free_before_that_of_a_starting_writer():
    _, ours, storage = locked_tables()
    newest = timeline.instant_us(ours.snapshot().last_instant)
    theirs, files = starting(storage, newest - 1000)
    refused("another Hudi writer is starting", lambda: ours.upsert(batch([1], 5)), kind=Unsupported)
    assert theirs < ours.snapshot().last_instant
    storage.delete_many(files)
    assert ours.upsert(batch([1], 5)).updated == 1


@pytest.mark.parametrize("age", [None, 3600])
def test_writers_do_not_wait_for_crashed_writers(age):
    _, ours, storage = locked_tables()
    theirs, _ = starting(storage, storage.now_us() - 1000, beats=age is not None)
    storage.sleep(age or 0)
    assert ours.upsert(batch([1], 5)).instant > theirs


def test_a_write_that_failed_in_a_living_program_is_not_waited_for():
    """A stream of Hudi keeps the heartbeat of a batch that it has tried again."""
    _, ours, storage = locked_tables()
    theirs, _ = starting(storage, timeline.instant_us(ours.snapshot().last_instant) + 1000)
    refused("is starting", lambda: ours.upsert(batch([1], 5)), kind=Unsupported)
    storage.sleep(STARTING_SECONDS_MAX)
    storage.replace(paths.heartbeat(theirs), b"")
    assert ours.upsert(batch([1], 5)).instant > theirs
    assert ours.compact() is not None


def test_a_write_gets_an_earlier_instant_than_a_writer_that_starts_during_it():
    _, ours, storage = locked_tables()
    begun_writers = []

    def start():
        us = timeline.instant_us(ours.snapshot().last_instant) + 2000  # a clock behind ours
        begun_writers.append(starting(storage, us)[0])

    t = mdt.open(BeforeCommit(storage, start), {"mdt.lock.wait.ms": 500})
    result = t.upsert(batch([1], 5))
    assert ours.snapshot().last_instant == result.instant < begun_writers[0]


class LostReplies(FaultyStorage):
    """A storage that makes conditional changes of a lock, but refuses the first, as a store does
    when its client repeats a request whose reply was lost.
    """

    def __init__(self, inner):
        super().__init__(inner)
        self.lost = []

    def put_if_absent(self, path, data):
        is_put = super().put_if_absent(path, data)
        return is_put and not self._is_lost(path)

    def put_passing(self, path, data):
        is_put = super().put_passing(path, data)
        return is_put and not self._is_lost(path)

    def replace_version(self, path, data, version):
        new = super().replace_version(path, data, version)
        return None if self._is_lost(path) else new

    def _is_lost(self, path):
        if path not in LOCKS.values() or self.lost:
            return False
        self.lost.append(path)
        return True


@pytest.mark.parametrize("provider", LOCKS)
@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_lock_is_held_although_the_reply_to_its_acquisition_was_lost(provider, is_renewed):
    inner = MemoryStorage()
    if is_renewed:
        with closing(lock(inner, provider)) as earlier:
            earlier.acquire()
    storage = LostReplies(inner)
    since = storage.now_us()
    ours = lock(storage, provider)
    ours.acquire()
    assert storage.lost and storage.now_us() - since < 1_000_000 and ours.is_held()
    ours.close()
    assert not is_locked(inner, provider)


@pytest.mark.parametrize("provider", LOCKS)
def test_a_lock_is_released_after_an_error_of_unknown_outcome(provider):
    inner = MemoryStorage()
    ours = lock(FaultyStorage(inner, 1, "lost_reply"), provider)
    refused("", ours.acquire, kind=Unavailable)
    ours.close()
    assert not is_locked(inner, provider)


def test_nothing_is_written_if_no_instant_is_free_before_that_of_a_starting_writer():
    _, ours, storage = locked_tables()
    newest = timeline.instant_us(ours.snapshot().last_instant)
    starting(storage, newest + 1000)
    observed = FaultyStorage(storage)
    t = mdt.open(observed, {"mdt.lock.wait.ms": 500})
    before = {info.path for info in storage.list("")}
    refused("another Hudi writer is starting", lambda: t.upsert(batch([1], 5)), kind=Unsupported)
    assert {info.path for info in storage.list("")} == before
    assert len(observed.operations) == 0


def test_an_instant_that_hudi_uses_is_not_claimed():
    _, _, storage = locked_tables()
    theirs = []

    class Hooked(FaultyStorage):
        def put_if_absent(self, path, data):
            if path.startswith(f"{paths.PENDING_DIR}/") and not theirs:
                instant = path.rpartition("/")[2][:17]
                theirs.extend(begin_write(self.inner, "deltacommit", instant))
            return super().put_if_absent(path, data)

    result = mdt.open(Hooked(storage), {"mdt.lock.wait.ms": 500}).upsert(batch([1], 5))
    assert theirs and result.instant not in theirs[0]
    heartbeat = paths.heartbeat(theirs[0].rpartition("/")[2][:17])
    assert all(storage.size(path) is not None for path in (*theirs, heartbeat))
    assert storage.size(theirs[0].replace(".requested", "")) is None


def test_an_unpublished_commit_that_hudi_has_overtaken_is_rolled_back():
    theirs, ours, storage = locked_tables("COPY_ON_WRITE")

    class CrashingStorage(FaultyStorage):
        def put_if_absent(self, path, data):
            if path.endswith(".commit"):
                self.crashed = True
                raise Crash
            return super().put_if_absent(path, data)

    with pytest.raises(Crash):
        mdt.open(CrashingStorage(storage)).upsert(batch([1], 5))
    assert ours.metadata.newest().seq == ours.snapshot().seq + 1  # in the log, and not read
    assert {row["v"] for row in ours.scan("id = 1").to_arrow().to_pylist()} == {1}
    storage.delete(paths.HUDI_LOCK)
    overtaking = theirs.anew()
    overtaking.metadata.watch._begun = ()
    overtaking.upsert(batch([2], 7))
    ours = mdt.open(storage)
    ours.refresh()
    values = {row["id"]: row["v"] for row in ours.scan().to_arrow().to_pylist()}
    assert values == {**dict.fromkeys(range(10), 1), 2: 7}
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok
    ours.upsert(batch([1], 9))
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


def test_partition_metadata_that_hudi_has_removed_are_written_again():
    _, ours, storage = locked_tables()
    ours.insert_overwrite(batch([50], 1, "Rome"))
    ours.delete_partition("city=Rome")
    storage.delete(paths.partition_metadata("city=Rome"))  # as Hudi's cleaner does
    ours.upsert(batch([51], 1, "Rome"))
    assert storage.size(paths.partition_metadata("city=Rome"))


def test_a_commit_of_hudi_just_after_the_import_is_imported_too():
    theirs, _, storage = locked_tables()
    drops = []

    class Hooked(FaultyStorage):
        def delete_many(self, paths_):
            named = list(paths_)
            super().delete_many(named)
            if any(path.startswith(paths.PENDING_DIR) for path in named) and len(drops) < 2:
                drops.append(named)
                if len(drops) == 2:  # the claims of the import and of the key maps are dropped
                    theirs.upsert(batch([3, 30], 7))

    theirs.upsert(batch([4], 7))
    ours = mdt.open(Hooked(storage))
    assert ours.upsert(batch([1], 5)).updated == 1 and len(drops) == 2
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


@pytest.mark.parametrize("provider", LOCKS)
def test_a_commit_whose_lock_was_removed_is_all_or_nothing(provider):
    theirs, ours, storage = locked_tables("COPY_ON_WRITE")
    ours.alter(options={"mdt.lock.provider": provider})
    removed = []

    class Hooked(FaultyStorage):
        def put_if_absent(self, path, data):
            if path.startswith(paths.LOG_DIR) and not removed:
                removed.append(LOCKS[provider])
                self.inner.delete(LOCKS[provider])  # by hand
                theirs.upsert(batch([2], 7))
            return super().put_if_absent(path, data)

    both = pa.concat_tables([batch([1], 5), batch([60], 5, "Rome")])
    refused(
        "write the rows of this commit again",
        mdt.open(Hooked(storage)).upsert,
        both,
        kind=Unsupported,
    )
    ours = mdt.open(storage)
    ours.refresh()
    values = {row["id"]: row["v"] for row in ours.scan().to_arrow().to_pylist()}
    assert values == {**dict.fromkeys(range(10), 1), 2: 7}
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


def test_a_commit_that_cannot_lock_again_raises_unavailable_and_not_conflict():
    """After a conflict, the caller would write its rows again."""
    theirs, _, storage = locked_tables("COPY_ON_WRITE")
    rivals = []

    class Hooked(FaultyStorage):
        def put_if_absent(self, path, data):
            is_new = super().put_if_absent(path, data)
            if path.startswith(paths.LOG_DIR) and not rivals:
                self.inner.delete(LOCKS[FILE])  # by hand
                rivals.append(lock(self.inner, FILE))
                rivals[0].acquire()
            return is_new

    ours = mdt.open(Hooked(storage), {"mdt.lock.wait.ms": 100})
    with pytest.raises(Unavailable, match=r"is in the log, and not on Hudi's timeline"):
        ours.upsert(batch([60], 5))
    rivals[0].close()
    ours = mdt.open(storage)
    ours.upsert(batch([61], 6))
    assert [row["v"] for row in ours.scan("id = 60").to_arrow().to_pylist()] == [5]
    assert rows_of(theirs.anew()) == rows_of(ours) and ours.check().ok


def test_a_lock_can_be_broken_after_a_writer_crashed_while_breaking_it():
    storage = MemoryStorage()
    abandoned = lock(storage, FILE)
    abandoned.acquire()
    [created] = [i.modified_us for i in storage.list_dir(".hoodie") if i.path == LOCKS[FILE]]
    storage.create(f"{LOCKS[FILE]}.{created}", b"")
    storage.sleep(60 * 61)
    ours = lock(storage, FILE, **{"wait.ms": 1000, "expire.minutes": 60})
    ours.acquire()
    assert ours.is_held() and [i.path for i in storage.list_dir(".hoodie")] == [LOCKS[FILE]]


def test_a_huge_lock_is_not_read():
    storage = MemoryStorage()
    for provider, path in LOCKS.items():
        storage.replace(path, b"x" * (LOCK_BYTES_MAX + 1))
        refused("too large", lock(storage, provider).acquire, kind=Corrupt)


def test_a_completed_compaction_does_not_count_as_planned():
    _, ours, storage = locked_tables()
    watch, snapshot = ours.metadata.watch, ours.snapshot()
    instant = "20990101000000000"
    begin_write(storage, "compaction", instant)
    assert watch.has_planned_compaction(snapshot)
    storage.put_if_absent(f".hoodie/{instant}.commit", b"{}")
    assert not watch.has_planned_compaction(snapshot)

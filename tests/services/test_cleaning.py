"""Cleaning and the archive: retained states stay readable, reading other states raises, and
processes that pause for long do no harm.
"""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from aging import ARCHIVE_RECORDS, assert_kept, grown, names, upsert
from counting import count
from worlds import COW, LATER_SECONDS, MOR, as_state, assert_clean, ours, rows, theirs, upserted

import mdt
from mdt.commit.transaction import steps
from mdt.errors import Conflict, Corrupt, Expired, Invalid, Unavailable
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.log import archive, commit_log, trusted_names
from mdt.metadata.metadata import Metadata
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.write.by_name import RowWrite


@pytest.fixture(autouse=True)
def _archived_early(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", ARCHIVE_RECORDS)


def test_the_newest_commits_stay_readable_and_files_of_older_ones_are_deleted():
    table, past = grown(30)
    before, first = names(table), table.history()["instant"][1].as_py()
    report = table.clean(retain_commits=8)
    assert report.horizon == table.snapshot().retention.horizon == sorted(past)[-8]
    assert report.files > 0 and report.records > 0 and len(names(table)) < len(before) / 2
    assert_kept(table, past)
    assert table.clean(retain_commits=8).files == 0, (
        "a clean does not add a state, so no more files are deleted"
    )
    assert table.snapshot().retention.first > 1
    with pytest.raises(Expired):  # and not Invalid, as for unknown instants
        table.scan(as_of=first)


def test_retention_defaults_to_the_options_by_their_mdt_or_hudi_names():
    table, past = grown(12, **{"hoodie.cleaner.commits.retained": 3})
    assert table.clean().horizon == sorted(past)[-3]
    other, past = grown(
        12, **{"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "mdt.clean.retain.versions": 1}
    )
    other.clean()
    assert_kept(other, past)
    assert other.snapshot().retention.horizon > 0


def test_retention_by_hours_keeps_all_states_of_the_last_hours():
    table, past = grown(6)
    table.storage.sleep(7200)
    for n in range(6):
        upsert(table, past, range(4), 100 + n)
    edge = sorted(past)[-7]
    assert table.clean(retain_hours=1).horizon == edge, (
        "an hour ago the table had the state of the commit before"
    )
    assert_kept(table, past)


def test_retention_by_versions_keeps_states_by_the_base_files_of_their_file_groups():
    table, past = grown(25)
    compactions = [seq for seq in past if table.history()["action"][seq].as_py() == "compaction"]
    assert table.clean(retain_versions=2).horizon == compactions[-2]
    assert_kept(table, past)
    with pytest.raises(Invalid, match="retains commits, hours or versions"):
        table.clean(retain_versions=2, retain_hours=1)
    with pytest.raises(Invalid, match=r"mdt\.clean\.retain\.commits=0"):
        table.clean(retain_commits=0)


def test_retention_by_versions_counts_replacing_commits_per_partition():
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    table = mdt.create(MemoryStorage(), schema, key=["id"], partition_by=["city"])
    for n in range(9):
        table.insert_overwrite([{"id": str(n), "city": "Oslo" if n < 6 else "Rome"}])
    assert table.clean(retain_versions=3, dry_run=True).horizon == 4, (
        "the oldest state with 3 versions in Oslo"
    )
    assert table.clean(retain_versions=2).files == 6
    assert table.scan(as_of=8).to_arrow()["id"].to_pylist() == ["5", "7"], (
        "the oldest state with 2 versions in Rome, too"
    )


def test_the_history_stays_complete_while_the_log_stays_short():
    table, past = grown(5)
    object_counts = []
    for n in range(60):
        upsert(table, past, range(4), 10 + n)
        if n % 6 == 5:
            past[table.compact().seq] = past[max(past)]
            table.clean(retain_commits=5)
            object_counts.append(len(names(table)))
    history = mdt.open(table.storage).history()
    assert history["seq"].to_pylist() == list(range(table.snapshot().seq + 1))
    assert history["inserted"].to_pylist()[:3] == [0, 4, 1]
    assert len(table.storage.list_dir(paths.LOG_DIR)) < 30
    assert max(object_counts[4:]) < 1.5 * min(object_counts[4:]), (
        "the number of objects does not grow with the history"
    )
    assert len(archive.spans(table.storage)) < 5
    assert len(table.storage.list_dir(paths.HUDI)) < 3 * 30
    assert_kept(table, past)


def test_no_empty_attachment_directories_of_archived_commits_stay_on_disk(tmp_path):
    table, past = grown(12, storage=LocalStorage(tmp_path, durable=False))
    table.clean(retain_commits=4)
    table.clean(retain_commits=4)
    oldest = table.snapshot().retention.instant
    older = [path for path in (tmp_path / paths.ATTACHMENTS_DIR).iterdir() if path.name < oldest]
    assert oldest and all(list(path.iterdir()) for path in older), (
        "retained states refer to the files in the other directories"
    )
    assert as_state(mdt.open(str(tmp_path)).scan().to_arrow()) == past[max(past)]


def test_a_lease_keeps_a_state_until_it_expires_or_is_returned():
    table, past = grown(20)
    old = sorted(past)[5]
    with table.leased(3600, as_of=old) as view:
        assert table.clean(retain_commits=2).horizon == old
        assert as_state(view.scan().to_arrow()) == past[old]
        with pytest.raises(Invalid):
            view.upsert(rows([1], 99, 9.0))
    assert table.clean(retain_commits=2).horizon == sorted(past)[-2]
    for invalid in (0, -1, float("nan"), "600", None, True):
        with pytest.raises(Invalid, match="seconds=600"), table.leased(invalid):  # type: ignore[arg-type]
            pass
    with pytest.raises(Expired), table.leased(as_of=old):
        pass
    leased_seq = table.snapshot().seq
    with table.leased(60):
        for n in range(4):
            upsert(table, past, range(3), 50 + n)
        table.storage.sleep(61)
        assert table.clean(retain_commits=1).horizon > leased_seq, "an expired lease keeps no state"
    assert not table.storage.list_dir(paths.LEASES_DIR)


@pytest.mark.parametrize("phase", ["prepared", "claimed"])
def test_a_lease_taken_during_a_cleaning_keeps_its_state(phase):
    table, past = grown(20)
    old, other = sorted(past)[5], mdt.open(table.storage)
    options = cleaning.with_policy(other.options, 2, None, None)
    driver = steps(other.metadata, cleaning.Clean(other.metadata, options))
    while next(driver) != phase:
        pass
    with table.leased(3600, as_of=old) as view:
        with pytest.raises(Conflict, match=f"leased the state after commit {old}"):
            list(driver)
        assert not other.metadata.storage.list_dir(paths.PENDING_DIR)
        assert table.clean(retain_commits=2).horizon == old
        assert as_state(view.scan().to_arrow()) == past[old]
    cleaned = table.clean(retain_commits=2).horizon
    assert cleaned == sorted(past)[-2]
    until = table.storage.now_us() + 60_000_000
    table.storage.create(paths.lease("crashed"), b'{"seq": 1, "until_us": %d}' % until)
    upsert(table, past, range(3), 50)
    assert table.clean(retain_commits=1).horizon == cleaned, (
        "a lease on a state that is already cleaned is no conflict"
    )


@pytest.mark.parametrize(
    "lease",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"seq": true, "until_us": 1}',
        b'{"seq": 0, "until_us": 1e99}',
        b'{"seq":0,"until_us":9223372036854775807}',
    ],
)
def test_an_invalid_lease_keeps_no_state(lease):
    table, past = grown(8)
    table.storage.create(paths.lease("x"), lease)
    assert table.clean(retain_commits=2).horizon == sorted(past)[-2]


@contextmanager
def paused_writer(table, phase, ids, ts):
    """Yield the steps of a writer in another process that pauses after ``phase``. ``next`` continues
    it.
    """
    metadata = Metadata(table.storage)
    definition = metadata.newest().definition
    options, data = metadata.options(definition), rows(ids, ts, float(ts))
    operation = RowWrite(metadata, options, "upsert").in_process(data, definition)
    driver = steps(metadata, operation, attempts=5)
    while next(driver) != phase:
        pass
    yield driver


@pytest.mark.parametrize(
    "phase", ["begun", "prepared", "claimed", "written", "checked", "committed"]
)
@pytest.mark.parametrize("is_forgotten", [False, True], ids=["claim stands", "claim taken away"])
def test_a_writer_that_pauses_while_earlier_commits_are_archived_commits_once(phase, is_forgotten):
    table, past = grown(10)
    with paused_writer(table, phase, range(20, 24), 1000) as driver:
        is_committed = phase == "committed"
        expected = past[max(past)]
        if is_committed:
            expected = upserted(expected, range(20, 24), 1000, 1000.0)
        for n in range(20):
            table.storage.sleep(LATER_SECONDS if is_forgotten else 0)
            table.upsert(rows(range(4), 2000 + n, 1.0))
            expected = upserted(expected, range(4), 2000 + n, 1.0)
            table.clean(retain_commits=1)
        assert (table.snapshot().retention.first > 10) == (
            is_forgotten or phase in ("begun", "prepared", "committed")
        )
        for _ in driver:
            pass
    expected = upserted(expected, range(20, 24), 1000, 1000.0)
    assert ours(table.storage) == expected == theirs(table.storage)  # type: ignore[arg-type]
    table.abort()
    assert_clean(table.storage)
    assert ours(table.storage) == expected
    count("writers that slept while their past was archived")


def test_archiving_keeps_instants_of_the_log_in_any_order_of_their_claims():
    """A transaction may claim its instant before another transaction and commit after it. The log may
    begin between the two.
    """
    table, _ = grown(0, MOR)
    storage, starts = table.storage, set()
    for n in range(1, 30):
        with paused_writer(table, "claimed", range(n % 5 + 10, n % 5 + 11), n) as earlier:
            table.upsert(rows([n % 5], n, float(n)))
            assert list(earlier)[-1] == "committed"
        if n % 3 == 0:
            table.compact()
        table.clean(retain_commits=4)
        newest = table.snapshot()
        log = newest.history
        if log["instant"][0].as_py() < newest.retention.instant:
            starts.add(newest.retention.first)
        assert table.check().ok, n
        assert ours(storage) == theirs(storage), n
    assert starts, (
        "no log began with a record whose instant is older than that of an earlier record"
    )
    count("logs that begin between two commits of which the second is older", len(starts))


def test_a_process_that_paused_during_archivings_reads_the_newest_state_only():
    table, past = grown(10)
    paused_table = mdt.open(table.storage)
    old = paused_table.snapshot().seq
    for n in range(20):
        upsert(table, past, range(4), 100 + n)
        table.clean(retain_commits=1)
    assert table.snapshot().retention.first > old + 2
    record = commit_log.read(table.storage, table.snapshot().seq)
    # Another writer that paused as long has put a record where one was archived. It has not yet
    # checked that the place was free.
    stray = {**record.header, "begun_at": old, "action": "index"}
    del stray["retention"], stray["clean"]
    commit_log.append(table.storage, commit_log.CommitRecord(old + 1, stray, {}))
    for process in (paused_table, mdt.open(table.storage)):
        assert process.snapshot().seq == table.snapshot().seq
        assert as_state(process.scan().to_arrow()) == past[max(past)]
    for n in range(11):
        upsert(table, past, range(4), 300 + n)
    table.clean(retain_commits=1)
    assert table.storage.size(paths.commit(old + 1)) is None, (
        "a stray record is deleted by the next cleaning"
    )
    assert_kept(table, past)


def test_reading_a_state_that_is_cleaned_meanwhile_raises_expired():
    table, past = grown(10)
    reader = mdt.open(table.storage)
    scan, plain = reader.scan(), reader.scan("fare > 0")
    view = mdt.open(table.storage, as_of=scan.snapshot.seq)
    for n in range(10):
        upsert(table, past, range(8), 100 + n)
    table.compact()
    table.clean(retain_commits=1)
    for read in (
        scan.to_arrow,
        plain.to_arrow,
        plain.count,
        lambda: list(scan),
        lambda: view.get(["k1"]),
    ):
        with pytest.raises(Expired, match="cleaned"):
            read()
    assert as_state(reader.scan().to_arrow()) == past[max(past)]


def data_and_commit_paths(storage):
    """Return the paths of all data files and of Hudi's commits. A repeated cleaning must lead to the
    same paths.
    """
    object_counts = [info.path for info in storage.list("") if paths.PRIVATE not in info.path]
    return sorted(
        path for path in object_counts if ".clean" not in path and "/archived/" not in path
    )


def test_a_crashed_cleaning_is_finished_by_abort_and_the_next_cleaning():
    """The table has a tag, whose state is kept."""
    table, past = grown(7)
    past[table.tag("kept")] = past[max(past)]
    for n in range(9):
        upsert(table, past, range(n % 7, n % 7 + 3), 100 + n)
        if n % 4 == 3:
            past[table.compact().seq] = past[max(past)]
    start = table.storage
    completed = FaultyStorage(start.copy())
    mdt.open(completed).clean(retain_commits=2)
    expected = data_and_commit_paths(completed)
    for k in range(1, len(completed.operations) + 1, 2):
        survivor = start.copy()
        mode = "after" if k % 4 == 1 else "before"
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(survivor, k, mode)).clean(retain_commits=2)
        count("crash points")
        reopened = mdt.open(survivor)
        reopened.abort()
        assert ours(survivor) == past[max(past)]
        assert_clean(survivor)
        reopened.clean(retain_commits=2)
        assert_kept(mdt.open(survivor), past)
        assert data_and_commit_paths(survivor) == expected


def test_a_paused_cleaning_a_writer_and_another_cleaning_lose_no_retained_state():
    table, past = grown(12)
    for pause in ("begun", "prepared", "claimed", "written", "checked", "committed"):
        storage = table.storage.copy()
        metadata = Metadata(storage)
        driver = steps(
            metadata,
            cleaning.Clean(metadata, metadata.options(metadata.newest().definition), horizon=9),
        )
        while next(driver) != pause:
            pass
        other, expected = mdt.open(storage), dict(past)
        upsert(other, expected, range(4), 500)
        other.clean(retain_commits=3)
        for _ in driver:
            pass
        assert_kept(mdt.open(storage), expected)
        count("schedules with cleanings")


def test_a_forged_cleaning_record_deletes_no_referenced_file():
    table, past = grown(12)
    storage = table.storage
    completed = FaultyStorage(storage.copy())
    mdt.open(completed).clean(retain_commits=2)
    (at, *_) = [
        n
        for n, op in enumerate(completed.operations, 1)
        if op.startswith("put_if_absent") and "/log/" in op
    ]
    with pytest.raises(Crash):  # crashes after the commit, before anything is deleted
        mdt.open(FaultyStorage(storage, at, "after")).clean(retain_commits=2)
    seq = mdt.open(storage).snapshot().seq
    record = commit_log.read(storage, seq)
    assert record.action == "clean"
    files = mdt.open(storage).files().to_pylist()
    object_counts = [paths.partition_file(file["partition"], file["name"]) for file in files]
    tables = {"cleaned": pa.table([object_counts], schema=commit_log.CLEANED)}
    forged = commit_log.CommitRecord(seq, record.header, tables)
    storage.replace(paths.commit(seq), commit_log.encode(forged))
    storage.sleep(LATER_SECONDS)
    mdt.open(storage).upsert(rows([30], 99, 9.0))
    assert ours(storage) == upserted(past[max(past)], [30], 99, 9.0) == theirs(storage)


def test_damage_to_the_archive_is_detected_and_does_not_affect_states():
    table, past = grown(30)
    table.clean(retain_commits=3)
    span = archive.spans(table.storage)[0]
    path = paths.archive(*span)
    content = table.storage.read(path)
    for at in range(0, len(content), 37):
        table.storage.replace(path, content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(Corrupt):
            mdt.open(table.storage).history()
    assert not mdt.open(table.storage).check().ok
    table.storage.delete(path)
    assert ours(table.storage) == past[max(past)]
    table.storage.create(path, content)
    assert_kept(table, past)


def test_states_are_read_from_the_oldest_checkpoint_if_newer_ones_are_damaged():
    table, past = grown(30)
    table.clean(retain_commits=3)
    horizon = table.snapshot().retention.horizon
    before = [seq for seq in table.metadata.checkpoints.listed() if seq <= horizon]
    assert len(before) >= 2
    for seq in table.metadata.checkpoints.listed()[:-1]:
        table.storage.replace(paths.checkpoint_manifest(seq), b"damaged")
    reopened = mdt.open(table.storage)
    for seq in sorted(past)[-3:]:
        assert (
            as_state(reopened.scan(as_of=seq).to_arrow()) == past[max(n for n in past if n <= seq)]
        )
    table.storage.delete(paths.HINT)
    assert ours(table.storage) == past[max(past)]


def test_writes_clean_the_table_unless_automatic_services_are_disabled():
    table, past = grown(5, **{"mdt.clean.retain.commits": 10})
    sizes = []
    for n in range(122):  # the next two writes do what a cleaning leaves
        result = table.upsert(rows(range(4), 10 + n, 1.0))
        assert result.warnings == ()
        past[result.seq] = upserted(past[max(past)], range(4), 10 + n, 1.0)
        if n % 10 == 9:
            past[table.compact().seq] = past[max(past)]
        states = sum(seq >= table.snapshot().retention.horizon for seq in past)
        assert states <= 10 + cleaning.CLEAN_COMMITS_MIN + 3
        sizes.append(len(names(table)))
    assert table.snapshot().retention.first > 50
    assert max(sizes[80:]) < 1.3 * max(sizes[40:80]), (
        "the number of objects does not grow with the history"
    )
    assert_kept(table, past)
    other, past = grown(5, **{"mdt.clean.retain.commits": 3, "mdt.services.auto": False})
    for n in range(60):
        other.upsert(rows(range(4), 10 + n, 1.0))
    assert other.snapshot().retention.horizon == 0


@pytest.mark.parametrize("is_reopened, later", [(False, 2), (True, 1)])
def test_a_cleaning_and_its_archiving_happen_after_different_writes(is_reopened, later):
    """A process that writes once archives the records of the cleaning of the previous writer."""
    table, _ = grown(5, **{"mdt.clean.retain.commits": 10})
    first_seqs, log_starts = [], []
    for n in range(120):
        if is_reopened:
            table = mdt.open(table.storage)
        assert table.upsert(rows(range(4), 10 + n, 1.0)).warnings == ()
        oldest = min(info.path for info in table.storage.list_dir(paths.LOG_DIR))
        first_seqs.append(table.snapshot().retention.first)
        log_starts.append(paths.seq_of(oldest) or 0)
    cleaning_writes = (np.diff(first_seqs) > 0).nonzero()[0] + 1
    archiving_writes = (np.diff(log_starts) > 0).nonzero()[0] + 1
    assert len(cleaning_writes) and archiving_writes.tolist() == [
        n + later for n in cleaning_writes if n + later < 120
    ]
    assert all(log_starts[n] == first_seqs[n] for n in archiving_writes)


def test_a_failed_service_is_a_warning_in_the_result_of_the_write(monkeypatch):
    table, _ = grown(3, **{"mdt.clean.retain.commits": 1})
    monkeypatch.setattr(cleaning, "CLEAN_COMMITS_MIN", 1)

    def fail(metadata, snapshot, horizon):
        raise Unavailable("no answer (a fault made by a test)")

    monkeypatch.setattr(references, "garbage_after", fail)
    result = table.upsert(rows(range(4), 10, 1.0))
    assert result.updated == 4 and any(
        "clean did not finish: no answer" in warning for warning in result.warnings
    )


def test_the_history_has_no_gap_if_a_cleaning_did_not_archive_its_records(
    monkeypatch,
):
    table, past = grown(20)
    with monkeypatch.context() as patch:
        patch.setattr("mdt.services.reclaiming.archiving.archive", lambda metadata: 0)
        table.clean(retain_commits=3)
    first = table.snapshot().retention.first
    for n in range(12):
        upsert(table, past, range(4), 100 + n)
    table.clean(retain_commits=2)
    assert table.snapshot().retention.first > first > 0
    assert mdt.open(table.storage).history()["seq"].to_pylist() == list(
        range(table.snapshot().seq + 1)
    )
    assert_kept(table, past)


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_check_accepts_files_that_wait_for_deletion_but_reports_unknown_files(
    table_type,
):
    table, past = grown(5, table_type, **{"mdt.clean.retain.commits": 4})
    for n in range(40):
        upsert(table, past, range(4), 10 + n)
        report = table.check()
        assert report.ok, str(report)
    assert table.snapshot().retention.horizon > 0
    name = table.files()["name"][-1].as_py()
    token = trusted_names.token_of(name)
    stray = f"city=x/{name.replace(f'-{token}-0', f'-{token}-1')}"
    table.storage.create(stray, b"of a task that was tried twice")
    assert stray in str(table.check())

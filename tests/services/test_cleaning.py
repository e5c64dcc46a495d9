"""Cleaning and the archive: what is kept can be read as it was, what is not is said, and nobody who
sleeps does harm.
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


def test_the_newest_commits_stay_readable_and_files_of_older_ones_go():
    table, past = grown(30)
    before, first = names(table), table.history()["instant"][1].as_py()
    report = table.clean(retain_commits=8)
    assert report.horizon == table.snapshot().retention.horizon == sorted(past)[-8]
    assert report.files > 0 and report.records > 0 and len(names(table)) < len(before) / 2
    assert_kept(table, past)
    assert table.clean(retain_commits=8).files == 0, "a clean is no state, so nothing more goes"
    assert table.snapshot().retention.first > 1
    with pytest.raises(Expired):  # and not unknown, which is what others are
        table.scan(as_of=first)


def test_without_a_choice_the_options_say_what_is_kept_by_our_names_and_by_hudis():
    table, past = grown(12, **{"hoodie.cleaner.commits.retained": 3})
    assert table.clean().horizon == sorted(past)[-3]
    other, past = grown(
        12, **{"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "mdt.clean.retain.versions": 1}
    )
    other.clean()
    assert_kept(other, past)
    assert other.snapshot().retention.horizon > 0


def test_by_hours_all_states_of_the_last_hours_stay():
    table, past = grown(6)
    table.storage.sleep(7200)
    for n in range(6):
        upsert(table, past, range(4), 100 + n)
    edge = sorted(past)[-7]
    assert table.clean(retain_hours=1).horizon == edge, (
        "an hour ago the table was as the last commit before left it"
    )
    assert_kept(table, past)


def test_by_versions_a_state_stays_while_each_file_group_has_a_new_enough_base_file():
    table, past = grown(25)
    compactions = [seq for seq in past if table.history()["action"][seq].as_py() == "compaction"]
    assert table.clean(retain_versions=2).horizon == compactions[-2]
    assert_kept(table, past)
    with pytest.raises(Invalid, match="retains commits, hours or versions"):
        table.clean(retain_versions=2, retain_hours=1)
    with pytest.raises(Invalid, match=r"mdt\.clean\.retain\.commits=0"):
        table.clean(retain_commits=0)


def test_by_versions_a_commit_that_replaces_file_groups_makes_a_version_of_its_partition():
    schema = pa.schema([("id", pa.string()), ("city", pa.string())])
    table = mdt.create(MemoryStorage(), schema, key=["id"], partition_by=["city"])
    for n in range(9):
        table.insert_overwrite([{"id": str(n), "city": "Oslo" if n < 6 else "Rome"}])
    assert table.clean(retain_versions=3, dry_run=True).horizon == 4, "with 3 versions in Oslo"
    assert table.clean(retain_versions=2).files == 6
    assert table.scan(as_of=8).to_arrow()["id"].to_pylist() == ["5", "7"], "and with 2 in Rome"


def test_history_is_complete_for_ever_and_the_log_stays_short():
    table, past = grown(5)
    listed = []
    for n in range(60):
        upsert(table, past, range(4), 10 + n)
        if n % 6 == 5:
            past[table.compact().seq] = past[max(past)]
            table.clean(retain_commits=5)
            listed.append(len(names(table)))
    history = mdt.open(table.storage).history()
    assert history["seq"].to_pylist() == list(range(table.snapshot().seq + 1))
    assert history["inserted"].to_pylist()[:3] == [0, 4, 1]
    assert len(table.storage.list_dir(paths.log_dir())) < 30
    assert max(listed[4:]) < 1.5 * min(listed[4:]), "what is there does not grow with the history"
    assert len(archive.spans(table.storage)) < 5
    assert len(table.storage.list_dir(paths.HUDI)) < 3 * 30
    assert_kept(table, past)


def test_on_a_disk_no_directory_stays_of_a_commit_that_has_left_the_log(tmp_path):
    table, past = grown(12, storage=LocalStorage(tmp_path, durable=False))
    table.clean(retain_commits=4)
    table.clean(retain_commits=4)
    oldest = table.snapshot().retention.instant
    older = [one for one in (tmp_path / paths.attachments_dir()).iterdir() if one.name < oldest]
    assert oldest and all(list(one.iterdir()) for one in older), (
        "states refer to what is in the others"
    )
    assert as_state(mdt.open(str(tmp_path)).scan().to_arrow()) == past[max(past)]


def test_a_lease_holds_a_state_until_it_ends_or_is_given_back():
    table, past = grown(20)
    old = sorted(past)[5]
    with table.leased(3600, as_of=old) as view:
        assert table.clean(retain_commits=2).horizon == old
        assert as_state(view.scan().to_arrow()) == past[old]
        with pytest.raises(Invalid):
            view.upsert(rows([1], 99, 9.0))
    assert table.clean(retain_commits=2).horizon == sorted(past)[-2]
    for wrong in (0, -1, float("nan"), "600", None, True):
        with pytest.raises(Invalid, match="seconds=600"), table.leased(wrong):  # type: ignore[arg-type]
            pass
    with pytest.raises(Expired), table.leased(as_of=old):
        pass
    kept = table.snapshot().seq
    with table.leased(60):
        for n in range(4):
            upsert(table, past, range(3), 50 + n)
        table.storage.sleep(61)
        assert table.clean(retain_commits=1).horizon > kept, "a lease ends by itself"
    assert not table.storage.list_dir(paths.leases_dir())


@pytest.mark.parametrize("phase", ["prepared", "claimed"])
def test_a_lease_that_is_taken_while_a_cleaning_runs_holds_its_state(phase):
    table, past = grown(20)
    old, other = sorted(past)[5], mdt.open(table.storage)
    options = cleaning.with_policy(other.options, 2, None, None)
    driver = steps(other.metadata, cleaning.Clean(other.metadata, options))
    while next(driver) != phase:
        pass
    with table.leased(3600, as_of=old) as view:
        with pytest.raises(Conflict, match=f"leased the state after commit {old}"):
            list(driver)
        assert not other.metadata.storage.list_dir(paths.pending_dir())
        assert table.clean(retain_commits=2).horizon == old
        assert as_state(view.scan().to_arrow()) == past[old]
    cleaned = table.clean(retain_commits=2).horizon
    assert cleaned == sorted(past)[-2]
    until = table.storage.now_us() + 60_000_000
    table.storage.create(paths.lease("crashed"), b'{"seq": 1, "until_us": %d}' % until)
    upsert(table, past, range(3), 50)
    assert table.clean(retain_commits=1).horizon == cleaned, (
        "a lease on an ended state is no conflict"
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
def test_a_senseless_lease_holds_nothing(lease):
    table, past = grown(8)
    table.storage.create(paths.lease("x"), lease)
    assert table.clean(retain_commits=2).horizon == sorted(past)[-2]


@contextmanager
def paused(table, phase, ids, ts):
    """Yield a writer in a process of its own that stands still after ``phase``; ``next`` lets it go
    on.
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
def test_a_writer_that_sleeps_while_its_past_is_archived_commits_once_or_tells(phase, is_forgotten):
    table, past = grown(10)
    with paused(table, phase, range(20, 24), 1000) as driver:
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


def test_instants_of_records_in_the_log_stay_whichever_order_they_were_claimed_in():
    """A transaction may claim its instant before another one and commit after it: the log may begin
    between the two.
    """
    table, _ = grown(0, MOR)
    storage, starts = table.storage, set()
    for n in range(1, 30):
        with paused(table, "claimed", range(n % 5 + 10, n % 5 + 11), n) as early:
            table.upsert(rows([n % 5], n, float(n)))
            assert list(early)[-1] == "committed"
        if n % 3 == 0:
            table.compact()
        table.clean(retain_commits=4)
        newest = table.snapshot()
        log = newest.history
        if log["instant"][0].as_py() < newest.retention.instant:
            starts.add(newest.retention.first)
        assert table.check().ok, n
        assert ours(storage) == theirs(storage), n
    assert starts, "the log began with a record whose instant is older than one before it"
    count("logs that begin between two commits of which the second is older", len(starts))


def test_a_process_that_slept_past_the_archive_sees_the_newest_state_and_no_stray_record():
    table, past = grown(10)
    sleeper = mdt.open(table.storage)
    old = sleeper.snapshot().seq
    for n in range(20):
        upsert(table, past, range(4), 100 + n)
        table.clean(retain_commits=1)
    assert table.snapshot().retention.first > old + 2
    record = commit_log.read(table.storage, table.snapshot().seq)
    # A writer that slept as long has put a record where one was archived; it has not yet looked
    # whether that was free.
    stray = {**record.header, "begun_at": old, "action": "index"}
    del stray["retention"], stray["clean"]
    commit_log.append(table.storage, commit_log.CommitRecord(old + 1, stray, {}))
    for process in (sleeper, mdt.open(table.storage)):
        assert process.snapshot().seq == table.snapshot().seq
        assert as_state(process.scan().to_arrow()) == past[max(past)]
    for n in range(11):
        upsert(table, past, range(4), 300 + n)
    table.clean(retain_commits=1)
    assert table.storage.size(paths.commit(old + 1)) is None, (
        "a stray record goes with the next cleaning"
    )
    assert_kept(table, past)


def test_a_reader_of_a_state_that_goes_meanwhile_is_told_so():
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


def of_data(storage):
    """Return the paths of all data files and of Hudi's commits: what a repeated cleaning must end
    with, too.
    """
    listed = [info.path for info in storage.list("") if paths.PRIVATE not in info.path]
    return sorted(path for path in listed if ".clean" not in path and "/archived/" not in path)


def test_a_cleaning_that_dies_is_finished_by_the_next_writer_or_the_next_cleaning():
    """Also past a tag, whose state stays."""
    table, past = grown(7)
    past[table.tag("kept")] = past[max(past)]
    for n in range(9):
        upsert(table, past, range(n % 7, n % 7 + 3), 100 + n)
        if n % 4 == 3:
            past[table.compact().seq] = past[max(past)]
    start = table.storage
    whole = FaultyStorage(start.copy())
    mdt.open(whole).clean(retain_commits=2)
    expected = of_data(whole)
    for k in range(1, len(whole.operations) + 1, 2):
        survivor = start.copy()
        mode = "after" if k % 4 == 1 else "before"
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(survivor, k, mode)).clean(retain_commits=2)
        count("crash points")
        opened = mdt.open(survivor)
        opened.abort()
        assert ours(survivor) == past[max(past)]
        assert_clean(survivor)
        opened.clean(retain_commits=2)
        assert_kept(mdt.open(survivor), past)
        assert of_data(survivor) == expected


def test_two_cleanings_and_a_writer_in_every_order_lose_nothing():
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
        other, now = mdt.open(storage), dict(past)
        upsert(other, now, range(4), 500)
        other.clean(retain_commits=3)
        for _ in driver:
            pass
        assert_kept(mdt.open(storage), now)
        count("schedules with cleanings")


def test_a_forged_cleaning_removes_nothing_that_a_state_refers_to():
    table, past = grown(12)
    storage = table.storage
    whole = FaultyStorage(storage.copy())
    mdt.open(whole).clean(retain_commits=2)
    (at, *_) = [
        n
        for n, op in enumerate(whole.operations, 1)
        if op.startswith("put_if_absent") and "/log/" in op
    ]
    with pytest.raises(Crash):  # dies after the commit, before anything is deleted
        mdt.open(FaultyStorage(storage, at, "after")).clean(retain_commits=2)
    seq = mdt.open(storage).snapshot().seq
    record = commit_log.read(storage, seq)
    assert record.action == "clean"
    files = mdt.open(storage).files().to_pylist()
    listed = [paths.partition_file(file["partition"], file["name"]) for file in files]
    tables = {"cleaned": pa.table([listed], schema=commit_log.CLEANED)}
    forged = commit_log.CommitRecord(seq, record.header, tables)
    storage.replace(paths.commit(seq), commit_log.encode(forged))
    storage.sleep(LATER_SECONDS)
    mdt.open(storage).upsert(rows([30], 99, 9.0))
    assert ours(storage) == upserted(past[max(past)], [30], 99, 9.0) == theirs(storage)


def test_damage_to_the_archive_is_found_and_no_state_needs_it():
    table, past = grown(30)
    table.clean(retain_commits=3)
    span = archive.spans(table.storage)[0]
    path = paths.archive(*span)
    whole = table.storage.read(path)
    for at in range(0, len(whole), 37):
        table.storage.replace(path, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(Corrupt):
            mdt.open(table.storage).history()
    assert not mdt.open(table.storage).check().ok
    table.storage.delete(path)
    assert ours(table.storage) == past[max(past)]
    table.storage.create(path, whole)
    assert_kept(table, past)


def test_states_are_made_from_the_older_checkpoint_if_the_newer_one_is_damaged():
    table, past = grown(30)
    table.clean(retain_commits=3)
    horizon = table.snapshot().retention.horizon
    before = [seq for seq in table.metadata.checkpoints.listed() if seq <= horizon]
    assert len(before) >= 2
    for seq in table.metadata.checkpoints.listed()[:-1]:
        table.storage.replace(paths.checkpoint_manifest(seq), b"damaged")
    again = mdt.open(table.storage)
    for seq in sorted(past)[-3:]:
        assert as_state(again.scan(as_of=seq).to_arrow()) == past[max(n for n in past if n <= seq)]
    table.storage.delete(paths.hint())
    assert ours(table.storage) == past[max(past)]


def test_a_table_cleans_itself_after_writes_unless_told_not_to():
    table, past = grown(5, **{"mdt.clean.retain.commits": 10})
    sizes = []
    for n in range(122):  # what a cleaning leaves is done by the next two writes
        done = table.upsert(rows(range(4), 10 + n, 1.0))
        assert done.warnings == ()
        past[done.seq] = upserted(past[max(past)], range(4), 10 + n, 1.0)
        if n % 10 == 9:
            past[table.compact().seq] = past[max(past)]
        states = sum(seq >= table.snapshot().retention.horizon for seq in past)
        assert states <= 10 + cleaning.CLEAN_COMMITS_MIN + 3
        sizes.append(len(names(table)))
    assert table.snapshot().retention.first > 50
    assert max(sizes[80:]) < 1.3 * max(sizes[40:80]), "what is there does not grow with the history"
    assert_kept(table, past)
    other, past = grown(5, **{"mdt.clean.retain.commits": 3, "mdt.services.auto": False})
    for n in range(60):
        other.upsert(rows(range(4), 10 + n, 1.0))
    assert other.snapshot().retention.horizon == 0


@pytest.mark.parametrize("is_reopened, later", [(False, 2), (True, 1)])
def test_no_write_pays_for_both_a_cleaning_and_its_archiving(is_reopened, later):
    """Who writes once archives what the writer before has cleaned."""
    table, _ = grown(5, **{"mdt.clean.retain.commits": 10})
    wanted, begins = [], []
    for n in range(120):
        if is_reopened:
            table = mdt.open(table.storage)
        assert table.upsert(rows(range(4), 10 + n, 1.0)).warnings == ()
        oldest = min(info.path for info in table.storage.list_dir(paths.log_dir()))
        wanted.append(table.snapshot().retention.first)
        begins.append(paths.seq_of(oldest) or 0)
    cleaned = (np.diff(wanted) > 0).nonzero()[0] + 1
    archived = (np.diff(begins) > 0).nonzero()[0] + 1
    assert len(cleaned) and archived.tolist() == [n + later for n in cleaned if n + later < 120]
    assert all(begins[n] == wanted[n] for n in archived)


def test_a_service_that_fails_is_a_warning_of_the_write(monkeypatch):
    table, _ = grown(3, **{"mdt.clean.retain.commits": 1})
    monkeypatch.setattr(cleaning, "CLEAN_COMMITS_MIN", 1)

    def fail(metadata, snapshot, horizon):
        raise Unavailable("no answer (a fault made by a test)")

    monkeypatch.setattr(references, "garbage_after", fail)
    done = table.upsert(rows(range(4), 10, 1.0))
    assert done.updated == 4 and any(
        "clean did not finish: no answer" in said for said in done.warnings
    )


def test_history_has_no_gap_if_a_cleaning_dies_before_it_archives_and_the_next_goes_further(
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
def test_what_waits_for_the_next_listing_is_no_problem_and_a_file_of_nobody_is_one(
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

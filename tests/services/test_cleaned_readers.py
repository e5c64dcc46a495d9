"""Readers, writers and archivings during the cleaning of another process, or a forged cleaning."""

import pytest
from aging import ARCHIVE_RECORDS, grown, names, upsert
from worlds import as_state, assert_clean

import mdt
from mdt.commit import leftovers
from mdt.errors import Corrupt, Expired
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.log import commit_log
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.apply import apply
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.checking.check import walk
from mdt.services.reclaiming import archiving, cleaning


@pytest.mark.parametrize("is_cleaning, looks", [(False, 1), (True, 2)])
def test_check_does_not_report_concurrent_commits_and_cleanings_as_damage(
    is_cleaning, looks, monkeypatch
):
    """A check repeats its look at the table after a cleaning, but not after a commit."""
    table, past = grown(20)
    if not is_cleaning:
        _write_and_clean(table.storage, past)
    other, pending = mdt.open(table.storage), iter(range(1))

    def act():
        for _ in pending:
            upsert(other, past, range(4), 5000)
            if is_cleaning:
                _write_and_clean(table.storage, past)

    seqs = _act_before_each_look(monkeypatch, act)
    report = table.check()
    assert (report.ok, len(seqs)) == (True, looks), str(report)
    assert table.snapshot().retention.first, "a precondition of this test"


@pytest.fixture(autouse=True)
def _archived_early(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", ARCHIVE_RECORDS)


def _write_and_clean(storage, past):
    """Upsert, compact the metadata and clean until every older checkpoint is deleted."""
    writer = mdt.open(storage)
    for n in range(20):
        upsert(writer, past, range(4), 1000 + n)
    writer.clean(retain_commits=2)


def test_a_table_can_be_opened_while_its_checkpoint_is_cleaned(
    monkeypatch,
):
    table, past = grown(20)
    upsert(table, past, range(4), 500)
    snapshots = list[Snapshot]()

    def meanwhile(snapshot, record):
        if not snapshots:
            snapshots.append(snapshot)
            _write_and_clean(table.storage, past)
        return apply(snapshot, record)

    with monkeypatch.context() as patch:
        patch.setattr("mdt.metadata.metadata.apply", meanwhile)
        reader = mdt.open(table.storage)
    assert snapshots[0].checkpoint.seq not in reader._metadata.checkpoints.listed(), (
        "a precondition of this test"
    )
    assert as_state(reader.scan().to_arrow()) == past[max(past)]
    assert reader.check().ok


def test_a_process_whose_checkpoint_is_deleted_uses_a_newer_one():
    table, past = grown(20)
    slow = mdt.open(table.storage, {"mdt.metadata.compact.records": 30})
    for n in range(10):
        upsert(table, past, range(4), 500 + n)
    seq = slow.snapshot().seq
    scan = slow.scan("fare > 0")
    with table.leased():
        _write_and_clean(table.storage, past)
        assert slow.snapshot().retention.horizon <= seq, (
            "the lease keeps the state, but not the checkpoint that it was read from"
        )
        for read in (scan.explain, scan.to_arrow):
            with pytest.raises(Expired, match="begin again"):
                read()
        assert (
            as_state(slow.scan("fare > 0", as_of=seq).to_arrow())
            == past[max(n for n in past if n <= seq)]
        )
    assert as_state(slow.scan().to_arrow()) == past[max(past)]


@pytest.mark.parametrize(
    "step", ["_require_checkpoint", "_archive_timeline", "_remove_checkpoints"]
)
@pytest.mark.parametrize("others", ["archive", "clean on"])
def test_two_concurrent_archivings_both_succeed(monkeypatch, step, others):
    table, past = grown(20)
    with monkeypatch.context() as patch:
        patch.setattr("mdt.services.reclaiming.archiving.archive", lambda metadata: 0)
        table.clean(retain_commits=3)
    real_step, calls = getattr(archiving, step), []

    def meanwhile(metadata, snapshot):
        if not calls:
            calls.append(step)
            if others == "archive":
                archiving.archive(Metadata(table.storage))
            else:
                _write_and_clean(table.storage, past)
        real_step(metadata, snapshot)

    monkeypatch.setattr(archiving, step, meanwhile)
    archiving.archive(Metadata(table.storage))
    assert calls and mdt.open(table.storage).check().ok
    assert mdt.open(table.storage).history()["seq"].to_pylist() == list(
        range(mdt.open(table.storage).snapshot().seq + 1)
    )


def test_a_search_for_leftovers_during_a_cleaning_reports_no_referenced_files(
    monkeypatch,
):
    table, past = grown(20)
    real_step, snapshots = references.all_paths, []

    def meanwhile(metadata, snapshot):
        if not snapshots:
            snapshots.append(snapshot)
            _write_and_clean(table.storage, past)
        return real_step(metadata, snapshot)

    monkeypatch.setattr(references, "all_paths", meanwhile)
    assert not leftovers.find(Metadata(table.storage)).unknown
    assert snapshots[0].retention.first < mdt.open(table.storage).snapshot().retention.first


def test_archiving_with_a_forged_cleaning_record_deletes_no_record_of_the_log():
    table, _ = grown(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mdt.services.reclaiming.archiving.archive", lambda metadata: 0)
        table.clean(retain_commits=3)
    seq, storage = table.snapshot().seq, table.storage
    record = commit_log.read(storage, seq)
    retention = record.header["retention"]
    log_paths = [path for path in names(table) if "/log/" in path and path != paths.commit(seq)]
    for first, instant in (
        (retention["horizon"] + 1, retention["instant"]),
        (retention["first"], "20990101000000000"),
    ):
        storage.delete(paths.commit(seq))
        header = {**record.header, "retention": {**retention, "first": first, "instant": instant}}
        assert commit_log.append(storage, commit_log.CommitRecord(seq, header, record.tables))
        with pytest.raises(Corrupt, match="checkpoint|such object"):
            archiving.archive(Metadata(storage))
        assert log_paths == [
            path for path in names(table) if "/log/" in path and path != paths.commit(seq)
        ]


def test_check_accepts_an_index_build_whose_start_was_archived():
    table, past = grown(3, **{"mdt.metadata.compact.records": 1000})
    table.create_index(["bitmap(ts)"], mode="async")
    start_seq = table.metadata.compact().seq
    table.build_indexes()
    table.metadata.compact()
    for n in range(2 * ARCHIVE_RECORDS):
        upsert(table, past, range(4), 1000 + n)
    table.clean(retain_commits=2)
    assert table.snapshot().retention.first == start_seq + 1, "a precondition of this test"
    assert_clean(table.storage)


def _act_before_each_look(monkeypatch, act):
    """Call ``act`` whenever a check has taken its snapshot and is about to look at the table. Return the
    list that receives the seqs of these snapshots.
    """
    seqs = []

    def act_and_walk(state, progress):
        seqs.append(state.snapshot.seq)
        act()
        return walk(state, progress)

    monkeypatch.setattr("mdt.services.checking.check.walk", act_and_walk)
    return seqs


def test_check_reports_damage_but_not_deleted_files_during_repeated_cleanings(
    monkeypatch,
):
    table, past = grown(20)
    storage = table.storage
    marker = next(
        info.path for info in storage.list("") if info.path.endswith(".hoodie_partition_metadata")
    )
    storage.replace(marker, b"partitionDepth=7\n")

    def commit_and_clean():
        upsert(mdt.open(storage), past, range(4), 1000 + len(past))
        mdt.open(storage).clean(retain_commits=1)

    seqs = _act_before_each_look(monkeypatch, commit_and_clean)
    assert [problem.path for problem in table.check().problems] == [marker]
    assert len(seqs) == 3

"""Readers, writers and archives that meet a cleaning of others, or a forged one."""

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
def test_what_others_do_beside_a_check_that_has_begun_is_no_damage(is_cleaning, looks, monkeypatch):
    """A commit to a table whose log is short, and a cleaning, after which it looks again."""
    table, past = grown(20)
    if not is_cleaning:
        _cleaned(table.storage, past)
    other, acts = mdt.open(table.storage), iter(range(1))

    def act():
        for _ in acts:
            upsert(other, past, range(4), 5000)
            if is_cleaning:
                _cleaned(table.storage, past)

    seqs = _before_each_look(monkeypatch, act)
    report = table.check()
    assert (report.ok, len(seqs)) == (True, looks), str(report)
    assert table.snapshot().retention.first, "the premise of this test"


@pytest.fixture(autouse=True)
def _archived_early(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", ARCHIVE_RECORDS)


def _cleaned(storage, past):
    """Upsert, compact the metadata and clean until every older checkpoint has gone."""
    writer = mdt.open(storage)
    for n in range(20):
        upsert(writer, past, range(4), 1000 + n)
    writer.clean(retain_commits=2)


def test_a_process_opens_a_table_whose_checkpoint_is_cleaned_at_that_moment(
    monkeypatch,
):
    table, past = grown(20)
    upsert(table, past, range(4), 500)
    found = list[Snapshot]()

    def meanwhile(snapshot, record):
        if not found:
            found.append(snapshot)
            _cleaned(table.storage, past)
        return apply(snapshot, record)

    with monkeypatch.context() as patch:
        patch.setattr("mdt.metadata.metadata.apply", meanwhile)
        reader = mdt.open(table.storage)
    assert found[0].checkpoint.seq not in reader._metadata.checkpoints.listed(), (
        "the premise of this test"
    )
    assert as_state(reader.scan().to_arrow()) == past[max(past)]
    assert reader.check().ok


def test_who_stands_on_a_checkpoint_that_goes_takes_a_newer_one():
    table, past = grown(20)
    slow = mdt.open(table.storage, {"mdt.metadata.compact.records": 30})
    for n in range(10):
        upsert(table, past, range(4), 500 + n)
    seq = slow.snapshot().seq
    scan = slow.scan("fare > 0")
    with table.leased():
        _cleaned(table.storage, past)
        assert slow.snapshot().retention.horizon <= seq, (
            "the lease keeps the state, though not what it was read from"
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
def test_of_two_archivings_at_once_neither_fails(monkeypatch, step, others):
    table, past = grown(20)
    with monkeypatch.context() as patch:
        patch.setattr("mdt.services.reclaiming.archiving.archive", lambda metadata: 0)
        table.clean(retain_commits=3)
    went, done = getattr(archiving, step), []

    def meanwhile(metadata, snapshot):
        if not done:
            done.append(step)
            if others == "archive":
                archiving.archive(Metadata(table.storage))
            else:
                _cleaned(table.storage, past)
        went(metadata, snapshot)

    monkeypatch.setattr(archiving, step, meanwhile)
    archiving.archive(Metadata(table.storage))
    assert done and mdt.open(table.storage).check().ok
    assert mdt.open(table.storage).history()["seq"].to_pylist() == list(
        range(mdt.open(table.storage).snapshot().seq + 1)
    )


def test_who_looks_for_leftovers_beside_a_cleaning_finds_them(
    monkeypatch,
):
    table, past = grown(20)
    went, done = references.all_paths, []

    def meanwhile(metadata, snapshot):
        if not done:
            done.append(snapshot)
            _cleaned(table.storage, past)
        return went(metadata, snapshot)

    monkeypatch.setattr(references, "all_paths", meanwhile)
    assert not leftovers.find(Metadata(table.storage)).unknown
    assert done[0].retention.first < mdt.open(table.storage).snapshot().retention.first


def test_a_cleaning_whose_record_was_forged_takes_nothing_out_of_the_log():
    table, _ = grown(20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mdt.services.reclaiming.archiving.archive", lambda metadata: 0)
        table.clean(retain_commits=3)
    seq, storage = table.snapshot().seq, table.storage
    record = commit_log.read(storage, seq)
    told = record.header["retention"]
    kept = [path for path in names(table) if "/log/" in path and path != paths.commit(seq)]
    for first, instant in (
        (told["horizon"] + 1, told["instant"]),
        (told["first"], "20990101000000000"),
    ):
        storage.delete(paths.commit(seq))
        header = {**record.header, "retention": {**told, "first": first, "instant": instant}}
        assert commit_log.append(storage, commit_log.CommitRecord(seq, header, record.tables))
        with pytest.raises(Corrupt, match="checkpoint|such object"):
            archiving.archive(Metadata(storage))
        assert kept == [
            path for path in names(table) if "/log/" in path and path != paths.commit(seq)
        ]


def test_the_end_of_a_build_of_an_index_whose_beginning_has_left_the_log_is_no_damage():
    table, past = grown(3, **{"mdt.metadata.compact.records": 1000})
    table.create_index(["bitmap(ts)"], mode="async")
    begun = table.metadata.compact().seq
    table.build_indexes()
    table.metadata.compact()
    for n in range(2 * ARCHIVE_RECORDS):
        upsert(table, past, range(4), 1000 + n)
    table.clean(retain_commits=2)
    assert table.snapshot().retention.first == begun + 1, "the premise of this test"
    assert_clean(table.storage)


def _before_each_look(monkeypatch, act):
    """Do ``act`` whenever a check has taken its snapshot and begins to look; return the list that
    the seqs of these will be in.
    """
    seqs = []

    def looked(state, progress):
        seqs.append(state.snapshot.seq)
        act()
        return walk(state, progress)

    monkeypatch.setattr("mdt.services.checking.check.walk", looked)
    return seqs


def test_damage_is_found_though_others_clean_all_the_time_and_what_they_take_is_not(
    monkeypatch,
):
    table, past = grown(20)
    storage = table.storage
    marker = next(
        info.path for info in storage.list("") if info.path.endswith(".hoodie_partition_metadata")
    )
    storage.replace(marker, b"partitionDepth=7\n")

    def cleaned():
        upsert(mdt.open(storage), past, range(4), 1000 + len(past))
        mdt.open(storage).clean(retain_commits=1)

    seqs = _before_each_look(monkeypatch, cleaned)
    assert [problem.path for problem in table.check().problems] == [marker]
    assert len(seqs) == 3

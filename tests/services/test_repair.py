"""Repair: damaged objects are restored or rebuilt, and lost data are reported."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.commit.transaction import run
from mdt.limits import LATE_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.services.checking import keys
from mdt.services.checking.data_files import check_past
from mdt.services.checking.keys import KeyBuild
from mdt.services.checking.problems import Kind, Problem, RepairReport
from mdt.services.checking.state import Repair, TableState
from mdt.stores.storage import MemoryStorage


def is_complete(table):
    """Return whether another process finds no problem and all rows."""
    reopened = mdt.open(table.storage)
    return reopened.check().ok and reopened.scan().count() == 400


SCHEMA = columns("id string, few int64, v float64")


def rows(ids, v=1.0):
    return pa.table(
        [[f"k{i}" for i in ids], [i % 40 for i in ids], [v + i for i in ids]], schema=SCHEMA
    )


def filled_table(key_index="record", **more):
    options = {"mdt.services.auto": False, "mdt.metadata.compact.records": 64}
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        key_index=key_index,
        indexes=["bitmap(few)"],
        options=options,
        **more,
    )
    table.bulk_insert(rows(range(400)))
    table.upsert(rows(range(0, 400, 5), 7.0))
    return table


def flip_bit(storage, path, at=-1):
    data = bytearray(storage.read(path))
    data[at if at >= 0 else len(data) // 2] ^= 4
    storage.replace(path, bytes(data))


def test_repairing_an_undamaged_table_reports_and_commits_nothing():
    table = filled_table()
    seq = table.snapshot().seq
    report = table.repair()
    assert report.ok and str(report) == "nothing is damaged" and table.snapshot().seq == seq
    assert repr(report) == "<mdt repair: 0 damaged, 0 rebuilt, 0 lost>"


@pytest.mark.parametrize("name", ["key_map", "page_map"])
def test_key_maps_and_page_maps_are_restored_byte_for_byte_without_a_commit(name):
    table = filled_table()
    storage, seq = table.storage, table.snapshot().seq
    stored = getattr(table.snapshot().segment(0), name)
    original = storage.read(stored.path)
    flip_bit(storage, stored.path, stored.offset + 50)
    report = mdt.repair(storage)
    assert report.ok and {problem.kind for problem in report.damaged} == {Kind.ATTACHMENT}
    assert storage.read(stored.path) == original and mdt.open(storage).snapshot().seq == seq
    assert "restored byte for byte" in str(report)


def test_repair_does_not_rebuild_a_key_index_stored_outside_the_table():
    table = filled_table("memory")
    job, seq = Repair(table.metadata), table.snapshot().seq
    keys.rebuild(job, [Problem(table.path, "misses keys", Kind.KEY_INDEX)])
    assert (table.snapshot().seq, job.rebuilt, job.lost) == (seq, [], [])


@pytest.mark.parametrize("is_tagged", [False, True])
def test_attachments_that_only_earlier_states_need_are_checked_and_restored(is_tagged):
    table = filled_table()
    storage = table.storage
    attachments = {info.path for info in storage.list(paths.ATTACHMENTS_DIR)}
    table.tag("then", 2)
    table.compact()
    table.upsert(rows(range(400), 9.0))
    table.compact()
    if is_tagged:
        table.clean(retain_commits=1)
    for path in attachments:
        storage.delete(path)
    missing = {problem.path: problem.kind for problem in table.check().problems}
    assert missing.keys() <= attachments and set(missing.values()) == {Kind.ATTACHMENT}
    report = table.repair()
    assert report.ok and {problem.path for problem in report.damaged} == missing.keys()
    assert mdt.open(storage).get(["k5", "k6"], as_of="then")["v"].to_pylist() == [12.0, 7.0]
    assert is_complete(table)


def test_a_missing_data_file_that_only_earlier_states_need_is_reported():
    table = filled_table()
    old_files = set(table.files()["name"].to_pylist())
    table.compact()
    missing = min(old_files - set(table.files()["name"].to_pylist()))
    table.storage.delete(missing)
    assert [(problem.path, problem.kind) for problem in table.check().problems] == [
        (missing, Kind.ROWS)
    ]
    (lost,) = table.repair().lost
    assert lost.path == missing and "older states" in lost.text
    assert table.scan().count() == 400


def test_check_does_not_report_files_deleted_by_a_concurrent_cleaning(
    monkeypatch,
):
    table = filled_table()
    table.compact()
    snapshot = table.snapshot()
    table.upsert(rows(range(9), 3.0))
    other = mdt.open(table.storage)
    list_ = MemoryStorage.list

    def clean_and_list(storage, prefix):
        if not prefix:
            monkeypatch.setattr(MemoryStorage, "list", list_)
            other.clean(retain_commits=1)
        return list_(storage, prefix)

    monkeypatch.setattr(MemoryStorage, "list", clean_and_list)
    assert not list(check_past(TableState(table.metadata, snapshot)))
    assert mdt.open(table.storage).snapshot().retention.horizon > snapshot.retention.horizon


def test_a_rebuilt_summary_is_used_and_stored_in_checkpoints():
    table = filled_table()
    table.metadata.compact()
    summary, *_ = [
        s
        for s in table.snapshot().index_summaries("bitmap/1(few)", table.snapshot().live_shards)
        if s
    ]
    assert not isinstance(summary, bytes)
    flip_bit(table.storage, summary.path, summary.offset + summary.length - 2)
    assert not mdt.open(table.storage).check().ok
    assert table.repair().ok
    for _ in range(2):
        snapshot = table.snapshot()
        current = snapshot.index_summaries("bitmap/1(few)", snapshot.live_shards)
        assert summary not in current and None not in current
        assert snapshot.summary_table("bitmap/1(few)")["path"].to_pylist() == [
            getattr(stored, "path", None) for stored in current
        ]
        assert table.check().ok and table.scan("few = 7").count() == 10
        table.metadata.compact()


@pytest.mark.parametrize("key_index", ["record", "bloom"])
def test_a_damaged_key_part_is_replaced_by_a_new_part_with_all_keys(
    key_index,
):
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], key_index=key_index, options={"mdt.services.auto": False}
    )
    table.bulk_insert(rows(range(80_000)))
    (part,) = table.snapshot().key_parts
    assert part.stored is not None
    flip_bit(table.storage, part.stored.path, part.stored.offset + part.stored.length // 2)
    assert table.repair().ok
    snapshot = table.snapshot()
    assert not snapshot.uncovered and [part.stored for part in snapshot.key_parts] != [part.stored]
    assert len(snapshot.key_parts) == 1 and table.check().ok
    table.metadata.compact()
    assert not table.snapshot().uncovered and len(table.snapshot().key_parts) == 1
    assert table.upsert(rows(range(79_999, 80_001))).updated == 1 and table.check().ok


def test_a_key_build_replaces_the_key_parts_of_the_given_file_groups():
    table = filled_table()
    table.metadata.compact()
    (part,) = table.snapshot().key_parts
    groups = table.snapshot().file_groups.all_names()
    run(table.metadata, KeyBuild(table.metadata, table.options, groups))
    snapshot = table.snapshot()
    assert snapshot.known_again == set(groups) and all(
        len(key_part.groups) == 1 for key_part in snapshot.key_parts
    )
    assert part not in snapshot.key_parts and table.check().ok


def test_a_missing_record_makes_states_before_the_next_checkpoint_unreadable():
    table = filled_table()
    table.tag("early", at=1)
    table.tag("late", at=2)
    table.metadata.compact()
    seq = table.snapshot().seq
    table.upsert(rows(range(3), 9.0))
    table.storage.delete(paths.commit(2))
    report = mdt.repair(table.storage)
    table = mdt.open(table.storage)
    assert not report.ok and table.check().ok and table.scan().count() == 400
    assert f"the states after commits 0 to {seq - 1} are no longer readable" in str(report)
    assert "the tag 'late' was dropped" in str(report) and set(table.snapshot().tags.seqs) == {
        "early"
    }
    assert table.scan(as_of="early").count() == 400
    assert table.history()["seq"].to_pylist() == list(range(table.snapshot().seq + 1))
    assert table.history()["operation"].to_pylist()[:3] == ["create", "bulk_insert", "upsert"]
    with pytest.raises(mdt.Expired):
        table.scan(as_of=seq - 1)
    assert table.scan(as_of=seq).count() == 400


def test_a_process_restores_a_damaged_record_that_it_has_read_before():
    table = filled_table()
    flip_bit(table.storage, paths.commit(2))
    with pytest.raises(mdt.Corrupt, match=r"hint: mdt\.repair\(path\)"):
        mdt.open(table.storage)
    assert not mdt.repair(table.storage).rebuilt
    report = table.repair()
    assert "rebuilt from records that this process had read before" in str(report)
    assert mdt.open(table.storage).check().ok and table.scan().count() == 400


def test_a_missing_newest_record_is_reported_as_lost_and_nothing_is_changed():
    table = filled_table()
    storage = table.storage
    storage.delete(paths.commit(2))
    before = [(info.path, storage.read(info.path)) for info in storage.list("")]
    with pytest.raises(mdt.Unavailable, match="does not show its record"):
        # a record this new may only be delayed
        mdt.repair(storage)
    storage.sleep(LATE_SECONDS_MAX)
    report = mdt.repair(storage)
    assert not report.ok and "load them into a new table" in str(report)
    assert [(info.path, storage.read(info.path)) for info in storage.list("")] == before


def test_lost_rows_of_a_damaged_file_are_counted_and_other_damage_is_repaired():
    table = filled_table()
    storage = table.storage
    file = table.snapshot().segment(0)
    flip_bit(storage, file.path, 400)
    storage.delete(
        next(info.path for info in storage.list(paths.HUDI) if info.path.endswith("commit"))
    )
    report = mdt.repair(storage)
    assert [problem.kind for problem in report.lost] == [Kind.ROWS] * len(report.lost)
    assert "320 live rows are lost with it, unless a copy of the file is restored" in str(report)
    assert any(problem.kind == Kind.TIMELINE for problem in report.rebuilt)


def test_damage_that_does_not_affect_rows_is_repaired_by_rewriting_the_file():
    table = filled_table()
    snapshot = table.snapshot()
    log = next(s for s in map(snapshot.segment, snapshot.live_numbers.tolist()) if s.kind)
    flip_bit(table.storage, log.path, 10)
    assert not table.check().ok
    report = mdt.repair(table.storage)
    assert report.ok and "rewritten" in str(report) and is_complete(table)


@pytest.mark.parametrize("way", ["flip", "delete"])
def test_a_damaged_compacted_file_is_compacted_again_while_its_inputs_exist(way):
    table = filled_table(table_type="MERGE_ON_READ")
    table.compact()
    table.upsert(rows(range(5), 30.0))
    storage, snapshot = table.storage, table.snapshot()
    file = next(s for s in map(snapshot.segment, snapshot.live_numbers.tolist()) if not s.kind)
    assert file.seq == 3
    original = storage.read(file.path)
    flip_bit(storage, file.path)
    if way == "delete":
        storage.delete(file.path)
    report = mdt.repair(storage)
    assert report.ok and "compacted again" in str(report) and storage.read(file.path) == original
    assert is_complete(table)


def test_a_wrong_key_map_of_an_intact_file_is_rebuilt(monkeypatch):
    from mdt.metadata.files import key_map

    build = key_map.build

    def build_reversed(hashes, ordering):
        original = build(hashes, ordering)
        return replace(original, position=np.asarray(original.position)[::-1].copy())

    monkeypatch.setattr("mdt.metadata.files.key_map.build", build_reversed)
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.bulk_insert(rows(range(50)))
    monkeypatch.undo()
    assert [problem.kind for problem in table.check().problems] == [Kind.DERIVED]
    assert table.repair().ok and table.check().ok
    assert table.upsert(rows(range(10))).updated == 10 and table.check().ok


def test_an_invalid_claim_is_deleted_once_it_is_old():
    table = filled_table()
    path = paths.pending("20990101000000000")
    table.storage.put_if_absent(path, b"nonsense")
    assert not table.repair().ok, "it may belong to a running writer"
    table.storage.delete(path)
    table.storage.put_if_absent(paths.pending("20000101000000000"), b"nonsense")
    assert table.repair().ok and is_complete(table)


def test_lost_entries_of_the_history_are_shown_as_unknown(monkeypatch):
    monkeypatch.setattr("mdt.services.reclaiming.cleaning.ARCHIVE_RECORDS_MIN", 1)
    table = filled_table()
    for n in range(4):
        table.upsert(rows(range(9), 10.0 + n))
        table.metadata.compact()
        table.clean(retain_commits=1)
    assert table.snapshot().retention.first == 8
    for info in table.storage.list(paths.ARCHIVE_DIR):
        flip_bit(table.storage, info.path)
    report = mdt.repair(table.storage)
    (lost,) = report.lost
    assert lost.text == "the history of 4 commits up to 3 is lost; no rows are affected"
    history = mdt.open(table.storage).history()
    assert history["seq"].to_pylist() == list(range(11))
    assert history["operation"].to_pylist()[:6] == ["unknown"] * 4 + ["clean", "upsert"]
    assert is_complete(table)


def test_writers_can_commit_while_a_table_is_repaired():
    table = filled_table()
    snapshot = table.snapshot()
    for number in snapshot.live_numbers.tolist():
        page_map = snapshot.segment(number).page_map  # writers do not need page maps
        flip_bit(table.storage, page_map.path, page_map.offset + 40)
    summary = next(s for s in snapshot.index_summaries("bitmap/1(few)", snapshot.live_shards) if s)
    assert not isinstance(summary, bytes)
    flip_bit(table.storage, summary.path, summary.offset + summary.length - 2)
    with ThreadPoolExecutor(1) as pool:
        repair = pool.submit(mdt.repair, table.storage)
        for n in range(6):
            mdt.open(table.storage).upsert(rows(range(n, n + 3), 20.0 + n))
        assert repair.result().ok
    table = mdt.open(table.storage)
    assert table.check().ok and table.scan().count() == 400 and table.get("k7")["v"] == 25.0 + 7


def test_repair_refuses_tables_of_other_writers_and_directories_without_a_table(tmp_path):
    with pytest.raises(mdt.Invalid, match="is not an mdt table"):
        mdt.repair(tmp_path)
    table = filled_table()
    data = table.storage.read(paths.PROPERTIES)
    table.storage.replace(
        paths.PROPERTIES, data.replace(b"hoodie.table.version=6", b"hoodie.table.version=8")
    )
    with pytest.raises(mdt.Unsupported):
        mdt.repair(table.storage)


def test_the_repair_report_is_shown_as_html_in_notebooks():
    table = filled_table()
    flip_bit(table.storage, paths.PROPERTIES, 0)
    flip_bit(table.storage, table.snapshot().segment(0).path, 400)
    html = mdt.repair(table.storage)._repr_html_()
    assert "mdt repair" in html and "live rows are lost" in html


def test_paths_and_texts_of_a_repair_report_are_escaped_in_html():
    problem = Problem("city=<script>/a", '"&<b>', Kind.ROWS)
    html = RepairReport((problem,), (), (problem,))._repr_html_()
    assert html.count("city=&lt;script&gt;/a") == html.count("&quot;&amp;&lt;b&gt;") == 2
    assert "<script>" not in html and "<b>" not in html


@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_key_maps_of_states_before_a_rekey_are_restored(key_index):
    storage = MemoryStorage()
    table = mdt.create(storage, columns("id string, n int64"), ["id"], key_index=key_index)
    for n in range(2):
        table.upsert([{"id": f"k{i}", "n": n} for i in range(n, n + 4)])
        table.rekey()
    for info in storage.list(paths.ATTACHMENTS_DIR):
        storage.delete(info.path)
    assert mdt.repair(storage).ok and mdt.open(storage).check().ok
    for seq, n in ((1, 0), (2, 0), (3, 1), (4, 1)):
        assert mdt.open(storage).get(["k1", "k3"], as_of=seq)["n"].to_pylist() == [n, n]

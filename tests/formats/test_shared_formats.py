"""Other formats of tables that other Hudi writers also write."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from command_line import run
from delta_tables import newest_version as newest_of_delta
from format_views import VIEWS
from hidden import HiddenMetadata
from hudi_tables import ZIPS, unpacked
from hudis_rollback import roll_back
from hypothesis import given, settings
from hypothesis import strategies as st
from other_writer import OtherWriter
from reader import bag
from refusals import refused
from shared_tables import SCHEMA, batch, other_table, rows_of
from worlds import MODES

import mdt
from mdt.errors import Unsupported
from mdt.formats.keeping import shown
from mdt.services.checking.problems import Kind
from mdt.services.reclaiming.cleaning import Clean
from mdt.stores.storage import LocalStorage, MemoryStorage, open_storage
from mdt.testing.faulty import Crash, FaultyStorage

TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (6, 9)
CITIES = ("Oslo", "Rome")
BOTH = ["hudi", "delta", "iceberg"]
RETAIN = {"mdt.formats.retain.hours": 0}

kinds = pytest.mark.parametrize("table_type", TYPES)
layouts = pytest.mark.parametrize("version", VERSIONS)


def shared_table(table_type="MERGE_ON_READ", version=6, formats=BOTH, **named):
    """Return the table of another writer with some rows, the same table adopted with formats, and
    their storage.
    """
    storage = MemoryStorage()
    theirs = other_table(storage, table_type, version)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([1, 2, 20], 2))
    return theirs, mdt.adopt(storage, formats=formats, **named), storage


def assert_same_rows(storage, schema=SCHEMA, *, everywhere=True):
    """Assert that readers of each format see the same rows as ours in each commit, except where the
    other writer has cleaned its files.
    """
    t = mdt.open(storage)
    metadata, newest = t.metadata, t.metadata.newest(watched=False)
    for view in VIEWS.values():
        assert view.newest_version(storage) == newest.seq
        first = max(1, newest.retention.horizon, newest.definition.begin_of_format(view.form.name))
        for seq in range(first if everywhere else newest.seq, newest.seq + 1):
            try:
                ours = t.scan(as_of=shown(metadata, seq, newest)).to_arrow()
            except mdt.Expired:
                assert seq < newest.seq
                continue
            assert bag(view.rows(storage, schema, seq)) == bag(ours), (view.form.name, seq)


@kinds
@layouts
def test_readers_see_the_commits_of_both_writers(table_type, version):
    theirs, ours, storage = shared_table(table_type, version, key_index="record")
    assert ours.formats()["behind"].to_pylist() == [0, 0, 0]
    assert_same_rows(storage)
    theirs.upsert(batch([1, 30], 3))
    theirs.delete([{"id": 3, "city": "Oslo"}])
    theirs.upsert(batch([40], 3, "Rome"))
    ours.refresh()
    assert_same_rows(storage)
    ours.upsert(batch([1, 2, 50], 4))
    theirs.upsert(batch([2, 50], 5))
    theirs.compact()
    ours.delete([{"id": 50, "city": "Oslo"}])
    theirs.cluster(by=["v"])
    ours.upsert(batch([2, 60], 6))
    assert_same_rows(storage)
    assert rows_of(theirs) == rows_of(ours) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert ours.check().ok
    ours.compact()
    ours.clean(retain_commits=1)
    assert_same_rows(storage)
    assert ours.check().ok


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ours", "theirs"]),
        st.sampled_from(["upsert", "upsert", "delete", "compact", "cluster", "overwrite", "clean"]),
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
        st.sampled_from(CITIES),
    ),
    min_size=1,
    max_size=8,
)


@layouts
@kinds
@settings(max_examples=12)
@given(steps=STEPS)
def test_readers_see_the_rows_after_random_operations_of_two_writers(table_type, version, steps):
    storage = MemoryStorage()
    sides = {"theirs": other_table(storage, table_type, version)}
    sides["theirs"].upsert(batch([1, 2, 3], 0))
    sides["ours"] = mdt.adopt(storage, formats=BOTH)
    sides["ours"].alter(options=RETAIN)
    for number, (side, action, ids, city) in enumerate(steps, 1):
        act(sides[side], action, ids, city, number)
        sides["ours"].refresh()
        assert_same_rows(storage)
    report = sides["ours"].check()
    assert report.ok, report


def act(t, action, ids, city, number):
    if action == "upsert":
        t.upsert(batch(ids, number, city))
    elif action == "delete":
        t.delete([{"id": id, "city": city} for id in ids])
    elif action == "compact":
        t.compact()
    elif action == "cluster":
        t.cluster(by=["v"])
    elif action == "clean":
        t.clean(retain_commits=2)
    else:
        t.insert_overwrite(batch(ids, number, city))


@kinds
@layouts
def test_a_commit_that_another_writer_rolled_back_is_not_published(table_type, version):
    _, ours, storage = shared_table(table_type, version)
    begin = ours.snapshot().seq
    completed = FaultyStorage(storage.copy())
    mdt.open(completed).upsert(batch([1, 50], 9))
    log = "put_if_absent .hoodie/.mdt/log/"
    [fail_at] = [
        n for n, operation in enumerate(completed.operations, 1) if operation.startswith(log)
    ]
    with pytest.raises(Crash):
        mdt.open(FaultyStorage(storage, fail_at, "after")).upsert(batch([1, 50], 9))
    roll_back(storage)
    assert newest_of_delta(storage) == begin
    t = mdt.open(storage)
    t.refresh()
    t.upsert(batch([2], 9))
    newest = t.metadata.newest()
    assert shown(t.metadata, begin + 1, newest) == begin
    cleaning = Clean(t.metadata, t.options, horizon=begin + 1)
    assert cleaning.prepare(newest, "0" * 32).retention.horizon == begin
    assert_same_rows(storage)
    assert t.check().ok


@kinds
def test_readers_see_no_part_of_a_large_import(table_type, monkeypatch):
    theirs, ours, storage = shared_table(table_type)
    monkeypatch.setattr("mdt.importing.imported_steps.IMPORTED_FILES_PER_RECORD_MAX", 2)
    for number in range(4):
        theirs.insert_overwrite(batch([number, 70 + number], 5, f"C{number}"))
    theirs.upsert(batch([1, 2], 5))
    completed = FaultyStorage(storage.copy())
    mdt.open(completed).refresh()
    records = [
        operation
        for operation in completed.operations
        if operation.startswith("put_if_absent .hoodie/.mdt/log")
    ]
    assert len(records) > 2
    before, crashes = rows_of(ours), 0
    for n, operation in enumerate(completed.operations, 1):
        if "/log/" not in operation and "_delta_log" not in operation:
            continue
        copy = storage.copy()
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(copy, n, "after")).refresh()
        crashes += 1
        delta_rows = VIEWS["delta"].rows(copy, SCHEMA, None)
        assert bag(delta_rows) in (bag(mdt.open(copy).scan().to_arrow()), bag_of(before, ours))
        t = mdt.open(copy)
        t.upsert(batch([99], 6))
        assert_same_rows(copy)
        assert t.check().ok
    assert crashes >= 6


def bag_of(_, t):
    return bag(t.scan(as_of=t.metadata.newest(watched=False).seq).to_arrow())


@kinds
@layouts
def test_a_crash_at_any_change_beside_another_writer_is_recovered(table_type, version):
    theirs, _, storage = shared_table(table_type, version)
    theirs.upsert(batch([4, 40], 3))
    fail_at, has_crashed = 0, True
    while has_crashed:
        fail_at += 1
        for mode in MODES[:1]:
            copy = storage.copy()
            try:
                mdt.open(FaultyStorage(copy, fail_at, mode)).upsert(batch([1, 50], 7))
                has_crashed = False
            except Crash:
                pass
            if fail_at % 2:
                roll_back(copy)
            mdt.open(OtherWriter(copy)).upsert(batch([2, 60], 8))
            reopened = mdt.open(copy)
            reopened.upsert(batch([3], 9))
            reopened.abort()
            assert_same_rows(copy)
            assert rows_of(reopened) == rows_of(mdt.open(HiddenMetadata(copy)))
            report = reopened.check()
            assert report.ok, (fail_at, report)
    assert fail_at > 10


@kinds
def test_files_with_narrower_columns_are_copied_for_readers_that_do_not_convert(table_type):
    theirs, ours, storage = shared_table(table_type)
    small_column = {"small": pa.int32()}
    theirs.alter(add=small_column)
    row = {"id": 1, "city": "Oslo", "v": 9, "note": "n", "small": 7}
    theirs.upsert([row])
    ours.refresh()
    with_small = SCHEMA.append(pa.field("small", pa.int32()))
    assert_same_rows(storage, with_small, everywhere=False)
    theirs.alter(widen={"small": pa.int64()})
    theirs.upsert([{**row, "id": 2, "small": 2**40}])
    ours.refresh()
    wide_schema = SCHEMA.append(pa.field("small", pa.int64()))
    assert ours.schema == wide_schema
    assert_same_rows(storage, wide_schema, everywhere=False)
    ours.upsert([{**row, "id": 3, "small": 2**41}])
    assert_same_rows(storage, wide_schema, everywhere=False)
    assert ours.check().ok


def test_formats_are_refused_while_files_have_columns_of_other_types():
    storage = MemoryStorage()
    theirs = other_table(storage, "COPY_ON_WRITE")
    theirs.alter(add={"small": pa.int32()})
    row = {"id": 1, "city": "Oslo", "v": 9, "note": "n", "small": 7}
    theirs.upsert([row])
    theirs.alter(widen={"small": pa.int64()})
    theirs.upsert([{**row, "id": 2, "city": "Rome"}])
    ours = mdt.adopt(storage)
    with pytest.raises(mdt.Invalid, match="has another type than in the table"):
        ours.alter(formats=BOTH)
    ours.insert_overwrite(ours.scan("city = 'Oslo'").to_arrow())
    ours.alter(formats=BOTH)
    assert_same_rows(storage, ours.schema)


def test_an_import_removes_a_format_that_cannot_express_a_new_column(caplog):
    theirs, ours, storage = shared_table()
    at = pa.array([1], pa.timestamp("ms", "UTC"))
    theirs.alter(add={"at": at.type})
    theirs.upsert(batch([5], 5).append_column("at", at))
    ours.refresh()
    assert "no longer has the format iceberg" in caplog.text
    assert ours.formats()["format"].to_pylist() == ["hudi", "delta"]
    assert storage.list("_delta_log") and not storage.list("metadata")
    ours.upsert(batch([6], 6).append_column("at", at))
    assert rows_of(ours) == rows_of(theirs)
    delta_rows = VIEWS["delta"].rows(storage, ours.schema, None)
    assert bag(delta_rows) == bag(ours.scan().to_arrow())
    assert ours.check().ok


def test_formats_are_behind_until_commits_of_other_writers_are_imported(tmp_path):
    storage = open_storage(tmp_path / "t")
    theirs = other_table(storage)
    theirs.upsert(batch([1, 2], 1))
    seq = mdt.adopt(tmp_path / "t", formats=BOTH).snapshot().seq
    theirs.upsert(batch([1], 2))
    t = mdt.open(tmp_path / "t")
    rows = t.formats().to_pylist()
    assert [(row["seq"], row["behind"]) for row in rows] == [(seq + 1, 0), (seq, 1), (seq, 1)]
    info = json.loads(run("info", tmp_path / "t", "--json").stdout)
    assert info["formats"] == rows
    t.refresh()
    assert not any(t.formats()["behind"].to_pylist())


def test_release_removes_other_formats():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch([1, 2], 1))
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    plan = mdt.adopt(storage, options={"mdt.formats": "hudi,delta,iceberg"}, dry_run=True)
    assert plan.formats == ("hudi", "delta", "iceberg")
    assert {info.path for info in storage.list("")} == before.keys()
    t = mdt.adopt(storage, options={"mdt.formats": "hudi,delta,iceberg"})
    assert_same_rows(storage)
    assert t.check().ok
    mdt.release(storage)
    remaining = {info.path: storage.read(info.path) for info in storage.list("")}
    assert {path: remaining[path] for path in before} == before
    assert all(path.startswith(".hoodie/") for path in remaining.keys() - before.keys())


def test_adoption_with_a_format_is_refused_if_another_program_has_a_log_there():
    storage = MemoryStorage()
    other_table(storage).upsert(batch([1], 1))
    storage.create("_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(mdt.Invalid, match="_delta_log has files already"):
        mdt.adopt(storage, formats=["hudi", "delta"])
    assert not storage.list(".hoodie/.mdt")


def test_a_table_of_ours_with_formats_publishes_the_commits_of_another_writer():
    storage = MemoryStorage()
    ours = mdt.create(storage, SCHEMA, ["id"], partition_by=["city"], formats=BOTH)
    ours.upsert(batch([1, 2, 3], 1))
    theirs = mdt.adopt(OtherWriter(storage))
    theirs.upsert(batch([2, 9], 2))
    theirs.upsert(batch([4], 2, "Rome"))
    ours.upsert(batch([3, 5], 3))
    assert rows_of(ours) == rows_of(theirs)
    assert_same_rows(storage)
    assert ours.check().ok


NOT_ADOPTED = {
    "_no_metafields": "it has no meta columns",
    "_epochmillis": "its partition paths are not made of one column of texts, or of integers",
    "_unixtimestamp": "its partition paths are not made of one column of texts, or of integers",
}
"""Parts of the names of tables that cannot be adopted, with the reasons."""


@pytest.mark.skipif(not ZIPS, reason="no fixtures")
@pytest.mark.parametrize("file", ZIPS, ids=lambda file: file.stem)
def test_formats_of_tables_that_hudi_wrote_have_the_same_rows_if_they_can_be_adopted(
    file, tmp_path
):
    path = unpacked(file, tmp_path)
    reasons = [reason for part, reason in NOT_ADOPTED.items() if part in file.stem]
    if reasons:
        refused(reasons[0], mdt.adopt, path, formats=BOTH, kind=Unsupported)
        return
    t = mdt.adopt(path, formats=BOTH)
    ours = bag(t.scan().to_arrow())
    schema, storage = t.schema, open_storage(path)
    for view in VIEWS.values():
        assert bag(view.rows(storage, schema, None)) == ours
        for reader, read_rows in view.others_rows(path, schema, None):
            assert bag(read_rows) == ours, reader
    assert not [problem for problem in t.check().problems if problem.kind is Kind.FORMAT]


@layouts
@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("records", [1, 64])
def test_pyiceberg_reads_rows_that_a_rollback_by_another_writer_restores(
    tmp_path, version, comes_back, records
):
    """pyiceberg applies all vectors in a Puffin file, regardless of the file it reads it for. With
    a checkpoint after each record, the files that were removed before are no longer in the
    metadata.
    """
    storage = LocalStorage(tmp_path, durable=False)
    theirs = other_table(storage, version=version)
    for city in CITIES:
        theirs.upsert(batch(list(range(10)), 1, city))
    options = {**RETAIN, "mdt.metadata.compact.records": records}
    ours = mdt.adopt(storage, formats=BOTH, options=options)
    theirs.upsert(batch([1, 2], 2, "Oslo"))
    before = names_of(storage)
    theirs.upsert(batch([3, 4], 3, "Rome"))
    ours.refresh()  # one Puffin file has the vectors of both commits
    if comes_back:
        theirs.insert_overwrite(batch([50], 4, "Rome"))
        ours.refresh()
    new_paths = names_of(storage) - before
    storage.delete_many(path for path in new_paths if not path.endswith(("requested", "inflight")))
    assert len(roll_back(storage)) == 1 + comes_back
    ours = mdt.open(storage)
    ours.refresh()
    assert ours.scan("v = 3").count() == 0 and ours.scan().count() == 20
    for view in VIEWS.values():
        for name, rows in view.others_rows(tmp_path, SCHEMA, None):
            assert bag(rows) == bag(ours.scan().to_arrow()), name
    assert_same_rows(storage, everywhere=False)
    assert ours.check().ok


@layouts
def test_pyiceberg_reads_files_with_a_column_that_another_writer_dropped(tmp_path, version):
    """A statement of Hudi's SQL may drop columns that its catalog does not have."""
    storage = LocalStorage(tmp_path, durable=False)
    theirs = other_table(storage, "COPY_ON_WRITE", version)
    theirs.upsert(batch(list(range(10)), 1))
    ours = mdt.adopt(storage, formats=BOTH)
    theirs.alter(add={"extra": pa.int64()})
    theirs.upsert(batch([1, 2], 2).append_column("extra", pa.array([5, 6])))
    ours.refresh()
    assert ours.scan("extra = 5").count() == 1
    theirs.alter(drop=["extra"])
    theirs.upsert(batch([20], 3, "Rome"))
    ours.refresh()
    ours.upsert(batch([1], 4, "Rome"))
    assert ours.schema.names == SCHEMA.names
    for view in VIEWS.values():
        for name, rows in view.others_rows(tmp_path, SCHEMA, None):
            assert bag(rows) == bag(ours.scan().to_arrow()), name
    assert_same_rows(storage, everywhere=False)
    assert ours.check().ok


def names_of(storage):
    """Return the paths of data files and instants."""
    paths = (info.path for info in storage.list(""))
    private = (".hoodie/.mdt/", "_delta_log/", "metadata/")
    return {path for path in paths if not path.startswith(private)}

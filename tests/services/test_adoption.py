"""Tables written in turns by mdt and another Hudi writer: adoption, import of commits, release."""

import json
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_tables import ForeignTable, parquet, record, with_meta_fields
from hidden import HiddenMetadata, is_private
from hudi_tables import FIXTURES, ZIPS, bag, fixture
from hudis_rollback import roll_back
from hypothesis import given, settings
from hypothesis import strategies as st
from other_writer import OtherWriter
from refusals import refused
from shared_tables import SCHEMA, batch, other_table, rows_of
from texts import columns

import mdt
from mdt.commit.own_files import remove_files
from mdt.errors import Unsupported
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.log_blocks import instants_of_file
from mdt.hudi.read.table_schema import schema_of_commits
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE, LOG
from mdt.services.adoption.commit_import import import_commits
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
VERSIONS = (6, 9)
CITIES = ("Oslo", "Rome")


def shared_table(table_type="MERGE_ON_READ", version=6, **arguments):
    """Return the table of another writer with some rows, the same table adopted, and the storage."""
    storage = MemoryStorage()
    theirs = other_table(storage, table_type, version)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([1, 2, 20], 2))
    return theirs, mdt.adopt(storage, **arguments), storage


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
def test_an_adopted_table_has_the_rows_keys_and_indexes(table_type, version):
    theirs, ours, storage = shared_table(
        table_type, version, indexes=["bitmap(note)"], key_index="record"
    )
    assert rows_of(ours) == rows_of(theirs)
    assert ours.get({"id": 1, "city": "Oslo"})["v"] == 2
    assert ours.get({"id": 99, "city": "Oslo"}) is None
    assert "bitmap/1(note)" in str(ours.scan("note = 'n2'").explain())
    assert ours.scan("note = 'n2'").count() == 3
    assert ours.check().ok
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)


def test_an_adoption_may_compact_log_files():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([1, 2, 20], 2))
    assert mdt.adopt(storage, compact=True, dry_run=True).compacts
    ours = mdt.adopt(storage, compact=True)
    kinds = {file["kind"] for file in ours.files().to_pylist()}
    assert kinds == {BASE}
    assert rows_of(ours) == rows_of(theirs) and ours.check().ok
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)


def test_an_adoption_writes_into_the_folder_of_mdt_only_and_a_release_deletes_it():
    storage = MemoryStorage()
    theirs = other_table(storage)
    theirs.upsert(batch([1, 2], 1))
    theirs.upsert(batch([2], 2))
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    plan = mdt.adopt(storage, dry_run=True)
    assert (plan.file_groups, plan.log_files) == (1, 1) and plan.base_bytes and plan.log_bytes
    assert 0 < plan.seconds < 60 and not plan.compacts
    assert {info.path for info in storage.list("")} == before.keys()
    mdt.adopt(storage)
    after = {i.path: storage.read(i.path) for i in storage.list("") if not is_private(i.path)}
    assert after == before
    mdt.release(storage)
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ours", "theirs"]),
        st.sampled_from(
            ["upsert", "upsert", "delete", "compact", "cluster", "overwrite", "open", "refresh"]
        ),
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
        st.sampled_from(CITIES),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key_index", ["record", "bloom"])
@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=12)
@given(steps=STEPS)
def test_writers_that_take_turns_see_the_rows_of_each_other(table_type, key_index, version, steps):
    storage = MemoryStorage()
    sides = {"theirs": other_table(storage, table_type, version)}
    sides["theirs"].upsert(batch([1, 2, 3], 0))
    sides["ours"] = mdt.adopt(storage, key_index=key_index)
    expected = {(n, "Oslo"): 0 for n in (1, 2, 3)}
    for number, (side, action, ids, city) in enumerate(steps, 1):
        t = sides[side]
        if action == "open":
            sides[side] = t.anew()
        else:
            apply_step(t, expected, action, ids, city, number)
        for name, table in sides.items():
            rows = table.scan(columns=["id", "city", "v"]).to_arrow().to_pylist()
            assert {(r["id"], r["city"]): r["v"] for r in rows} == expected, (name, number)
            assert len(rows) == len(expected), (name, number)
        for id in ids:
            row = sides["ours"].get({"id": id, "city": city})
            assert (row and row["v"]) == expected.get((id, city))
    report = sides["ours"].check()
    assert report.ok, report


def apply_step(t, expected, action, ids, city, number):
    if action == "upsert":
        t.upsert(batch(ids, number, city))
        expected.update({(id, city): number for id in ids})
    elif action == "delete":
        t.delete([{"id": id, "city": city} for id in ids])
        for id in ids:
            expected.pop((id, city), None)
    elif action == "compact":
        t.compact()
    elif action == "cluster":
        t.cluster(by=["v"])
    elif action == "overwrite":
        t.insert_overwrite(batch(ids, number, city))
        for key in [key for key in expected if key[1] == city]:
            del expected[key]
        expected.update({(id, city): number for id in ids})
    else:
        t.refresh()


@pytest.mark.parametrize("mode", ["before", "after", "torn"])
@pytest.mark.parametrize("imports", [False, True])
@pytest.mark.parametrize("rolls_back", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_crash_of_mdt_at_any_change_leaves_the_same_rows_to_all_readers(
    table_type, version, rolls_back, imports, mode
):
    """Hudi's writers roll back instants that are not completed on their timeline, or leave them."""
    theirs, _, storage = shared_table(table_type, version)
    if imports:
        theirs.upsert(batch([4, 40], 3))
    fail_at, crashed, outcomes = 0, True, set()
    while crashed:
        fail_at += 1
        copy = storage.copy()
        crashed = write_crashes(FaultyStorage(copy, fail_at, mode))
        assert rows_of(mdt.open(copy)) == rows_of(mdt.open(HiddenMetadata(copy))), fail_at
        if rolls_back:
            roll_back(copy)
            assert rows_of(mdt.open(copy)) == rows_of(mdt.open(HiddenMetadata(copy))), fail_at
        other = mdt.open(OtherWriter(copy))
        other.upsert(batch([2, 60], 8))
        reopened = mdt.open(copy)
        rows = rows_of(reopened)
        assert rows == rows_of(other) == rows_of(mdt.open(HiddenMetadata(copy))), fail_at
        outcomes.add(reopened.get({"id": 50, "city": "Oslo"}) is not None)
        reopened.upsert(batch([3], 9))
        assert rows_of(reopened) == rows_of(other) == rows_of(mdt.open(HiddenMetadata(copy))), (
            fail_at
        )
        reopened.abort()
        report = reopened.check()
        assert report.ok, (fail_at, report)
    assert outcomes == {False, True} and fail_at > 10


def write_crashes(storage):
    try:
        mdt.open(storage).upsert(batch([1, 50], 7))
    except Crash:
        return True
    return False


def test_changes_include_those_of_the_other_writer():
    theirs, ours, _ = shared_table()
    since = ours.snapshot().seq
    theirs.upsert(batch([1, 30], 5))
    theirs.delete([{"id": 3, "city": "Oslo"}])
    ours.refresh()
    changes = ours.changes(since, columns=["id", "v"]).to_arrow().sort_by("id").to_pylist()
    assert [(row["_change"], row["id"], row["v"]) for row in changes] == [
        ("update_before", 1, 2),
        ("update_after", 1, 5),
        ("delete", 3, 1),
        ("insert", 30, 5),
    ]


def test_new_keys_are_never_written_to_log_files_which_hudis_indexes_do_not_read():
    theirs, ours, _ = shared_table(key_index="record")
    ours.upsert(batch([1, 50], 5))
    snapshot = ours.snapshot()
    files = snapshot.files.take(["kind", "inserts", "crc"], snapshot.live_numbers).to_pylist()
    written = [file for file in files if file["crc"]]
    assert written and not any(file["inserts"] for file in written if file["kind"] == LOG)
    assert rows_of(ours) == rows_of(theirs)


def test_log_files_of_another_writer_with_the_token_of_mdt_are_not_deleted():
    """Hudi's writers give a log file the token of the previous log file."""
    theirs, ours, storage = shared_table()
    theirs.upsert(batch([1], 5))
    instant = theirs.snapshot().last_instant
    ours.upsert(batch([1], 6))
    token = ours.metadata.record(ours.snapshot().seq).token
    logs = [info.path for info in storage.list("city=Oslo") if ".log." in info.path]
    written = next(path for path in logs if instants_of_file(storage, path) == {instant})
    for removed_token in (token, 77_777):
        copy = f"{written.rpartition('.log.')[0]}.log.90_1-{removed_token}-0"
        storage.create(copy, storage.read(written))
        assert remove_files(ours.metadata, "20990101000000000", removed_token, ["city=Oslo"]) == 0
        ours.abort()
        assert storage.size(copy) is not None
        storage.delete(copy)
        assert ours.check().ok
    storage.create(copy, storage.read(written))
    assert remove_files(ours.metadata, instant, 77_777, ["city=Oslo"]) == 1


def test_base_files_have_the_partition_path_bounds_that_hudis_data_skipping_needs():
    _, ours, storage = shared_table()
    ours.upsert(batch([70], 3, city="Rome"))
    (path,) = [info.path for info in storage.list("city=Rome") if info.path.endswith(".parquet")]
    group = pq.read_metadata(pa.BufferReader(storage.read(path))).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    bounds = columns["_hoodie_partition_path"].statistics
    assert (bounds.min, bounds.max) == ("city=Rome", "city=Rome")


def timeline_of(storage, instant):
    """Return the names of the files of an instant on Hudi's timeline."""
    names = [info.path.rpartition("/")[2] for info in storage.list_dir(".hoodie")]
    return [name for name in names if name.startswith(instant)]


def test_instants_that_another_writer_archived_or_restored_are_not_published_again():
    theirs, ours, storage = shared_table()
    ours.upsert(batch([1], 5))
    instant = ours.snapshot().last_instant
    theirs.upsert(batch([2], 6))
    for name in timeline_of(storage, instant):
        storage.delete(f".hoodie/{name}")
    ours.refresh()
    ours.upsert(batch([3], 7))
    ours.abort()
    assert timeline_of(storage, instant) == []


def test_check_accepts_that_other_writers_archive_commits_before_cleans():
    theirs, ours, storage = shared_table()
    ours.upsert(batch([1], 5))
    ours.clean(retain_commits=1)
    cleaned = ours.snapshot().last_instant
    ours.upsert(batch([2], 6))
    archived, newer = ours.snapshot().last_instant, theirs.upsert(batch([3], 7)).instant
    ours.refresh()
    timeline = list(storage.list_dir(".hoodie"))
    for info in timeline:
        name = info.path.rpartition("/")[2]
        if name[:17].isdigit() and name[:17] <= archived and not name.startswith(cleaned):
            storage.delete(info.path)
    assert cleaned < archived < newer
    assert timeline_of(storage, cleaned) and ours.check().ok
    ours.upsert(batch([4], 8))
    for name in timeline_of(storage, ours.snapshot().last_instant):
        storage.delete(f".hoodie/{name}")
    assert "is not on Hudi's timeline" in str(ours.check().problems)


@pytest.mark.parametrize("action", ["overwrite", "upsert", "stream"])
def test_a_commit_that_another_writer_rolled_back_has_no_effect(action):
    theirs, _, storage = shared_table()
    before = rows_of(theirs)
    write = {
        "overwrite": lambda t: t.insert_overwrite_table(batch([9], 9)),
        "upsert": lambda t: t.upsert(batch([50], 9)),
        "stream": lambda t: t.once("s", 3).upsert(batch([50], 9)),
    }[action]
    completed = FaultyStorage(storage.copy())
    write(mdt.open(completed))
    log = "put_if_absent .hoodie/.mdt/log/"
    [fail_at] = [n for n, act in enumerate(completed.operations, 1) if act.startswith(log)]
    with pytest.raises(Crash):
        write(mdt.open(FaultyStorage(storage, fail_at, "after")))
    [instant] = roll_back(storage)
    t = mdt.open(storage)
    assert rows_of(t) == before
    t.refresh()
    t.upsert(batch([60], 9))
    assert timeline_of(storage, instant) == []
    assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert t.once("s", 2).upsert(batch([70], 9)).inserted == (action != "stream")
    assert t.once("s", 3).upsert(batch([80], 9)).inserted == 1, "its batch is not committed yet"
    assert t.check().ok


def test_reads_and_writes_complete_the_key_maps_of_imported_files():
    theirs, ours, storage = shared_table(key_index="record")
    theirs.upsert(batch([77], 3))
    import_commits(mdt.open(storage).metadata)  # without reading the keys, as after a crash
    assert len(ours.metadata.newest().without_key_map)
    assert ours.get({"id": 77, "city": "Oslo"})["v"] == 3
    refused("a dry run needs", partial(ours.delete_where, "v = 3", dry_run=True), kind=Unsupported)
    assert ours.upsert(batch([77], 4)).updated == 1
    assert rows_of(ours) == rows_of(theirs)


def test_check_accepts_data_files_of_mdt_without_rows():
    theirs, ours, storage = shared_table("COPY_ON_WRITE")
    ours.upsert(batch([70], 3, city="Rome"))
    ours.delete([{"id": 70, "city": "Rome"}])
    assert [0] in ours.files()["row_group_rows"].to_pylist()
    assert mdt.open(HiddenMetadata(storage)).check().ok
    theirs.upsert(batch([1], 4))
    assert mdt.open(storage).check().ok


def test_instants_refer_to_hudis_timeline_before_and_after_an_import():
    theirs, ours, _ = shared_table()
    theirs.upsert(batch([30], 5))
    instant, expected = theirs.snapshot().last_instant, rows_of(theirs)
    theirs.upsert(batch([31], 6))
    for _ in range(2):
        assert bag(ours.scan(as_of=instant).to_arrow()) == expected
        assert ours.changes(instant, columns=["id"]).to_arrow()["id"].to_pylist() == [31]
        assert ours.scan(as_of=1).count() == 11, "numbers still refer to commits of mdt"
        ours.refresh()
    refused("a point of Hudi's timeline", ours.restore, instant, kind=Unsupported)


def test_rows_replaced_before_an_import_are_not_among_its_changes():
    theirs, ours, _ = shared_table()
    ours.upsert(batch([2], 3))
    ours.upsert(batch([2], 4))
    since = ours.snapshot().seq
    theirs.upsert(batch([1], 5))
    ours.refresh()
    changes = ours.changes(since, columns=["id"]).to_arrow()
    assert changes["id"].to_pylist() == [1, 1]


def test_a_table_created_by_mdt_is_not_released_even_without_its_first_record():
    storage = MemoryStorage()
    t = mdt.create(storage, columns("id int64"), ["id"])
    t.upsert([{"id": 1}])
    t.metadata.compact()
    storage.delete(paths.commit(0))
    refused("was created by mdt", mdt.release, storage)


def test_an_interrupted_release_can_be_repeated():
    theirs, _, storage = shared_table()
    with pytest.raises(Crash):
        mdt.release(FaultyStorage(storage, 4, "before"))
    refused("mdt.release(path)", mdt.adopt, storage)
    mdt.release(storage)
    assert not [info for info in storage.list("") if is_private(info.path)]
    assert rows_of(mdt.adopt(storage)) == rows_of(theirs)


def test_columns_added_by_the_first_commit_of_another_writer_are_imported():
    storage = MemoryStorage()
    ours = mdt.create(storage, SCHEMA, ["id"], partition_by=["city"], ordering="v")
    ours.upsert(batch([1, 2], 1))
    theirs = mdt.adopt(OtherWriter(storage))
    theirs.alter(add={"extra": pa.int64()})
    theirs.upsert([{"id": 1, "city": "Oslo", "v": 9, "note": "n", "extra": 7}])
    for t in ours, mdt.open(storage):
        assert t.schema.names == [*SCHEMA.names, "extra"]
        assert rows_of(t) == rows_of(theirs)


@pytest.mark.parametrize("has_savepoint", [False, True])
def test_a_cleaning_keeps_the_files_of_savepoints_of_another_writer(has_savepoint):
    theirs, ours, storage = shared_table()
    if has_savepoint:
        theirs.savepoint("kept")
    files = {info.path for info in storage.list("city=Oslo")}
    theirs.compact()
    for number in range(5, 9):
        ours.upsert(batch(list(range(10)), number))
    ours.compact()
    released = ours.clean(retain_commits=1).files
    remaining = {info.path for info in storage.list("city=Oslo")}
    assert released and (files <= remaining) == has_savepoint
    assert rows_of(ours) == rows_of(theirs) and ours.check().ok


def test_columns_that_the_other_writer_adds_are_imported():
    theirs, ours, _ = shared_table()
    theirs.alter(add={"extra": pa.int64()})
    theirs.upsert([{"id": 1, "city": "Oslo", "v": 9, "note": "n", "extra": 7}])
    assert ours.schema.names == theirs.schema.names
    assert rows_of(ours) == rows_of(theirs)
    ours.refresh()
    assert ours.schema.names == theirs.schema.names
    ours.upsert([{"id": 2, "city": "Oslo", "v": 9, "note": "n", "extra": 8}])
    assert rows_of(ours) == rows_of(theirs)
    assert ours.check().ok


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.create_index("bitmap(extra)"),
        lambda t: t.update_where({"extra": "v + 1"}, "id = 1"),
        lambda t: t.once("orders", 1).upsert(
            [{"id": 1, "city": "Oslo", "v": 9, "note": "n", "extra": 8, "more": 1}], evolve=True
        ),
        lambda t: (
            t.merge([{"id": 1, "city": "Oslo"}], on=["id", "city"])
            .when_matched()
            .update({"extra": "7"})
            .execute()
        ),
    ],
    ids=["create_index", "update_where", "evolve", "merge"],
)
def test_a_write_uses_columns_that_the_other_writer_added_just_before(write):
    theirs, ours, _ = shared_table()
    theirs.alter(add={"extra": pa.int64()})
    theirs.upsert([{"id": 1, "city": "Oslo", "v": 9, "note": "n", "extra": 7}])
    write(ours)
    assert rows_of(ours) == rows_of(theirs)
    assert ours.scan("extra = 7").count() == theirs.scan("extra = 7").count()
    assert ours.check().ok


def test_an_interrupted_import_is_continued(monkeypatch):
    theirs, ours, storage = shared_table()
    for number in range(30, 36):
        theirs.insert_overwrite(batch([number], 3, f"city {number}"))
    monkeypatch.setattr("mdt.importing.imported_steps.IMPORTED_FILES_PER_RECORD_MAX", 4)
    monkeypatch.setattr(
        "mdt.services.adoption.adopting.import_commits", partial(import_first_part, ours)
    )
    with pytest.raises(KeyboardInterrupt):
        ours.refresh()
    assert ours.metadata.newest(watched=False).imports.instants != set()
    refused("another Hudi writer has completed", ours.snapshot, kind=Unsupported)
    monkeypatch.undo()
    assert rows_of(ours) == rows_of(theirs)
    assert ours.refresh() >= 1
    assert rows_of(mdt.open(storage)) == rows_of(theirs)


def test_an_adoption_reports_its_progress_in_file_groups(monkeypatch):
    storage, counts = MemoryStorage(), []
    theirs = other_table(storage, "COPY_ON_WRITE")
    for number in range(5):
        theirs.upsert(batch([number], 1, f"city {number}"))
    monkeypatch.setattr("mdt.importing.imported_steps.IMPORTED_FILES_PER_RECORD_MAX", 4)
    monkeypatch.setattr("mdt.services.adoption.adopting.map_keys", lambda *_: None)
    mdt.adopt(storage, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(number, 5) for number in range(1, 6)]


def import_first_part(t, metadata, progress=None):
    """Commit the first part of an import, and raise KeyboardInterrupt."""
    from mdt.commit.transaction import run
    from mdt.services.adoption.commit_import import CommitImport

    result = run(metadata, CommitImport(metadata))
    assert result.plan.imports is None, "this is not the last part"
    raise KeyboardInterrupt


def test_a_table_that_mdt_created_is_not_released():
    storage = MemoryStorage()
    refused("is not adopted", mdt.release, storage)
    mdt.create(storage, SCHEMA, ["id"])
    refused("was created by mdt", mdt.release, storage)


STORED_KEY = ["_hoodie_record_key", "_hoodie_partition_path"]
needs_fixtures = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")


@needs_fixtures
@pytest.mark.parametrize(
    "name",
    [
        "cow_v6_complexkeygen_hivestyle",
        "cow_v6_nonpartitioned",
        "cow_v6_simplekeygen_nonhivestyle",
        "cow_v6_timebasedkeygen_nonhivestyle",
        "cow_v9_timebasedkeygen_nonhivestyle",
        "mor_avro_v9_timebasedkeygen_nonhivestyle",
        "mor_avro_v6_trips_8i1u",
        "mor_avro_v6_trips_8i3d",
        "mor_parquet_v6_nonpartitioned_rollback",
        "cow_v9_txns_simple_meta",
        "mor_avro_v9_txns_complex_meta",
        "mor_avro_v9_txns_nonpart_nometa",
    ],
)
def test_tables_written_by_hudi_are_adopted_and_written(name, tmp_path):
    from hudi import HudiTable

    folder = fixture(name, tmp_path)
    before = rows_of(mdt.open(folder))
    t = mdt.adopt(folder)
    assert rows_of(t) == before
    keyed = t.scan(columns=[*t.schema.names, *STORED_KEY]).to_arrow()
    keys, rows = keyed.select(STORED_KEY).to_pylist(), keyed.select(t.schema.names).slice(0, 2)
    t.upsert(rows)
    t.delete(
        rows.slice(1).select([*dict.fromkeys((*t.definition.key, *t.definition.partition_by))])
    )
    batches = HudiTable(str(folder)).read()
    assert bag(pa.Table.from_batches(batches).select(t.schema.names)) == rows_of(t)
    other_keys = [key for key in keys if key not in keys[:2]]
    assert len(rows_of(t)) == len(other_keys) + (keys[0] != keys[1]), (
        "the first of the changed rows remains unless both have the same key"
    )
    assert rows_of(mdt.open(HiddenMetadata(t.storage))) == rows_of(t)
    assert t.check().ok


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_commit_whose_instant_equals_that_of_a_private_record_is_imported(place):
    table = ForeignTable({"id": "string", "v": "int"})
    table.base(1, [{"id": "a", "v": 1}])
    t = mdt.adopt(table.storage)
    own = sorted(t.snapshot().log.private_instants)
    assert len(own) == 3, "the adoption, the import and its key maps"
    number = int(own[place][8:])
    table.log(number, table.upsert(number, [{"id": "a", "v": 2}]))
    assert t.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [2]
    t.upsert([{"id": "b", "v": 3}])
    assert sorted(t.scan(columns=["v"]).to_arrow()["v"].to_pylist()) == [2, 3]
    assert rows_of(mdt.open(HiddenMetadata(table.storage))) == rows_of(t)
    assert t.check().ok


@pytest.mark.parametrize("is_older", [False, True])
def test_required_fields_of_null_structs_may_be_null_in_files(is_older):
    """Clusterings of Hudi 0.15 write all fields as optional. Older files lack the column."""
    table = ForeignTable({"id": "string", "s": record({"x": ("int",)}, "s")})
    values = [{"x": 1}, None, {"x": 3}]
    rows = [{"id": key, "s": s} for key, s in zip("abc", values, strict=True)]
    optional = record({"id": "string", "s": record({"x": "int"}, "s")})
    if is_older:
        values, optional = [None] * 3, record({"id": "string"})
        rows = [{"id": row["id"]} for row in rows]
    table.base(1, data=parquet(table.rows(1, rows), with_meta_fields(optional)))
    t = mdt.adopt(table.storage)
    rows_read = t.scan().to_arrow()
    assert rows_read["s"].to_pylist() == values
    assert not rows_read.schema.field("s").type.field("x").nullable
    assert t.check().ok
    t.upsert(pa.Table.from_pylist([{"id": "d", "s": {"x": 4}}], t.schema))
    t.compact()
    assert t.scan().to_arrow()["s"].to_pylist() == [*values, {"x": 4}]


def test_a_null_of_another_writer_in_a_required_field_stays_null():
    table = ForeignTable({"id": "string", "s": record({"x": ("int",)}, "s")})
    optional = with_meta_fields(record({"id": "string", "s": record({"x": "int"}, "s")}))
    table.base(1, data=parquet(table.rows(1, [{"id": "a", "s": {"x": None}}]), optional))
    t = mdt.adopt(table.storage)
    assert t.scan().to_arrow()["s"].to_pylist() == [{"x": None}]


@pytest.mark.parametrize(
    ("key_type", "said"),
    [
        ("string", "key column 'id' is null in 1 rows"),
        (("string",), "1 rows of file group .* have no 'id'"),
    ],
)
def test_a_partial_row_without_an_existing_row_is_read_but_not_imported(key_type, said):
    """A MERGE of Hudi 1.2 writes such rows into tables with a bucket index."""
    table = ForeignTable({"id": key_type, "v": "int"})
    table.base(1, [{"id": "a", "v": 1}])
    t = mdt.adopt(table.storage)
    table.schema = record({"id": "string", "v": "int"})
    table.log(2, table.upsert(2, [{"id": "b", "v": 2}], fields=["v"]))
    assert t.scan("v > 0").to_arrow()["v"].to_pylist() == [1, 2]
    with pytest.raises(Unsupported, match=said):
        t.upsert([{"id": "c", "v": 3}])
    assert t.scan("v > 0", columns=["id"]).to_arrow()["id"].to_pylist() == ["a", None]


def test_check_compares_the_log_with_hudis_timeline():
    theirs, ours, storage = shared_table()
    assert ours.check().ok
    [base] = [i for i in storage.list("city=Oslo") if i.path.endswith(".parquet")][:1]
    name = base.path.rpartition("/")[2]
    _, _, rest = name.partition("_")
    forged = f"11111111-2222-4333-8444-555555555555-0_{rest}"
    storage.create(f"city=Oslo/{forged}", storage.read(base.path))
    problems = ours.check().problems
    text = "file group 11111111-2222-4333-8444-555555555555-0 has other files in the log"
    assert [str(problem) for problem in problems] == [f"city=Oslo: {text} than on Hudi's timeline"]
    storage.delete(f"city=Oslo/{forged}")
    assert ours.check().ok and rows_of(ours) == rows_of(theirs)


def test_commits_leave_required_values_of_maps_required():
    ints, numbers = {"type": "map", "values": "int"}, [[("k", 1)], [], [("l", 2)]]
    table = ForeignTable({"id": "string", "m": ints})
    table.base(1, [{"id": "a", "m": {"k": 1}}, {"id": "b", "m": {}}])
    t = mdt.adopt(table.storage)
    t.upsert(pa.table({"id": ["c"], "m": pa.array([[("l", 2)]], pa.map_(pa.string(), pa.int8()))}))
    missing = pa.array([[("k", None)]], pa.map_(pa.string(), pa.int32()))
    refused("'m.value'", t.upsert, pa.table({"id": ["a"], "m": missing}))
    fields = json.loads(schema_text(table.storage))["fields"]
    assert [field["type"] for field in fields] == [["null", "string"], ["null", ints]]
    assert t.scan().to_arrow().sort_by("id")["m"].to_pylist() == numbers
    table.schema = record({"id": "string", "m": {"type": "map", "values": ["null", "int"]}})
    table.log(9, table.upsert(9, [{"id": "a", "m": {"k": None}}]))
    numbers[0] = [("k", None)]
    for reader in (t, mdt.open(HiddenMetadata(table.storage))):
        assert reader.scan().to_arrow().sort_by("id")["m"].to_pylist() == numbers
    t.compact()
    assert t.scan().to_arrow().sort_by("id")["m"].to_pylist() == numbers
    assert t.check().ok


def schema_text(storage):
    """Return the Avro schema of the newest commit on Hudi's timeline."""
    properties = load_properties(storage)
    return schema_of_commits(storage, properties, load_timeline(storage, properties)).avro

"""Other formats of our commits. Their readers see our rows after every commit and crash."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pyarrow as pa
import pytest
from format_views import VIEWS
from pausing import Paused
from reader import bag
from worlds import COW, MODES, MOR, SCHEMA, as_state, history, make, rows, survivors

import mdt
from mdt import create_table
from mdt.errors import Unsupported
from mdt.formats import keeping
from mdt.formats.delta import places, vectors
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash

both_types = pytest.mark.parametrize("kind", [MOR, COW])


@pytest.fixture(params=VIEWS)
def view(request):
    """Each format other than Hudi."""
    return VIEWS[request.param]


@both_types
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("name", ["delta", "delta with objects", "iceberg"])
def test_readers_see_the_rows_of_every_commit_of_a_random_history(name, kind, version, monkeypatch):
    view = VIEWS[name.partition(" ")[0]]
    if name not in VIEWS:  # large vectors and many checkpoints
        monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
        monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 5)
    storage, table = view.table(kind, **{"mdt.table.version": version})
    for _ in history(table, kind, 29, retain=3):
        view.assert_same_rows(storage)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        view.assert_same_rows(storage, seq)
    assert table.check().ok


@both_types
@pytest.mark.parametrize("name", ["delta", "delta with objects", "iceberg"])
def test_after_a_crash_at_any_change_of_a_commit_readers_see_the_rows_before_or_after_it(
    name, kind, monkeypatch
):
    view = VIEWS[name.partition(" ")[0]]
    if name not in VIEWS:  # large vectors, and a checkpoint with the commit
        monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
        monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 2)

    def start():
        storage, table = view.table(kind)
        for ts in range(1, 4):
            table.upsert(rows(range(ts, ts + 4), ts, 1.0))
        return storage

    def run(storage):
        mdt.open(storage).upsert(rows([1, 2, 9], 50, 2.0))

    before = as_state(mdt.open(start()).scan().to_arrow())
    assert_recovered_after_each_crash(view, start, run, before)


def test_after_a_crash_at_any_change_of_a_cleaning_readers_see_all_rows(view):
    def start():
        storage, table = view.table()
        for ts in range(1, 5):
            table.upsert(rows(range(ts, ts + 4), ts, 1.0))
        table.compact()
        return storage

    def run(storage):
        mdt.open(storage).clean(retain_commits=1)

    before = as_state(mdt.open(start()).scan().to_arrow())
    assert_recovered_after_each_crash(view, start, run, before)


def assert_recovered_after_each_crash(view, start, run, before):
    """Assert that readers see the rows before or after ``run`` wherever it crashes, and the newest
    ones after the next write.
    """
    completed = start()
    run(completed)
    after = as_state(mdt.open(completed).scan().to_arrow())
    crashes = 0
    for where, survivor in survivors(start, run):
        crashes += 1
        assert as_state(view.rows(survivor, SCHEMA, None)) in (before, after), where
        mdt.open(survivor).abort()
        mdt.open(survivor).upsert(rows([2], 60, 3.0))
        view.assert_same_rows(survivor)
        assert mdt.open(survivor).check().ok, where
    assert crashes > 5 * len(MODES)


def test_a_crash_while_creating_a_table_leaves_no_table_or_one_that_can_be_written(view):
    def run(storage):
        make(storage, MOR, "record", **view.options)

    for where, survivor in survivors(MemoryStorage, run):
        if survivor.size(".hoodie/.mdt/log/" + "0" * 20) is None:
            continue
        mdt.open(survivor).upsert(rows([2], 60, 3.0))
        view.assert_same_rows(survivor)
        assert mdt.open(survivor).check().ok, where


@pytest.mark.parametrize("cleans", [False, True])
def test_a_publisher_that_pauses_at_any_change_does_not_corrupt_later_versions(view, cleans):
    for k in range(1, 200):
        storage, table = view.table()
        for ts in range(1, 4):
            table.upsert(rows([ts % 4, 5], ts, 1.0))
        with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
            mdt.open(storage).upsert(rows([0, 1], 50, 2.0))

        def commit_meanwhile(storage=storage):
            mdt.open(storage).abort()
            for ts in range(5):
                mdt.open(storage).upsert(rows([ts % 5], 100 + ts, 3.0))
            if cleans:
                mdt.open(storage).compact()
                mdt.open(storage).clean(retain_commits=1)

        paused = Paused(storage, commit_meanwhile)
        metadata = Metadata(paused)
        newest = metadata.newest()
        paused.operations.clear()
        paused.k = k
        try:
            keeping.keep(metadata, metadata.record(newest.seq), newest)
        except mdt.Missing:
            assert cleans, "its log files are deleted, and its version exists"
        if len(paused.operations) < k:
            break
        view.assert_same_rows(storage)
        mdt.open(storage).upsert(rows([2], 200, 4.0))
        view.assert_same_rows(storage)
        assert mdt.open(storage).check().ok
    assert k > 4


def test_concurrent_writers_publish_one_consistent_log(view):
    storage, table = view.table()

    def write(number):
        own_table = mdt.open(storage)
        for ts in range(1, 9):
            own_table.upsert(rows([10 * number + ts % 8], ts, 1.0))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert table.snapshot().seq >= 32
    view.assert_same_rows(storage)
    assert table.check().ok


def test_publishing_again_writes_the_same_bytes(view):
    storage, table = view.table(storage=MemoryStorage())
    with patch.object(vectors, "INLINE_BYTES_MAX", 10):
        table.upsert(rows(range(12), 1, 1.0))
        for ts in range(2, 6):
            table.upsert(rows([ts % 4, 7], ts, 1.0))
        paths = [info.path for folder in view.folders for info in storage.list(folder)]
        content = {path: storage.read(path) for path in paths}
        assert len(storage.list(view.folders[-1])) > 1
        storage.delete_many([path for path in paths if path != view.form.path(0)])
        metadata = Metadata(storage)
        newest = metadata.newest()
        keeping.keep(metadata, metadata.record(newest.seq), newest)
    assert {path: storage.read(path) for path in paths} == content


def test_a_version_of_another_writer_is_refused_with_its_name_and_repaired(view):
    storage, table = view.table()
    table.upsert(rows(range(4), 1, 1.0))
    seq = table.snapshot().seq
    storage.replace(view.form.path(seq + 1), view.foreign)
    with pytest.raises(Unsupported, match=r"another writer \(others-1.0\) has written "):
        table.upsert(rows([1], 2, 1.0))
    assert mdt.open(storage).snapshot().seq == seq
    [problem] = table.check().problems
    assert (problem.path, problem.kind) == (view.form.path(seq + 1), "other format")
    assert table.repair().ok
    table.upsert(rows([1], 2, 1.0))
    view.assert_same_rows(storage)


def test_a_version_of_another_writer_during_a_commit_is_refused_at_the_next_write(view):
    storage, table = view.table()
    table.upsert(rows(range(4), 1, 1.0))
    path = view.form.path(table.snapshot().seq + 1)
    keep = keeping.keep

    def put_foreign_version_then_keep(*arguments):
        if storage.size(path) is None:
            storage.replace(path, b"{}")
        keep(*arguments)

    with patch.object(keeping, "keep", put_foreign_version_then_keep):
        [warning, _] = table.upsert(rows([1], 2, 1.0)).warnings
    assert "another writer has written" in warning
    with pytest.raises(Unsupported, match="another writer has written"):
        table.upsert(rows([1], 3, 1.0))
    assert mdt.repair(storage).ok
    table.upsert(rows([1], 3, 1.0))
    view.assert_same_rows(storage)


def test_check_accepts_a_missing_version_that_the_next_writer_publishes(view):
    storage, table = view.table()
    table.upsert(rows(range(4), 1, 1.0))
    with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
        mdt.open(storage).upsert(rows([0, 1], 2, 2.0))
    reopened = mdt.open(storage)
    assert reopened.formats().to_pylist()[1] == {"format": view.form.name, "seq": 1, "behind": 1}
    assert reopened.check().ok
    reopened.upsert(rows([5], 3, 1.0))
    assert reopened.formats().to_pylist()[1] == {"format": view.form.name, "seq": 3, "behind": 0}


def test_cleaning_keeps_replaced_files_for_the_retention_time_of_other_formats(view):
    storage, table = view.table(COW, **{"mdt.formats.retain.hours": 24})
    for ts in range(1, 6):
        table.upsert(rows([1], ts, 1.0))
    assert table.clean(retain_commits=1).files == 0
    storage.sleep(25 * 3600)
    table.upsert(rows([1], 6, 1.0))
    assert table.clean(retain_commits=1).files == 4
    view.assert_same_rows(storage)


@both_types
def test_purging_leaves_no_byte_of_a_deleted_row(view, kind, monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    storage, table = view.table(kind, **{"mdt.compression": "uncompressed"})
    for ts in range(1, 4):
        table.upsert(rows([*range(100, 120), 777], ts, 1.0))
    table.delete(rows([777], 5, 1.0))
    table.purge()
    objects = [info.path for info in storage.list("")]
    assert not [path for path in objects if b"k777" in storage.read(path)]
    view.assert_same_rows(storage)
    assert table.check().ok


def test_an_upgraded_table_keeps_its_log(view):
    storage, table = view.table(**{"mdt.table.version": 6})
    table.upsert(rows(range(4), 1, 1.0))
    table.upgrade(9)
    table.upsert(rows([1, 8], 2, 1.0))
    view.assert_same_rows(storage)
    assert table.check().ok


def test_a_discarded_table_can_be_created_again(view):
    storage, _ = view.table()
    create_table.discard(storage)
    assert storage.list("") == []
    view.table(storage=storage)[1].upsert(rows([1], 1, 1.0))
    view.assert_same_rows(storage)


def test_only_column_names_and_types_that_readers_of_the_format_support_are_accepted(view):
    def refusal(**columns):
        schema = pa.schema({"id": pa.string(), **columns})
        with pytest.raises(mdt.Invalid) as caught:
            mdt.create(MemoryStorage(), schema, ["id"], formats=["hudi", view.form.name])
        return str(caught.value)

    for type in (pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.list_(pa.time64("us"))):
        assert f"the format {view.form.title}: column 'at" in refusal(at=type)
    assert "column 'fare amount' is 'fare_x20_amount' in files" in refusal(
        **{"fare amount": pa.int64()}
    )
    assert "column 's.a b'" in refusal(s=pa.struct([("a b", pa.int64())]))


def test_a_dry_run_publishes_no_version(view):
    storage, table = view.table()
    table.upsert(rows([2, 4, 6], 1, 1.0))
    before = [info.path for info in storage.list("")]
    assert table.upsert(rows([2, 8], 2, 1.0), dry_run=True).updated == 1
    assert [info.path for info in storage.list("")] == before


def test_alterations_that_readers_of_the_format_cannot_apply_are_refused(view):
    storage, table = view.table()
    table.upsert(rows(range(4), 1, 1.0))
    table.alter(add={"tip": pa.int32()})
    assert view.newest_version(storage) == 2
    more = rows([1, 9], 2, 2.0).append_column("tip", pa.array([1, 2], pa.int32()))
    table.upsert(more)
    assert bag(view.rows(storage, table.schema, None)) == bag(table.scan().to_arrow())
    for text, change in {
        "column 'charge' was 'fare'": {"rename": {"fare": "charge"}},
        "column 'tip' is int32 in older files": {"widen": {"tip": "int64"}},
        "column 'note' has a default": {"add": {"note": pa.string()}, "defaults": {"note": "-"}},
        "column 'at' has the type time64": {"add": {"at": pa.time64("us")}},
    }.items():
        with pytest.raises(mdt.Invalid, match=text):
            table.alter(**change, beyond_hudi=True)
    table.alter(drop=["tip"])
    assert bag(view.rows(storage, table.schema, None)) == bag(table.scan().to_arrow())
    with pytest.raises(mdt.Invalid, match="column 'tip' would have the values of the dropped"):
        table.alter(add={"tip": pa.int32()}, beyond_hudi=True)
    assert table.check().ok


def test_a_forged_pointer_does_not_stop_new_versions(view):
    storage, table = view.table()
    table.upsert(rows(range(3), 1, 1.0))
    storage.replace(*view.pointer)
    newest = view.form.path(table.snapshot().seq)
    storage.delete(newest)
    table.upsert(rows(range(3), 2, 2.0))
    assert storage.size(newest) is not None
    assert [row["behind"] for row in table.formats().to_pylist()] == [0, 0]
    is_mended = view.form.is_start(table.snapshot().seq)  # later commits replace the pointer
    problems = [problem.path for problem in table.check().problems]
    assert problems == ([] if is_mended else [view.pointer[0]])
    assert table.repair().ok and table.check().ok
    view.assert_same_rows(storage)

"""Other formats that are added or removed in the middle of a table's history."""

from __future__ import annotations

import json
from unittest.mock import patch

import pyarrow as pa
import pytest
from format_views import VIEWS
from pausing import Paused
from reader import bag
from worlds import COW, MODES, MOR, SCHEMA, as_state, make, rows, survivors

import mdt
from mdt.formats import keeping
from mdt.formats.twins import FOLDER as TWINS
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash

ONLY_HUDI = ["hudi"]
OFF = {"mdt.services.auto": "false", "mdt.formats.retain.hours": 0}

both_types = pytest.mark.parametrize("kind", [MOR, COW])


@pytest.fixture(params=VIEWS)
def view(request):
    """Each format other than Hudi."""
    return VIEWS[request.param]


def with_hudi(view):
    return ["hudi", view.form.name]


def create_hudi_table(kind=MOR, **options):
    storage = MemoryStorage()
    table = make(storage, kind, "record", **{**OFF, **options})
    for ts in range(1, 4):
        table.upsert(rows(range(ts, ts + 4), ts, 1.0))
    table.compact()
    return storage, table


def objects_of(view, storage):
    return [info.path for info in storage.list(view.form.folder)]


def versions(view, storage):
    return [seq for seq in range(99) if storage.size(view.form.path(seq)) is not None]


@both_types
@pytest.mark.parametrize("version", [6, 9])
def test_an_added_format_begins_with_all_files_of_its_commit(view, kind, version):
    storage, table = create_hudi_table(kind, **{"mdt.table.version": version})
    begin = table.alter(formats=with_hudi(view)).seq
    assert versions(view, storage) == [begin]
    assert table.formats().to_pylist()[1] == {"format": view.form.name, "seq": begin, "behind": 0}
    for ts in range(5, 9):
        mdt.open(storage).upsert(rows(range(ts, ts + 3), ts, 2.0))
    mdt.open(storage).delete(rows([6], 9, 1.0))
    table = mdt.open(storage)
    assert view.newest_version(storage) == table.snapshot().seq
    for seq in range(begin, table.snapshot().seq + 1):
        view.assert_same_rows(storage, seq)
    assert table.check().ok
    table.compact()
    table.clean(retain_commits=1)
    view.assert_same_rows(storage)
    assert table.check().ok


@both_types
def test_a_removed_format_leaves_no_log_and_can_be_added_again(view, kind):
    storage, table = create_hudi_table(kind)
    table.alter(formats=with_hudi(view))
    table.upsert(rows(range(6), 5, 2.0))
    table.alter(formats=ONLY_HUDI)
    assert objects_of(view, storage) == []
    assert table.formats()["format"].to_pylist() == ["hudi"]
    table.upsert(rows(range(3), 6, 2.0))
    assert objects_of(view, storage) == [] and table.check().ok
    table.compact()
    table.clean(retain_commits=1)
    assert storage.list(TWINS) == []
    begin = table.alter(formats=with_hudi(view)).seq
    table.upsert(rows(range(2, 9), 7, 2.0))
    assert versions(view, storage) == [begin, begin + 1]
    view.assert_same_rows(storage)
    assert table.check().ok


def test_check_reports_files_of_a_publisher_that_resumes_after_the_format_was_removed(view):
    storage, table = create_hudi_table()
    begin = table.alter(formats=with_hudi(view)).seq
    leftovers = {path: storage.read(path) for path in objects_of(view, storage)}
    table.alter(formats=ONLY_HUDI)
    assert table.check().ok
    for path, content in leftovers.items():
        storage.put_if_absent(path, content)
    problems = table.check().problems
    assert {problem.path for problem in problems} == set(leftovers)
    assert all("no longer has; delete it" in problem.text for problem in problems)
    table.upsert(rows(range(3), 9, 2.0))
    table.clean(retain_commits=1)
    assert table.snapshot().retention.horizon > begin
    assert set(objects_of(view, storage)) == set(leftovers)  # they could belong to another program
    storage.delete_many(leftovers)
    table.compact()
    assert table.alter(formats=with_hudi(view)).seq > begin + 2
    view.assert_same_rows(storage)
    assert table.check().ok


def test_publishing_the_first_version_again_writes_the_same_bytes(view):
    storage, table = create_hudi_table()
    table.alter(formats=with_hudi(view))
    content = {path: storage.read(path) for path in objects_of(view, storage)}
    assert len(content) >= 3
    storage.delete_many(content)
    metadata = Metadata(storage)
    newest = metadata.newest()
    keeping.keep(metadata, metadata.record(newest.seq), newest)
    assert {path: storage.read(path) for path in content} == content


def test_a_crash_at_any_change_of_the_commit_that_adds_a_format_is_recovered(view):
    def start():
        return create_hudi_table()[0]

    def run(storage):
        mdt.open(storage).alter(formats=with_hudi(view))

    assert_recovered_after_each_crash(view, start, run)


def assert_recovered_after_each_crash(view, start, run):
    """Assert that readers of the format see a committed snapshot or no table wherever ``run``
    crashes. After the next write they see all rows, or the format has no objects left.
    """
    table = mdt.open(start())
    seqs = range(table.snapshot().seq + 1)
    states = [as_state(table.scan(as_of=seq).to_arrow()) for seq in seqs]
    final_formats, crashes = set(), 0
    for where, survivor in survivors(start, run):
        crashes += 1
        if versions(view, survivor):
            assert as_state(view.rows(survivor, SCHEMA, None)) in states[-2:], where
        mdt.open(survivor).abort()
        table = mdt.open(survivor)
        table.upsert(rows([2], 60, 3.0))
        final_formats.add(table.definition.other_formats)
        if table.definition.other_formats:
            view.assert_same_rows(survivor)
        else:
            assert objects_of(view, survivor) == [], where
        assert table.check().ok, where
    assert crashes > 5 * len(MODES) and len(final_formats) == 2


def test_a_crash_at_any_change_of_the_commit_that_removes_a_format_is_recovered(view):
    def start():
        storage, table = create_hudi_table()
        table.alter(formats=with_hudi(view))
        table.upsert(rows([1, 9], 5, 2.0))
        return storage

    def run(storage):
        mdt.open(storage).alter(formats=ONLY_HUDI)

    assert_recovered_after_each_crash(view, start, run)


@pytest.mark.parametrize("adds", [True, False], ids=["adds", "removes"])
def test_a_paused_publisher_does_not_corrupt_a_format_that_is_added_later(view, adds):
    for k in range(1, 200):
        storage, table = create_hudi_table()
        if not adds:
            table.alter(formats=with_hudi(view))
            table.upsert(rows([1, 9], 5, 2.0))
        with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
            mdt.open(storage).alter(formats=with_hudi(view) if adds else ONLY_HUDI)

        def commit_meanwhile(storage=storage):
            mdt.open(storage).abort()
            mdt.open(storage).upsert(rows([3], 50, 3.0))
            for formats in (ONLY_HUDI, with_hudi(view)):
                mdt.open(storage).compact()
                mdt.open(storage).alter(formats=formats)
            mdt.open(storage).upsert(rows([4], 60, 3.0))

        paused = Paused(storage, commit_meanwhile)
        metadata = Metadata(paused)
        newest = metadata.newest()
        paused.operations.clear()
        paused.k = k
        keeping.keep(metadata, metadata.record(newest.seq), newest)
        if len(paused.operations) < k:
            break
        view.assert_same_rows(storage)
        mdt.open(storage).upsert(rows([2], 200, 4.0))
        view.assert_same_rows(storage)
        report = mdt.open(storage).check()
        assert report.ok, (k, paused.operations[k - 1], report)
    assert k > 2


def test_a_writer_that_began_before_the_formats_changed_publishes_the_new_format(view):
    storage, table = create_hudi_table()
    slow = mdt.open(storage)
    snapshot = slow.snapshot()
    table.alter(formats=with_hudi(view))
    assert snapshot.definition.other_formats == ()
    slow.upsert(rows([1], 9, 5.0))
    view.assert_same_rows(storage)


def test_a_format_is_refused_while_there_are_log_files_with_a_hint_to_compact(view):
    storage, table = create_hudi_table()
    table.upsert(rows(range(6), 5, 2.0))
    before = [info.path for info in storage.list("")]
    with pytest.raises(
        mdt.Invalid, match=f"{view.form.title} yet, because it has 2 log files"
    ) as caught:
        table.alter(formats=with_hudi(view))
    assert "compact()" in caught.value.hint
    assert [info.path for info in storage.list("")] == before


def test_a_format_is_refused_while_a_partition_with_an_encoded_path_has_deleted_rows(view):
    """polars returns deleted rows if a URI encodes the path of their partition."""
    storage, table = create_hudi_table()
    new_york = rows([8, 9], 5, 1.0).set_column(1, "city", pa.array(["New York"] * 2))
    table.upsert(new_york)
    table.delete(new_york.slice(0, 1))
    with pytest.raises(
        mdt.Invalid, match="deleted rows in the partition 'city=New York'"
    ) as caught:
        table.alter(formats=with_hudi(view))
    assert "compact()" in caught.value.hint
    table.compact()
    table.alter(formats=with_hudi(view))
    view.assert_same_rows(storage)


def test_a_format_is_refused_until_files_with_older_columns_are_rewritten(view):
    changes = {
        "column 'charge' was 'fare'": {"rename": {"fare": "charge"}},
        "column 'n' is int32 in older files": {"widen": {"n": "int64"}},
        "column 'note' has a default": {"add": {"note": pa.string()}, "defaults": {"note": "-"}},
    }
    for text, change in changes.items():
        schema = SCHEMA.append(pa.field("n", pa.int32()))
        table = make(MemoryStorage(), COW, "record", schema, **OFF)
        more = rows(range(4), 1, 1.0).append_column("n", pa.array([1] * 4, pa.int32()))
        table.upsert(more)
        table.alter(**change, beyond_hudi=True)
        with pytest.raises(mdt.Invalid, match=f"the format {view.form.title}: {text}"):
            table.alter(formats=with_hudi(view))
        table.update_where({"ts": "ts + 1"}, "ts > 0")
        table.alter(formats=with_hudi(view))
        table.alter(add={"later": pa.int64()})
        storage = table.storage
        assert bag(view.rows(storage, table.schema, None)) == bag(table.scan().to_arrow())
        assert table.check().ok


def test_a_format_is_refused_if_a_column_has_the_name_of_a_dropped_one(view):
    _, table = create_hudi_table(COW)
    table.alter(drop=["fare"])
    table.alter(add={"fare": pa.float64()}, beyond_hudi=True)
    with pytest.raises(mdt.Invalid, match="column 'fare' would have the values of the dropped"):
        table.alter(formats=with_hudi(view))


def test_a_format_is_refused_if_it_lacks_a_column_type(view):
    table = mdt.create(
        MemoryStorage(), pa.schema({"id": pa.string(), "at": pa.time64("us")}), ["id"]
    )
    with pytest.raises(
        mdt.Invalid, match=f"the format {view.form.title}: column 'at' has the type time64"
    ):
        table.alter(formats=with_hudi(view))


def test_a_snapshot_with_columns_that_a_format_cannot_express_is_not_restored(view):
    _, table = create_hudi_table(COW)
    old = table.snapshot().seq
    table.alter(rename={"fare": "charge"}, beyond_hudi=True)
    table.update_where({"ts": "ts + 1"}, "ts > 0")
    table.alter(formats=with_hudi(view))
    with pytest.raises(
        mdt.Invalid, match=f"the format {view.form.title}: column 'fare' was 'charge'"
    ):
        table.restore(old)


def test_a_format_is_refused_if_another_program_has_a_log_there(view):
    storage, table = create_hudi_table()
    storage.put_if_absent(view.form.path(0), json.dumps({"commitInfo": {}}).encode())
    with pytest.raises(mdt.Invalid, match=f"{view.form.folder} has files already"):
        table.alter(formats=with_hudi(view))

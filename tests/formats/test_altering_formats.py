"""Formats that begin or end in the middle of a table's history."""

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
    """Each other format."""
    return VIEWS[request.param]


def both(view):
    return ["hudi", view.form.name]


def table_of_hudi(kind=MOR, **options):
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
def test_a_format_that_is_added_begins_with_all_files_of_its_commit(view, kind, version):
    storage, table = table_of_hudi(kind, **{"mdt.table.version": version})
    begin = table.alter(formats=both(view)).seq
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
def test_a_format_that_ends_leaves_no_log_and_may_begin_again(view, kind):
    storage, table = table_of_hudi(kind)
    table.alter(formats=both(view))
    table.upsert(rows(range(6), 5, 2.0))
    table.alter(formats=ONLY_HUDI)
    assert objects_of(view, storage) == []
    assert table.formats()["format"].to_pylist() == ["hudi"]
    table.upsert(rows(range(3), 6, 2.0))
    assert objects_of(view, storage) == [] and table.check().ok
    table.compact()
    table.clean(retain_commits=1)
    assert storage.list(TWINS) == []
    begin = table.alter(formats=both(view)).seq
    table.upsert(rows(range(2, 9), 7, 2.0))
    assert versions(view, storage) == [begin, begin + 1]
    view.assert_same_rows(storage)
    assert table.check().ok


def test_check_finds_what_a_paused_publisher_has_left_after_the_end(view):
    storage, table = table_of_hudi()
    begin = table.alter(formats=both(view)).seq
    left = {path: storage.read(path) for path in objects_of(view, storage)}
    table.alter(formats=ONLY_HUDI)
    assert table.check().ok
    for path, content in left.items():
        storage.put_if_absent(path, content)
    problems = table.check().problems
    assert {problem.path for problem in problems} == set(left)
    assert all("no longer has; delete it" in problem.text for problem in problems)
    table.upsert(rows(range(3), 9, 2.0))
    table.clean(retain_commits=1)
    assert table.snapshot().retention.horizon > begin
    assert set(objects_of(view, storage)) == set(left)  # another program's, for all we know
    storage.delete_many(left)
    table.compact()
    assert table.alter(formats=both(view)).seq > begin + 2
    view.assert_same_rows(storage)
    assert table.check().ok


def test_publishing_the_begin_again_puts_the_same_bytes(view):
    storage, table = table_of_hudi()
    table.alter(formats=both(view))
    content = {path: storage.read(path) for path in objects_of(view, storage)}
    assert len(content) >= 3
    storage.delete_many(content)
    metadata = Metadata(storage)
    newest = metadata.newest()
    keeping.keep(metadata, metadata.record(newest.seq), newest)
    assert {path: storage.read(path) for path in content} == content


def test_a_crash_at_any_change_of_the_commit_that_adds_a_format_is_mended(view):
    def start():
        return table_of_hudi()[0]

    def run(storage):
        mdt.open(storage).alter(formats=both(view))

    assert_mended_after_each_crash(view, start, run)


def assert_mended_after_each_crash(view, start, run):
    """Assert that Delta's readers see a state or no table wherever ``run`` crashes, and what the
    formats of the table promise after the next write.
    """
    table = mdt.open(start())
    seqs = range(table.snapshot().seq + 1)
    states = [as_state(table.scan(as_of=seq).to_arrow()) for seq in seqs]
    ends, crashes = set(), 0
    for where, survivor in survivors(start, run):
        crashes += 1
        if versions(view, survivor):
            assert as_state(view.rows(survivor, SCHEMA, None)) in states[-2:], where
        mdt.open(survivor).abort()
        table = mdt.open(survivor)
        table.upsert(rows([2], 60, 3.0))
        ends.add(table.definition.other_formats)
        if table.definition.other_formats:
            view.assert_same_rows(survivor)
        else:
            assert objects_of(view, survivor) == [], where
        assert table.check().ok, where
    assert crashes > 5 * len(MODES) and len(ends) == 2


def test_a_crash_at_any_change_of_the_commit_that_removes_a_format_is_mended(view):
    def start():
        storage, table = table_of_hudi()
        table.alter(formats=both(view))
        table.upsert(rows([1, 9], 5, 2.0))
        return storage

    def run(storage):
        mdt.open(storage).alter(formats=ONLY_HUDI)

    assert_mended_after_each_crash(view, start, run)


@pytest.mark.parametrize("adds", [True, False], ids=["adds", "removes"])
def test_a_publisher_that_pauses_spoils_no_later_begin_of_the_format(view, adds):
    for k in range(1, 200):
        storage, table = table_of_hudi()
        if not adds:
            table.alter(formats=both(view))
            table.upsert(rows([1, 9], 5, 2.0))
        with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
            mdt.open(storage).alter(formats=both(view) if adds else ONLY_HUDI)

        def others(storage=storage):
            mdt.open(storage).abort()
            mdt.open(storage).upsert(rows([3], 50, 3.0))
            for named in (ONLY_HUDI, both(view)):
                mdt.open(storage).compact()
                mdt.open(storage).alter(formats=named)
            mdt.open(storage).upsert(rows([4], 60, 3.0))

        slow = Paused(storage, others)
        metadata = Metadata(slow)
        newest = metadata.newest()
        slow.operations.clear()
        slow.k = k
        keeping.keep(metadata, metadata.record(newest.seq), newest)
        if len(slow.operations) < k:
            break
        view.assert_same_rows(storage)
        mdt.open(storage).upsert(rows([2], 200, 4.0))
        view.assert_same_rows(storage)
        report = mdt.open(storage).check()
        assert report.ok, (k, slow.operations[k - 1], report)
    assert k > 2


def test_a_writer_that_began_before_the_formats_changed_starts_again(view):
    storage, table = table_of_hudi()
    slow = mdt.open(storage)
    begun = slow.snapshot()
    table.alter(formats=both(view))
    assert begun.definition.other_formats == ()
    slow.upsert(rows([1], 9, 5.0))
    view.assert_same_rows(storage)


def test_log_files_are_refused_with_a_hint_to_compact(view):
    storage, table = table_of_hudi()
    table.upsert(rows(range(6), 5, 2.0))
    before = [info.path for info in storage.list("")]
    with pytest.raises(
        mdt.Invalid, match=f"{view.form.title} yet, because it has 2 log files"
    ) as caught:
        table.alter(formats=both(view))
    assert "compact()" in caught.value.hint
    assert [info.path for info in storage.list("")] == before


def test_deleted_rows_in_a_partition_without_log_files_are_refused(view):
    """Polars returns deleted rows where a URI encodes the path of the partition."""
    storage, table = table_of_hudi()
    there = rows([8, 9], 5, 1.0).set_column(1, "city", pa.array(["New York"] * 2))
    table.upsert(there)
    table.delete(there.slice(0, 1))
    with pytest.raises(
        mdt.Invalid, match="deleted rows in the partition 'city=New York'"
    ) as caught:
        table.alter(formats=both(view))
    assert "compact()" in caught.value.hint
    table.compact()
    table.alter(formats=both(view))
    view.assert_same_rows(storage)


def test_columns_that_older_files_have_otherwise_are_refused_until_they_are_rewritten(view):
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
            table.alter(formats=both(view))
        table.update_where({"ts": "ts + 1"}, "ts > 0")
        table.alter(formats=both(view))
        table.alter(add={"later": pa.int64()})
        storage = table.storage
        assert bag(view.rows(storage, table.schema, None)) == bag(table.scan().to_arrow())
        assert table.check().ok


def test_a_column_added_under_a_dropped_name_is_refused(view):
    _, table = table_of_hudi(COW)
    table.alter(drop=["fare"])
    table.alter(add={"fare": pa.float64()}, beyond_hudi=True)
    with pytest.raises(mdt.Invalid, match="column 'fare' would have the values of the dropped"):
        table.alter(formats=both(view))


def test_types_that_the_format_lacks_are_refused(view):
    table = mdt.create(
        MemoryStorage(), pa.schema({"id": pa.string(), "at": pa.time64("us")}), ["id"]
    )
    with pytest.raises(
        mdt.Invalid, match=f"the format {view.form.title}: column 'at' has the type time64"
    ):
        table.alter(formats=both(view))


def test_a_state_whose_columns_the_format_cannot_have_is_not_restored(view):
    _, table = table_of_hudi(COW)
    old = table.snapshot().seq
    table.alter(rename={"fare": "charge"}, beyond_hudi=True)
    table.update_where({"ts": "ts + 1"}, "ts > 0")
    table.alter(formats=both(view))
    with pytest.raises(
        mdt.Invalid, match=f"the format {view.form.title}: column 'fare' was 'charge'"
    ):
        table.restore(old)


def test_a_log_of_others_is_refused(view):
    storage, table = table_of_hudi()
    storage.put_if_absent(view.form.path(0), json.dumps({"commitInfo": {}}).encode())
    with pytest.raises(mdt.Invalid, match=f"{view.form.folder} has files already"):
        table.alter(formats=both(view))

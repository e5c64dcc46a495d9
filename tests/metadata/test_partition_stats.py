"""Bounds of stripes, that is, runs of consecutive files. They prune the same files as statistics of
files, save reading pages of these, and may be damaged or missing.
"""

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore
from random_tables import QUIET, examples
from reader import bag
from texts import columns

import mdt
import mdt.errors
from benchmarks import planning
from indexes.predicate import matches
from indexes.testing import predicates
from mdt.metadata.log import checkpoint_columns
from mdt.metadata.snapshot import checkpoint
from mdt.metadata.snapshot.stored_columns import StoredColumns
from mdt.metadata.statistics.column_stats import FileStats, Stripes
from mdt.stores.storage import MemoryStorage, ObjectStorage

SCHEMA = columns("id string, p string, n int64, x double, s string")
LONG = "p" * 70


@pytest.fixture(autouse=True)
def _small_pages_and_stripes(monkeypatch):
    """Make pages of four files and stripes of up to two, so that small tables have several."""
    monkeypatch.setattr(checkpoint, "STATISTICS_PER_PAGE", 4)
    monkeypatch.setattr(checkpoint, "STRIPE_FILES_MAX", 2)
    monkeypatch.setattr(checkpoint, "STRIPE_FILES_MIN", 2)


def _options(**more):
    return {
        "mdt.max.file.bytes": 2048,
        "mdt.small.file.bytes": 0,
        "mdt.metadata.compact.records": 10_000,
        "mdt.writer.threads": 1,
        **more,
    }


_VALUES = {
    "n": st.none() | st.integers(-3, 40),
    "x": st.sampled_from((None, math.nan, -math.inf, -0.0, 0.0, 1.5, 30.0, math.inf)),
    "s": st.sampled_from((None, "", "a", LONG + "a", LONG + "b", "\U0010ffff" * 20)),
}


@st.composite
def histories(draw):
    """Draw a table with commits before and after a compaction of its metadata, and its rows.

    Each commit has keys close to each other. Some lack statistics of a column, and some rows are
    deleted or updated later.
    """
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["p"], options=_options())
    commits = draw(st.integers(3, 9))
    compaction_commit = draw(st.integers(2, commits))
    live = {}
    for n in range(commits):
        if n == compaction_commit:
            table.metadata.compact()
        keys = draw(st.sets(st.integers(4 * n, 4 * n + 5), min_size=1, max_size=4))
        stats_columns = draw(st.sampled_from(("n,x,s,id", "n", "x,s", "s,n")))
        rows = [
            {"id": f"k{k:02}", "p": f"p{k % 2}", **{c: draw(v) for c, v in _VALUES.items()}}
            for k in sorted(keys)
        ]
        is_clustered = draw(st.booleans())
        rows = [row | {"n": int(row["id"][1:])} for row in rows] if is_clustered else rows
        data = pa.Table.from_pylist(rows, schema=SCHEMA)
        mdt.open(table.storage, _options(**{"mdt.column.stats.columns": stats_columns})).upsert(
            data
        )
        live |= {row["id"]: row for row in rows}
    deleted_ids = draw(st.lists(st.sampled_from(sorted(live)), max_size=6, unique=True))
    if deleted_ids:
        table.delete(pa.table({"id": deleted_ids, "p": [live[key]["p"] for key in deleted_ids]}))
    if draw(st.booleans()):
        table.compact()
    if compaction_commit == commits:
        table.metadata.compact()
    kept_rows = [row for key, row in live.items() if key not in deleted_ids]
    return mdt.open(table.storage, _options()), pa.Table.from_pylist(kept_rows, schema=SCHEMA)


def _scan(table, predicate):
    scan = table.scan()
    scan.predicate = predicate
    return scan


def _segments_without_stripes(table, predicate):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStats, "has_stripes", False)
        return tuple(_scan(table, predicate).plan.segments)


def _notes(scan):
    return {note.index: note for note in scan.explain().indexes}


def _stripes_note(scan):
    note = _notes(scan)["partition_stats"]
    return note.used, note.reason, note.pruned


@given(data=st.data())
@examples(15, 300)
def test_a_plan_with_stripes_equals_the_plan_by_files(data):
    table, rows = data.draw(histories())
    for _ in range(8):
        predicate = data.draw(predicates(SCHEMA, rows))
        scan = _scan(table, predicate)
        assert scan.plan.segments == _segments_without_stripes(table, predicate), predicate
        assert bag(scan.to_arrow()) == bag(rows.filter(matches(predicate, rows))), predicate
        for note in scan.plan.notes:
            assert note.pruned <= note.covered <= len(scan.snapshot), note
        used = _notes(scan)["partition_stats"]
        count(
            "predicates, plan by stripes compared with the plan by files, stripes"
            f" {'used' if used.used else used.reason}"
        )


# A table with metadata of many files that do not exist

FILES = 40


def _many(storage_path):
    table = planning.make(str(storage_path), FILES)
    table.metadata.compact()
    return mdt.open(storage_path)


@pytest.fixture
def many(tmp_path):
    """Forty files on a checkpoint. The values of ``at`` in file f begin with f·ROWS."""
    return _many(tmp_path / "t")


def _read(table, name):
    checkpoint = table.snapshot().checkpoint
    assert isinstance(checkpoint, StoredColumns)
    return (part for column, part in checkpoint._recent._entries_by_key if column == name)


def test_pages_of_pruned_stripes_are_not_read(many):
    scan = many.scan(f"at = {7 * planning.ROWS}")
    assert len(scan.plan.segments) == 1
    assert set(_read(many, "stats/at")) == {1}, "files 4 to 7"
    assert _stripes_note(scan) == (True, "used", FILES - 2)
    assert many.scan(f"at = {FILES * planning.ROWS}").plan.segments == ()
    assert set(_read(many, "stats/at")) == {1}, "no stripe and so no file is left to test"
    assert set(_read(many, "stats/device")) == set()


def test_a_key_look_up_reads_only_the_statistics_of_the_file_with_the_key(many):
    many.upsert(planning._rows(0, 3))
    many.metadata.compact()
    reopened = mdt.open(many.storage)
    assert len(reopened.scan("id = 'real_00000001' and device < 100").plan.segments) == 1
    assert set(_read(reopened, "stats/device")) <= {FILES // 4}
    note = _notes(reopened.scan("id = 'nobody' and device < 100"))["column_stats"]
    assert (note.used, note.reason) == (False, "nothing_left")


def test_a_plan_after_a_commit_reuses_the_statistics_of_the_checkpoint(many):
    where = "device >= 0 and fare > 1"
    assert len(many.scan(where).plan.segments) == FILES
    checkpoint = many.snapshot().checkpoint
    assert isinstance(checkpoint, StoredColumns)
    for n in range(4):
        many.upsert(planning._rows(n, 2))
        misses = checkpoint.misses, checkpoint.statistics_misses
        assert len(many.scan(where).plan.segments) == FILES
        assert many.snapshot().checkpoint is checkpoint
        assert (checkpoint.misses, checkpoint.statistics_misses) == misses, (
            "no statistics are read or decoded again"
        )
    added = many.scan("device = -1").plan.segments
    assert added and all(scan.file >= FILES for scan in added), "added files are tested, too"
    many.delete(pa.table({"id": ["real_00000000"]}))
    assert many.scan("device = -1 and id = 'real_00000000'").plan.segments == ()


def _damage(table, column):
    """Flip a byte of a page of ``column`` on disk."""
    checkpoint = table.snapshot().checkpoint
    assert isinstance(checkpoint, StoredColumns)
    path, offset, length, _ = checkpoint._layout.page(checkpoint._layout.columns[column].first)
    data = bytearray(table.storage.read(path))
    data[offset + length // 2] ^= 1
    table.storage.replace(path, bytes(data))


@pytest.mark.parametrize("column", ["stripe_start", "partition_stats/at"])
def test_damaged_stripes_cost_time_but_no_rows_and_are_reported(many, column):
    where = f"at >= {5 * planning.ROWS} and at < {7 * planning.ROWS}"
    expected = many.scan(where).plan.segments
    _damage(many, column)
    reopened = mdt.open(many.storage)
    scan = reopened.scan(where)
    assert scan.plan.segments == expected and len(expected) == 2
    assert _stripes_note(scan) == (False, "damaged", 0)
    assert "damaged" in _notes(scan)["partition_stats"].detail
    assert _notes(scan)["column_stats"].pruned == FILES - 2
    assert not reopened.metadata._records, "the log is not read"
    assert reopened.metadata.damage is not None, "the next compaction writes another checkpoint"
    assert not reopened.check().ok


def test_damaged_statistics_of_files_disable_stripes(many):
    _damage(many, "stats/at")
    reopened = mdt.open(many.storage)
    for file in (0, 9):
        assert len(reopened.scan(f"at = {file * planning.ROWS}").plan.segments) == 1
    assert _stripes_note(reopened.scan("at = 5"))[1] == "damaged"


@pytest.mark.parametrize("lie", ["short", "falling", "other rows"])
def test_impossible_stripes_are_ignored_and_reported_as_damaged(many, lie, monkeypatch):
    optional = StoredColumns.optional

    def return_impossible_stripes(self, name):
        table = optional(self, name)
        if name == "stripe_start" and lie == "falling":
            return table.take(pa.array(np.arange(len(table))[::-1]))
        if name == "stripe_start" and lie == "short":
            return table.slice(0, len(table) - 1)
        return table.slice(1) if lie == "other rows" and name == "partition_stats/at" else table

    monkeypatch.setattr(StoredColumns, "optional", return_impossible_stripes)
    scan = many.scan("at = 5")
    assert len(scan.plan.segments) == 1 and _stripes_note(scan)[1] == "damaged"


def test_a_checkpoint_of_an_older_version_is_read_without_stripes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "STATISTICS_PER_PAGE", FILES)
    table = _many(tmp_path / "t")
    old_checkpoint = table.snapshot().checkpoint
    assert "stripe_start" not in old_checkpoint and not old_checkpoint.names("partition_stats")
    scan = table.scan("at = 5")
    assert len(scan.plan.segments) == 1 and len(_notes(scan)["column_stats"].detail) > 0
    assert _stripes_note(scan) == (False, "no_statistics", 0)


def test_check_compares_bounds_of_stripes_with_those_of_files(tmp_path, monkeypatch):
    table = _many(tmp_path / "right")
    assert {"at", "device", "id"} <= set(table.snapshot().checkpoint.names("partition_stats"))
    table.metadata.check_checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(
            checkpoint.column_stats, "union", lambda stats, starts: stats.take(pa.array(starts))
        )
        table_with_wrong_stripes = _many(tmp_path / "wrong")
    with pytest.raises(mdt.errors.Corrupt, match="partition_stats/id"):
        table_with_wrong_stripes.metadata.check_checkpoint()


def test_a_small_memory_limit_costs_time_but_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_columns, "METADATA_CACHE_BYTES_MAX", 3_000)
    table = _many(tmp_path / "t")
    for file in range(0, FILES, 7):
        assert len(table.scan(f"at = {file * planning.ROWS}").plan.segments) == 1
        assert len(table.scan("device >= 0").plan.segments) == FILES
    checkpoint = table.snapshot().checkpoint
    assert len(checkpoint._recent._entries_by_key) <= 3
    assert set(table.scan("at = 5").explain().caches) >= {"pages", "statistics"}


def test_remote_tables_read_the_same_pages(tmp_path):
    remote = ObjectStorage("memory:///", MemoryStore())
    table = mdt.create(remote, SCHEMA, ["id"], options=_options(**{"mdt.cache.bytes.max": 0}))
    for n in range(12):
        table.upsert(pa.table([[f"k{n}"], ["p"], [n], [0.5 * n], ["s"]], schema=SCHEMA))
    table.metadata.compact()
    reopened = mdt.open(remote)
    assert reopened.scan("n = 5").to_arrow()["id"].to_pylist() == ["k5"]
    assert set(_read(reopened, "stats/n")) == {1}
    assert reopened.scan("n >= 0").count() == 12
    reopened.metadata.warm(["x"])
    assert reopened.scan("x > 100").plan.segments == ()


# Stripes without a table


@given(
    lengths=st.lists(st.integers(1, 7), max_size=20),
    files_min=st.integers(1, 4),
    files_max=st.integers(2, 6),
)
@settings(**QUIET)
def test_stripes_are_short_and_long_partitions_have_their_own(lengths, files_min, files_max):
    partition = np.repeat(np.arange(len(lengths)) % 3, lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "STRIPE_FILES_MIN", files_min)
        patch.setattr(checkpoint, "STRIPE_FILES_MAX", files_max)
        starts = checkpoint.stripe_starts(partition)
    n = len(partition)
    assert not n or starts[0] == 0
    for start, stop in pairwise([*starts.tolist(), n]):
        assert 1 <= stop - start <= files_max
        assert files_min > 1 or len(set(partition[start:stop].tolist())) == 1
    assert len(starts) <= n // files_max + 1 + 2 * (n // files_min)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    data=st.data(),
    every=st.integers(1, 7),
)
@settings(**QUIET)
def test_files_and_blocks_of_remaining_stripes_are_computed(sizes, data, every):
    drawn = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    maybe = np.array(data.draw(drawn), np.bool_)
    stripes = Stripes(np.append(0, np.cumsum(sizes)), maybe, 0)
    expected = np.repeat(maybe, sizes)
    assert stripes.files().tolist() == expected.tolist()
    assert stripes.blocks(every).tolist() == sorted(
        set((np.flatnonzero(expected) // every).tolist())
    )
    file_numbers = np.array(sorted(data.draw(st.sets(st.integers(0, len(expected) - 1)))), np.int64)
    remaining = stripes.holding(file_numbers).files()
    assert (
        remaining[file_numbers].tolist() == expected[file_numbers].tolist()
        and not (remaining & ~expected).any()
    )
    for start, stop in pairwise(stripes.starts.tolist()):
        assert remaining[start:stop].any() == (
            expected[start] and bool(((file_numbers >= start) & (file_numbers < stop)).any())
        )

"""Writes bound to a snapshot, inserts without look-up, and deletes that keep their ordering value,
beside other writers in every order and after crashes.
"""

from collections import Counter
from functools import cache

import pytest
from counting import count
from schedules import (
    DEPTH,
    KINDS,
    acting,
    checked,
    delete,
    overwrite,
    refused,
    restore,
    upsert,
    writing,
    writing_in_tasks,
)
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    OPTIONS,
    SCHEMA,
    as_state,
    assert_clean,
    filled,
    later,
    make,
    ours,
    rows,
    survivors,
    theirs,
)

import mdt
from mdt.commit.snapshot_bound import SnapshotBoundOperation
from mdt.errors import Conflict
from mdt.stores.storage import MemoryStorage
from mdt.write.blind_insert import INSERT_UNCHECKED
from mdt.write.by_name import RowWrite

TYPES = [MOR, pytest.param(COW, marks=pytest.mark.nightly)]


# Writes bound to a snapshot that they have read

READ = 1
"""The commit at which the rows were read."""


@cache
def _table_at_read(table_type):
    table = make(MemoryStorage(), table_type, None, **{"mdt.metadata.compact.records": 2})
    assert table.upsert(rows(range(4), 1, 1.0)).seq == READ
    return table.storage


def bound_writer(ids, fare):
    """A writer that has read its rows, or their absence, at the commit READ."""

    def make(metadata, definition, options):
        upserting = RowWrite(metadata, options, "upsert").in_process(rows(ids, 2, fare), definition)
        return SnapshotBoundOperation(upserting, metadata, READ, "")

    return refused(acting(f"rested {ids} {fare}", make), Conflict)


def fares_after(table_type, actors, depth):
    """Yield every schedule, and the fares in the table afterwards."""
    for run, table in checked(_table_at_read(table_type).copy, actors, depth):
        state = as_state(table.scan().to_arrow())
        yield run, {key: fare for key, (_, fare) in state.items()}


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_bound_writes_of_one_row_exactly_one_is_committed_in_every_order(depth, table_type):
    outcomes = set()
    for run, fares in fares_after(
        table_type, [bound_writer([0, 1], 2.0), bound_writer([0, 2], 3.0)], depth
    ):
        first, second = run.ended[0].refused, run.ended[1].refused
        assert bool(first) != bool(second), run.schedule
        assert "depends on rows that were read at commit 1" in first + second
        changed = {"k0": 3.0, "k2": 3.0} if first else {"k0": 2.0, "k1": 2.0}
        assert fares == dict.fromkeys(("k0", "k1", "k2", "k3"), 1.0) | changed
        outcomes.add(bool(first))
    assert outcomes == {True, False}


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    ("other", "fare"), [(upsert([0], 3, 5.0), 5.0), (delete([0]), None)], ids=["upsert", "delete"]
)
def test_a_bound_write_never_overwrites_a_later_commit(other, fare, depth):
    for run, fares in fares_after(MOR, [bound_writer([0], 2.0), other], depth):
        assert run.ended[1].seq > 0 and fares.get("k0") == fare, run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_bound_writes_of_an_absent_key_exactly_one_is_committed(depth):
    for run, fares in fares_after(MOR, [bound_writer([20], 2.0), bound_writer([20], 3.0)], depth):
        committed = [fare for n, fare in enumerate((2.0, 3.0)) if not run.ended[n].refused]
        assert committed == [fares["k20"]], run.schedule


def test_a_bound_write_ignores_commits_to_other_file_groups():
    for run, fares in fares_after(
        MOR, [bound_writer([0], 2.0), upsert([1], 2, 5.0), bound_writer([3], 4.0)], 1
    ):
        assert not run.ended[0].refused  # k1 and k3 are in one file group
        last = 1.0 if run.ended[2].refused else 4.0
        assert fares == {"k0": 2.0, "k1": 5.0, "k2": 1.0, "k3": last}


def test_without_the_check_of_later_commits_a_change_would_be_lost(monkeypatch):
    prepare = lambda self, snapshot, txn: self.operation.prepare(snapshot, txn)
    monkeypatch.setattr(SnapshotBoundOperation, "prepare", prepare)
    runs = [run for run, _ in fares_after(MOR, [bound_writer([0], 2.0), bound_writer([0], 3.0)], 1)]
    assert any(len(run.done()) == 2 for run in runs)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_bound_write_retried_after_a_crash_is_committed_once(table_type):
    def run(storage):
        mdt.open(storage).resting_on(READ).update_where({"fare": "fare + 1"}, "id = 'k0'")

    for where, storage in survivors(_table_at_read(table_type).copy, run):
        count("crash points")
        later(storage)
        try:
            run(storage)
        except Conflict:
            assert mdt.open(storage).snapshot().seq > READ, where
        table = mdt.open(storage)
        assert as_state(table.scan().to_arrow())["k0"][1] == 2.0 and table.check().ok, where


# Inserts without look-up

EXISTING, ABSENT = 0, 20
"""Even numbers of a key that exists in the table, and of a key that does not."""


@cache
def _table_with_repeats(table_type):
    options = {**OPTIONS, "mdt.keys.repeat": True}
    settings = {"partition_by": ["city"], "table_type": table_type, "options": options}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], **settings)
    table.upsert(rows(range(4), 1, 1.0))
    return table.storage


def count_by_row(table):
    """Return the number of occurrences of each (id, fare) in a table."""
    rows_found = table.scan(columns=["id", "fare"]).to_arrow().to_pylist()
    return Counter((row["id"], row["fare"]) for row in rows_found)


UNCHECKED = writing("insert unchecked", rows([EXISTING, ABSENT], 1, 5.0), INSERT_UNCHECKED)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        (upsert([EXISTING, ABSENT], 1, 7.0), 7.0),
        (delete([EXISTING, ABSENT]), None),
        (overwrite([EXISTING, ABSENT], 1, 7.0), 7.0),
        (UNCHECKED, 5.0),
    ],
    ids=["upsert", "delete", "overwrite", "insert unchecked"],
)
def test_an_insert_without_look_up_beside_another_write_has_a_serial_result(other, stays):
    outcomes = set()
    for run, table in checked(_table_with_repeats(MOR).copy, [UNCHECKED, other], 1):
        inserted_last = run.ended[0].seq > run.ended[1].seq
        expected = Counter()
        for key in ("k0", "k20"):
            expected[key, 5.0] += inserted_last or other is UNCHECKED
            expected[key, stays] += stays is not None
        counts = count_by_row(table)
        counts_of_keys = {
            (key, fare): counts[key, fare] for key in ("k0", "k20") for fare in (5.0, 7.0)
        }
        assert Counter(counts_of_keys) == expected, run.schedule
        outcomes.add(inserted_last)
    assert outcomes == {False, True}


@pytest.mark.parametrize("table_type", TYPES)
def test_an_insert_without_look_up_is_atomic_after_a_crash(table_type):
    def run(storage):
        mdt.open(storage).insert(rows([EXISTING, ABSENT], 1, 5.0), check=False)
        mdt.open(storage).upsert(rows([EXISTING], 1, 6.0))

    before = count_by_row(mdt.open(_table_with_repeats(table_type)))
    after_insert = before + Counter({("k0", 5.0): 1, ("k20", 5.0): 1})
    after = after_insert - Counter({("k0", 1.0): 1, ("k0", 5.0): 1}) + Counter({("k0", 6.0): 1})
    for where, storage in survivors(_table_with_repeats(table_type).copy, run):
        count("crash points")
        counts = count_by_row(mdt.open(storage))
        assert counts in (before, after_insert, after), where
        table = mdt.open(later(storage))
        table.abort()
        assert count_by_row(table) == counts and table.check().ok, where
        rows_of_key = sum(n for (key, _), n in counts.items() if key == "k0")
        assert table.delete(rows([EXISTING], 0, 0.0)).deleted == rows_of_key


# Deletes that keep their ordering value


def table_with_tombstones(kind):
    """Return a table that holds BASE_STATE and keeps the ordering values of deletes."""
    return filled(*kind, **{"mdt.delete.keeps.ordering": True})


def delete_at(ids, ts, how=writing):
    """A writer that deletes existing or absent keys at an ordering value."""
    return how(f"delete {ids} at {ts}", rows(ids, ts, 0.0), "delete")


@pytest.mark.parametrize("how", [writing, writing_in_tasks])
@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[2], marks=pytest.mark.nightly)])
def test_a_delete_with_a_larger_ordering_value_wins_over_an_upsert_in_every_order(kind, depth, how):
    conflict_counts = set()
    expected = {key: row for key, row in BASE_STATE.items() if key != "k0"} | {"k22": (4, 4.0)}
    actors = [delete_at([0, 20], 5, how), upsert([0, 20, 22], 4, 4.0)]
    for run, _ in checked(lambda: table_with_tombstones(kind), actors, depth):
        assert ours(run.storage) == expected == theirs(run.storage), run.schedule
        assert_clean(run.storage)
        conflict_counts.add(run.conflicts)
    assert conflict_counts == {0, 1}, "the second commit is retried after a conflict"


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [1, None])
def test_of_two_deletes_of_a_key_the_larger_ordering_value_is_kept(depth):
    actors = [delete_at([20], 5), delete_at([20], 7)]
    for run, table in checked(lambda: table_with_tombstones(KINDS[0]), actors, depth):
        assert table.upsert(rows([20], 6, 1.0)).late == 1, run.schedule
        assert table.upsert(rows([20], 7, 1.0)).inserted == 1 and table.check().ok, run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_a_restore_undoes_earlier_tombstones_only(depth):
    outcomes = set()
    for run, table in checked(
        lambda: table_with_tombstones(KINDS[0]), [delete_at([20], 5), restore(1, {})], depth
    ):
        is_undone = run.ended[1].seq > run.ended[0].seq
        result = table.upsert(rows([20], 4, 4.0))
        assert (result.inserted, result.late) == ((1, 0) if is_undone else (0, 1)), run.schedule
        outcomes.add(is_undone)
    assert outcomes == {True, False}

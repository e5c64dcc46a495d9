"""Writes that rest on a state they have read, inserts without look-up, and deletes that keep their
ordering value, beside others in every order, and when their process dies.
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


# Writes that rest on a state they have read

READ = 1
"""The commit whose rows were read."""


@cache
def _read(table_type):
    table = make(MemoryStorage(), table_type, None, **{"mdt.metadata.compact.records": 2})
    assert table.upsert(rows(range(4), 1, 1.0)).seq == READ
    return table.storage


def rested(ids, fare):
    """A writer that has read the rows at READ, or that there are none."""

    def make(metadata, definition, options):
        upserting = RowWrite(metadata, options, "upsert").in_process(rows(ids, 2, fare), definition)
        return SnapshotBoundOperation(upserting, metadata, READ, "")

    return refused(acting(f"rested {ids} {fare}", make), Conflict)


def fares_after(table_type, actors, depth):
    """Yield every schedule with the fares that the table holds in the end."""
    for run, table in checked(_read(table_type).copy, actors, depth):
        state = as_state(table.scan().to_arrow())
        yield run, {key: fare for key, (_, fare) in state.items()}


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_that_rest_on_one_row_one_is_done_in_every_order(depth, table_type):
    ends = set()
    for run, fares in fares_after(table_type, [rested([0, 1], 2.0), rested([0, 2], 3.0)], depth):
        first, second = run.ended[0].refused, run.ended[1].refused
        assert bool(first) != bool(second), run.schedule
        assert "depends on rows that were read at commit 1" in first + second
        done = {"k0": 3.0, "k2": 3.0} if first else {"k0": 2.0, "k1": 2.0}
        assert fares == dict.fromkeys(("k0", "k1", "k2", "k3"), 1.0) | done
        ends.add(bool(first))
    assert ends == {True, False}


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    ("other", "fare"), [(upsert([0], 3, 5.0), 5.0), (delete([0]), None)], ids=["upsert", "delete"]
)
def test_who_rests_on_a_row_never_covers_what_came_after_it(other, fare, depth):
    for run, fares in fares_after(MOR, [rested([0], 2.0), other], depth):
        assert run.ended[1].seq > 0 and fares.get("k0") == fare, run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_a_key_that_was_absent_is_inserted_by_one(depth):
    for run, fares in fares_after(MOR, [rested([20], 2.0), rested([20], 3.0)], depth):
        done = [fare for n, fare in enumerate((2.0, 3.0)) if not run.ended[n].refused]
        assert done == [fares["k20"]], run.schedule


def test_other_file_groups_do_not_matter():
    for run, fares in fares_after(
        MOR, [rested([0], 2.0), upsert([1], 2, 5.0), rested([3], 4.0)], 1
    ):
        assert not run.ended[0].refused  # 1 and 3 stand in one
        last = 1.0 if run.ended[2].refused else 4.0
        assert fares == {"k0": 2.0, "k1": 5.0, "k2": 1.0, "k3": last}


def test_without_what_was_committed_since_a_change_would_be_lost(monkeypatch):
    prepare = lambda self, snapshot, txn: self.operation.prepare(snapshot, txn)
    monkeypatch.setattr(SnapshotBoundOperation, "prepare", prepare)
    runs = [run for run, _ in fares_after(MOR, [rested([0], 2.0), rested([0], 3.0)], 1)]
    assert any(len(run.done()) == 2 for run in runs)


@pytest.mark.parametrize("table_type", TYPES)
def test_after_a_crash_a_write_that_is_tried_again_is_done_once_or_was_done(table_type):
    def run(storage):
        mdt.open(storage).resting_on(READ).update_where({"fare": "fare + 1"}, "id = 'k0'")

    for where, storage in survivors(_read(table_type).copy, run):
        count("crash points")
        later(storage)
        try:
            run(storage)
        except Conflict:
            assert mdt.open(storage).snapshot().seq > READ, where
        table = mdt.open(storage)
        assert as_state(table.scan().to_arrow())["k0"][1] == 2.0 and table.check().ok, where


# Inserts without look-up

OLD, NEW = 0, 20
"""Keys of an even number that live in the world, and that do not."""


@cache
def _repeating(table_type):
    options = {**OPTIONS, "mdt.keys.repeat": True}
    where = {"partition_by": ["city"], "table_type": table_type, "options": options}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], **where)
    table.upsert(rows(range(4), 1, 1.0))
    return table.storage


def found(table):
    """Return how often each (id, fare) stands in a table."""
    rows_of = table.scan(columns=["id", "fare"]).to_arrow().to_pylist()
    return Counter((row["id"], row["fare"]) for row in rows_of)


UNCHECKED = writing("insert unchecked", rows([OLD, NEW], 1, 5.0), INSERT_UNCHECKED)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        (upsert([OLD, NEW], 1, 7.0), 7.0),
        (delete([OLD, NEW]), None),
        (overwrite([OLD, NEW], 1, 7.0), 7.0),
        (UNCHECKED, 5.0),
    ],
    ids=["upsert", "delete", "overwrite", "insert unchecked"],
)
def test_an_insert_without_look_up_beside_another(other, stays):
    seen = set()
    for run, table in checked(_repeating(MOR).copy, [UNCHECKED, other], 1):
        inserted_last = run.ended[0].seq > run.ended[1].seq
        expected = Counter()
        for key in ("k0", "k20"):
            expected[key, 5.0] += inserted_last or other is UNCHECKED
            expected[key, stays] += stays is not None
        held = found(table)
        mine = {(key, fare): held[key, fare] for key in ("k0", "k20") for fare in (5.0, 7.0)}
        assert Counter(mine) == expected, run.schedule
        seen.add(inserted_last)
    assert seen == {False, True}


@pytest.mark.parametrize("table_type", TYPES)
def test_after_a_crash_all_rows_or_none_stand_twice(table_type):
    def run(storage):
        mdt.open(storage).insert(rows([OLD, NEW], 1, 5.0), check=False)
        mdt.open(storage).upsert(rows([OLD], 1, 6.0))

    before = found(mdt.open(_repeating(table_type)))
    twice = before + Counter({("k0", 5.0): 1, ("k20", 5.0): 1})
    after = twice - Counter({("k0", 1.0): 1, ("k0", 5.0): 1}) + Counter({("k0", 6.0): 1})
    for where, storage in survivors(_repeating(table_type).copy, run):
        count("crash points")
        seen = found(mdt.open(storage))
        assert seen in (before, twice, after), where
        table = mdt.open(later(storage))
        table.abort()
        assert found(table) == seen and table.check().ok, where
        here = sum(n for (key, _), n in seen.items() if key == "k0")
        assert table.delete(rows([OLD], 0, 0.0)).deleted == here


# Deletes that keep their ordering value


def keeping(kind):
    """Return a table that holds BASE_STATE and keeps the ordering values of deletes."""
    return filled(*kind, **{"mdt.delete.keeps.ordering": True})


def delete_at(ids, ts, how=writing):
    """A writer that deletes keys at an ordering value, whether or not they are there."""
    return how(f"delete {ids} at {ts}", rows(ids, ts, 0.0), "delete")


@pytest.mark.parametrize("how", [writing, writing_in_tasks])
@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[2], marks=pytest.mark.nightly)])
def test_of_a_delete_and_an_older_row_the_delete_stays_in_every_order(kind, depth, how):
    met = set()
    expected = {key: row for key, row in BASE_STATE.items() if key != "k0"} | {"k22": (4, 4.0)}
    actors = [delete_at([0, 20], 5, how), upsert([0, 20, 22], 4, 4.0)]
    for run, _ in checked(lambda: keeping(kind), actors, depth):
        assert ours(run.storage) == expected == theirs(run.storage), run.schedule
        assert_clean(run.storage)
        met.add(run.conflicts)
    assert met == {0, 1}, "whoever came second has begun again"


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [1, None])
def test_of_two_deletes_of_a_key_the_larger_ordering_value_is_kept(depth):
    actors = [delete_at([20], 5), delete_at([20], 7)]
    for run, table in checked(lambda: keeping(KINDS[0]), actors, depth):
        assert table.upsert(rows([20], 6, 1.0)).late == 1, run.schedule
        assert table.upsert(rows([20], 7, 1.0)).inserted == 1 and table.check().ok, run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_a_restore_takes_back_the_tombstones_that_it_has_seen(depth):
    seen = set()
    for run, table in checked(
        lambda: keeping(KINDS[0]), [delete_at([20], 5), restore(1, {})], depth
    ):
        is_undone = run.ended[1].seq > run.ended[0].seq
        done = table.upsert(rows([20], 4, 4.0))
        assert (done.inserted, done.late) == ((1, 0) if is_undone else (0, 1)), run.schedule
        seen.add(is_undone)
    assert seen == {True, False}

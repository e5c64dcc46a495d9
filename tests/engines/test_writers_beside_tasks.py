"""A concurrent commit is a conflict for a write if the write depends on the changed rows, in tasks
as in process.
"""

import pytest
from merges import NEW_ALL, merged, with_clauses
from pooled import EVERY_KIND, ThreadTable
from worlds import COW, MOR, assert_clean, filled, make, meanwhile, objects_of, ours, rows, theirs

import mdt
from mdt.errors import Conflict
from mdt.stores.storage import MemoryStorage
from mdt.testing.local_engine import LocalEngine
from mdt.write.operations import RowOperation

COUNTS = ("inserted", "updated", "deleted", "late")
ADDED = ("matched", None, {"fare": "target.fare + source.fare"})
RAISED = ("matched", "source.fare > target.fare + 10", None)


def started():
    """Return a table with the keys 0 to 5 that remembers deletes."""
    storage = MemoryStorage()
    table = make(storage, MOR, "record", **{"mdt.delete.keeps.ordering": True})
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    return storage


def delete(table):
    return table.delete(rows([0, 2, 30], 5, 1.0))


def merge(*clauses):
    return lambda table: merged(table, rows([0, 21], 3, 3.0), *clauses)


@EVERY_KIND
@pytest.mark.parametrize(
    "act, others, attempts",
    [
        (delete, lambda t: t.upsert(rows([30], 9, 9.0)), 2),
        (delete, lambda t: t.upsert(rows([2], 9, 9.0)), 2),
        (delete, lambda t: t.delete(rows([30], 9, 9.0)), 2),
        (delete, lambda t: t.upsert(rows([4, 40], 9, 9.0)), 1),
        (merge(ADDED), lambda t: t.upsert(rows([0], 5, 50.0)), 2),
        (merge(ADDED), lambda t: t.upsert(rows([21], 5, 50.0)), 2),
        (merge(NEW_ALL), lambda t: t.upsert(rows([21], 5, 50.0)), 2),
        (merge(ADDED), lambda t: t.upsert(rows([23], 5, 50.0)), 1),
        (merge(RAISED, NEW_ALL), lambda t: t.delete(rows([0], 9, 0.0)), 2),
        (merge(ADDED), lambda t: t.compact(), 2),
        (merge(ADDED), lambda t: t.create_index("bitmap(fare)"), 1),
    ],
    ids=[
        "an absent key is inserted",
        "a row that ends is changed",
        "an absent key is deleted",
        "others are touched",
        "a row that is changed",
        "a key that was found absent",
        "a key that is inserted",
        "a key of a file group that is not read",
        "a row that was only read",
        "compaction",
        "an index",
    ],
)
def test_a_write_tries_again_after_others_change_what_it_has_read(
    kind,
    act,
    others,
    attempts,
):
    """Its result is that of a write after the other writers."""
    storage = started()
    after = mdt.open(storage.copy())
    others(after)
    expected = act(after)
    with meanwhile(RowOperation, lambda: others(mdt.open(storage))):
        result = act(kind(storage))
    assert result.attempts == attempts
    assert [getattr(result, name) for name in COUNTS] == [
        getattr(expected, name) for name in COUNTS
    ]
    assert ours(storage) == ours(after.storage)
    assert_clean(storage)


@EVERY_KIND
def test_a_merge_raises_conflict_if_the_table_is_altered_meanwhile(kind):
    storage = started()
    prepared = with_clauses(kind(storage).merge(rows([0, 21], 3, 3.0)), [ADDED])
    other = mdt.open(storage)
    with (
        pytest.raises(Conflict, match="altered"),
        meanwhile(RowOperation, lambda: other.alter(rename={"fare": "price"}, beyond_hudi=True)),
    ):
        merge(ADDED)(kind(storage))
    with pytest.raises(Conflict, match="altered"):
        prepared.execute()
    assert not list(storage.list(".hoodie/.mdt/pending"))


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_task_attempt_that_outlives_its_transaction_stores_nothing(table_type, monkeypatch):
    """As happens with an executor that lost its driver and keeps running."""
    storage, results = filled(table_type, "record"), LocalEngine.collect_results
    attempts = []

    def collect_and_record(self, parts, function):
        attempts.append(lambda: [function(iter(part.to_batches()), 99) for part in parts])
        return results(self, parts, function)

    monkeypatch.setattr(LocalEngine, "collect_results", collect_and_record)
    for ids in (range(20), range(10, 30)):
        ThreadTable(storage).upsert(rows(ids, 5, 5.0))
        stored = objects_of(storage)
        with pytest.raises(Conflict, match="ended before its task stored"):
            attempts[-1]()
        assert objects_of(storage) == stored and theirs(storage) == ours(storage)

"""Overwrites beside others: what they replace is what they have seen, and every schedule ends as
one after the other.
"""

from __future__ import annotations

import pytest
from schedules import (
    Actor,
    clustering,
    compaction,
    conditional,
    delete,
    drop,
    overwrite,
    restore,
    upsert,
)
from test_schedules import explored, upserted_first
from worlds import COW, MOR, filled, ours

import mdt
from mdt.stores.storage import MemoryStorage

DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]
"""Of schedules by day: how often an actor may be interrupted; at night, as often as it can."""


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    "kind", [(MOR, "record"), pytest.param((COW, "bloom"), marks=pytest.mark.nightly)]
)
def test_an_overwrite_replaces_also_a_new_file_group_that_came_meanwhile(
    kind: tuple[str, str], depth: int | None
) -> None:
    runs = explored(
        kind, overwrite([0, 20], 1, 9.0), upsert([22], 3, 3.0, "bulk_insert"), preemptions=depth
    )
    assert {run.conflicts for run in runs} == {0, 1}
    for run in runs:
        overwriting, inserting = run.ended[0], run.ended[1]
        assert ("k22" in ours(run.storage)) == (inserting.seq > overwriting.seq)
        assert inserting.attempts == 1, "new keys in a new file group stand behind an overwrite"


@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_overwrites_of_a_partition_the_later_one_stays(depth: int | None) -> None:
    runs = explored(
        (COW, "record"), overwrite([0], 1, 8.0), overwrite([20], 1, 9.0), preemptions=depth
    )
    assert {frozenset(ours(run.storage)) for run in runs} == {
        frozenset((one, "k1", "k3", "k5")) for one in ("k0", "k20")
    }


def test_overwrites_of_different_partitions_never_conflict() -> None:
    runs = explored((MOR, "bloom"), overwrite([0], 1, 8.0), overwrite([1], 1, 9.0), preemptions=2)
    assert {run.conflicts for run in runs} == {0}


def _only_x(table_type: str, key_index: str) -> MemoryStorage:
    storage = filled(table_type, key_index)
    mdt.open(storage).delete_partition("city=y")
    return storage


@pytest.mark.parametrize(
    "first", [overwrite([0], 1, 9.0, ends=["*"]), drop("city=*")], ids=lambda one: one.name
)
def test_who_names_partitions_replaces_those_that_another_makes_meanwhile(first: Actor) -> None:
    runs = explored((MOR, "bloom"), first, upsert([1], 3, 3.0), preemptions=2, start=_only_x)
    assert any(run.conflicts for run in runs)


OTHERS = [
    upsert([0, 20], 3, 3.0),
    delete([0, 1]),
    compaction(),
    clustering(),
    conditional("fare = 2.0"),
    conditional("fare = 1.0", 8.0),
    restore(1, upserted_first()),
    drop("city=x"),
    drop(None),
    overwrite([1], 1, 7.0, "insert_overwrite_table"),
]
BY_DAY = {"upsert [0, 20]", "compaction", "drop city=x"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(o, id=o.name, marks=() if o.name in BY_DAY else pytest.mark.nightly)
        for o in OTHERS
    ],
)
@pytest.mark.parametrize(
    "first",
    [overwrite([0, 20], 1, 9.0), overwrite([0], 1, 9.0, ends=["*"]), drop("city=x"), drop(None)],
    ids=lambda one: one.name,
)
def test_an_overwrite_beside_everybody_else(first: Actor, other: Actor) -> None:
    explored((MOR, "record"), first, other, preemptions=1)

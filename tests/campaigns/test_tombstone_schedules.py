"""Deletes that keep their ordering value beside others: in every order a row older than the delete
of its key is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from counting import count
from pooled import thread
from schedules import PAUSES, Actor, driven, explore, restore, upsert
from worlds import BASE_STATE, COW, MOR, assert_clean, make, ours, rows, theirs, upserted

import mdt
from mdt.commit.operation import Operation
from mdt.config import parse_options
from mdt.engines.write import write
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.write.by_name import write_here

DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]


def keeping(kind: tuple[str, str]) -> MemoryStorage:
    """Return a table that holds BASE_STATE and keeps the ordering values of deletes."""
    storage = MemoryStorage()
    table = make(storage, *kind, **{"mdt.delete.keeps.ordering": True})
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    return storage


def delete_at(ids: Sequence[int], ts: int, *, in_tasks: bool = False) -> Actor:
    """A writer that deletes keys at an ordering value, whether or not they are there."""

    def make(metadata: Metadata) -> Operation[Any]:
        definition = metadata.newest().definition
        options, given = parse_options(definition.options), rows(ids, ts, 0.0)
        if in_tasks:
            return write(thread(), metadata, options, [given], given.schema, "delete")
        return write_here(metadata, options, given, "delete", definition)

    return Actor(f"delete {ids} at {ts}", lambda s: driven(s, make, PAUSES), lambda state: state)


@pytest.mark.parametrize("in_tasks", [False, True])
@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    "kind", [(MOR, "record"), pytest.param((COW, "bloom"), marks=pytest.mark.nightly)]
)
def test_of_a_delete_and_an_older_row_the_delete_stays_in_every_order(
    kind: tuple[str, str], depth: int | None, in_tasks: bool
) -> None:
    met = set()
    actors = [delete_at([0, 20], 5, in_tasks=in_tasks), upsert([0, 20, 22], 4, 4.0)]
    for run in explore(lambda: keeping(kind), actors, preemptions=depth):
        count("schedules")
        expected = {key: row for key, row in BASE_STATE.items() if key != "k0"} | {"k22": (4, 4.0)}
        assert ours(run.storage) == expected == theirs(run.storage), run.schedule
        assert_clean(run.storage)
        met.add(run.conflicts)
    assert met == {0, 1}, "whoever came second has begun again"


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [1, None])
def test_of_two_deletes_of_a_key_the_larger_ordering_value_is_kept(depth: int | None) -> None:
    for run in explore(
        lambda: keeping((MOR, "record")),
        [delete_at([20], 5), delete_at([20], 7)],
        preemptions=depth,
    ):
        count("schedules")
        table = mdt.open(run.storage)
        assert table.upsert(rows([20], 6, 1.0)).late == 1, run.schedule
        assert table.upsert(rows([20], 7, 1.0)).inserted == 1 and table.check().ok, run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_a_restore_takes_back_the_tombstones_that_it_has_seen(depth: int | None) -> None:
    state, seen = upserted({}, range(6), 1, 1.0), set()
    for run in explore(
        lambda: keeping((MOR, "record")), [delete_at([20], 5), restore(1, state)], preemptions=depth
    ):
        count("schedules")
        is_undone = run.ended[1].seq > run.ended[0].seq
        done = mdt.open(run.storage).upsert(rows([20], 4, 4.0))
        assert (done.inserted, done.late) == ((1, 0) if is_undone else (0, 1)), run.schedule
        seen.add(is_undone)
    assert seen == {True, False}

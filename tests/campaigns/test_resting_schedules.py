"""Writes that rest on a state they have read, beside others in every order: of two that rest on the
same row, one is done; no change is lost.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache

import pytest
from counting import count
from schedules import PAUSES, Actor, Ended, Run, delete, driven, explore, upsert
from worlds import COW, MOR, OPTIONS, SCHEMA, as_state, later, rows, survivors

import mdt
from mdt.commit.snapshot_bound import Resting
from mdt.config import parse_options
from mdt.errors import Conflict
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage, Storage
from mdt.write.by_name import write_here

READ = 1
"""The commit whose rows were read."""
DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]
TYPES = [MOR, pytest.param(COW, marks=pytest.mark.nightly)]


@cache
def _world(table_type: str) -> MemoryStorage:
    storage = MemoryStorage()
    options = {**OPTIONS, "mdt.metadata.compact.records": 2}
    made = mdt.create(
        storage,
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=table_type,
        options=options,
    )
    assert made.upsert(rows(range(4), 1, 1.0)).seq == READ
    return storage


def rested(ids: Sequence[int], fare: float) -> Actor:
    """A writer that has read the rows at READ, or that there are none."""

    def make(metadata: Metadata) -> Resting:
        definition = metadata.newest().definition
        options, given = parse_options(definition.options), rows(ids, 2, fare)
        upserted = write_here(metadata, options, given, "upsert", definition)
        return Resting(upserted, metadata, READ)

    def start(storage: Storage) -> Generator[str, None, Ended]:
        try:
            return (yield from driven(storage, make, PAUSES))
        except Conflict as error:
            return Ended(refused=error.message)

    return Actor(f"rested {ids} {fare}", start, lambda state: state)


def runs(
    table_type: str, actors: Sequence[Actor], depth: int | None
) -> list[tuple[Run, dict[str, float]]]:
    """Return every schedule with the fares that the table holds in the end."""
    found = []
    for run in explore(lambda: _world(table_type).copy(), list(actors), preemptions=depth):
        count("schedules")
        assert mdt.open(run.storage).check().ok, run.schedule
        fares = {
            key: fare
            for key, (_, fare) in as_state(mdt.open(run.storage).scan().to_arrow()).items()
        }
        found.append((run, fares))
    return found


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_that_rest_on_one_row_one_is_done_in_every_order(
    depth: int | None, table_type: str
) -> None:
    ends = set()
    for run, fares in runs(table_type, [rested([0, 1], 2.0), rested([0, 2], 3.0)], depth):
        first, second = run.ended[0].refused, run.ended[1].refused
        assert (
            bool(first) != bool(second) and "rests on the state after commit 1" in first + second
        ), run.schedule
        assert (
            fares == {"k0": 3.0, "k1": 1.0, "k2": 3.0, "k3": 1.0}
            if first
            else {"k0": 2.0, "k1": 2.0, "k2": 1.0, "k3": 1.0}
        )
        ends.add(bool(first))
    assert ends == {True, False}


@pytest.mark.parametrize("depth", DEPTH)
def test_who_rests_on_a_row_never_covers_what_came_after_it(depth: int | None) -> None:
    for other in (upsert([0], 3, 5.0), delete([0])):
        for run, fares in runs(MOR, [rested([0], 2.0), other], depth):
            assert run.ended[1].seq > 0 and fares.get("k0") == (
                5.0 if other.name.startswith("upsert") else None
            ), run.schedule


@pytest.mark.parametrize("depth", DEPTH)
def test_a_key_that_was_absent_is_inserted_by_one(depth: int | None) -> None:
    for run, fares in runs(MOR, [rested([20], 2.0), rested([20], 3.0)], depth):
        done = [
            fare
            for fare, ended in zip((2.0, 3.0), (run.ended[0], run.ended[1]), strict=True)
            if not ended.refused
        ]
        assert len(done) == 1 and fares["k20"] == done[0], run.schedule


def test_other_file_groups_do_not_matter() -> None:
    for run, fares in runs(MOR, [rested([0], 2.0), upsert([1], 2, 5.0), rested([3], 4.0)], 1):
        refused = [ended.refused for ended in run.ended.values() if ended.refused]
        assert len(refused) <= 1 and not run.ended[0].refused, refused  # 1 and 3 stand in one
        assert fares == {"k0": 2.0, "k1": 5.0, "k2": 1.0, "k3": 1.0 if refused else 4.0}


def test_without_what_was_committed_since_a_change_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Resting, "prepare", lambda self, snapshot, txn: self.operation.prepare(snapshot, txn)
    )
    both = [
        run
        for run, _ in runs(MOR, [rested([0], 2.0), rested([0], 3.0)], 1)
        if not any(e.refused for e in run.ended.values())
    ]
    assert both


@pytest.mark.parametrize("table_type", TYPES)
def test_after_a_crash_a_write_that_is_tried_again_is_done_once_or_was_done(
    table_type: str,
) -> None:
    def run(storage: Storage) -> None:
        mdt.open(storage).resting_on(READ).update_where({"fare": "fare + 1"}, "id = 'k0'")

    for where, storage in survivors(_world(table_type).copy, run):
        count("crash points")
        later(storage)
        try:
            run(storage)
        except Conflict:
            assert mdt.open(storage).snapshot().seq > READ, where
        assert as_state(mdt.open(storage).scan().to_arrow())["k0"][1] == 2.0, where
        assert mdt.open(storage).check().ok, where

"""Inserts without look-up beside writers of the same keys, and when their process dies."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from counting import count
from schedules import PAUSES, Actor, delete, driven, explore, overwrite, upsert
from worlds import COW, MOR, OPTIONS, SCHEMA, later, rows, survivors

import mdt
from mdt.config import parse_options
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage, Storage
from mdt.write.blind_insert import INSERT_UNCHECKED
from mdt.write.by_name import write_here
from mdt.write.operations import RowOperation

OLD, NEW = 0, 20
"""Keys of an even number that live in the world, and that do not."""


@cache
def _world(table_type: str) -> MemoryStorage:
    storage = MemoryStorage()
    options = {**OPTIONS, "mdt.keys.repeat": True}
    mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], table_type=table_type, options=options
    )
    mdt.open(storage).upsert(rows(range(4), 1, 1.0))
    return storage


def found(storage: Storage) -> Counter[tuple[str, float]]:
    table = mdt.open(storage).scan().to_arrow()
    return Counter(zip(table["id"].to_pylist(), table["fare"].to_pylist(), strict=True))


def unchecked() -> Actor:
    def make(metadata: Metadata) -> RowOperation:
        definition = metadata.newest().definition
        options, data = parse_options(definition.options), rows([OLD, NEW], 1, 5.0)
        return write_here(metadata, options, data, INSERT_UNCHECKED, definition)

    return Actor("insert unchecked", lambda s: driven(s, make, PAUSES), lambda state: state)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        (upsert([OLD, NEW], 1, 7.0), 7.0),
        (delete([OLD, NEW]), None),
        (overwrite([OLD, NEW], 1, 7.0), 7.0),
        (unchecked(), 5.0),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_every_schedule_ends_as_one_after_the_other(other: Actor, stays: float | None) -> None:
    seen = set()
    for run in explore(lambda: _world(MOR).copy(), [unchecked(), other], preemptions=1):
        count("schedules")
        rows_of = found(run.storage)
        inserted_last = run.ended[0].seq > run.ended[1].seq
        ours = {(key, fare): rows_of[key, fare] for key in ("k0", "k20") for fare in (5.0, 7.0)}
        expected = Counter(dict.fromkeys((("k0", 5.0), ("k20", 5.0)), int(inserted_last)))
        if other.name == "insert unchecked":
            expected = Counter({("k0", 5.0): 2, ("k20", 5.0): 2})
        elif stays is not None:
            expected |= Counter({("k0", stays): 1, ("k20", stays): 1})
        assert Counter(ours) == expected, run.schedule
        assert mdt.open(run.storage).check().ok, run.schedule
        seen.add(inserted_last)
    assert seen == {False, True}


@pytest.mark.parametrize("table_type", [MOR, pytest.param(COW, marks=pytest.mark.nightly)])
def test_after_a_crash_all_rows_or_none_stand_twice(table_type: str) -> None:
    def run(storage: Storage) -> None:
        mdt.open(storage).insert(rows([OLD, NEW], 1, 5.0), check=False)
        mdt.open(storage).upsert(rows([OLD], 1, 6.0))

    before = found(_world(table_type))
    states = [before, before + Counter({("k0", 5.0): 1, ("k20", 5.0): 1})]
    states.append(states[1] - Counter({("k0", 1.0): 1, ("k0", 5.0): 1}) + Counter({("k0", 6.0): 1}))
    for where, storage in survivors(_world(table_type).copy, run):
        count("crash points")
        seen = found(storage)
        assert seen in states, where
        mdt.open(later(storage)).abort()
        assert found(storage) == seen and mdt.open(storage).check().ok, where
        assert mdt.open(storage).delete(rows([OLD], 0, 0.0)).deleted == sum(
            n for (key, _), n in seen.items() if key == "k0"
        )

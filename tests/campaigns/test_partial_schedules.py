"""Partial upserts beside others: no column and no addition is lost, in every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from schedules import PAUSES, Actor, compaction, delete, driven, upsert
from test_schedules import explored
from worlds import BASE_STATE, COW, MOR, State, ours, rows

from mdt.config import parse_options
from mdt.metadata.metadata import Metadata
from mdt.write.blending import Kept
from mdt.write.by_name import write_here
from mdt.write.operations import RowOperation

DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]


def partial(
    ids: Sequence[int],
    *,
    ts: int | None,
    fare: float | None,
    mergers: Mapping[str, str] | None = None,
) -> Actor:
    """A writer of some columns; what it does not say stays.  ``mergers``: as of an upsert, of
    ``fare``: "sum".
    """
    lacking = [name for name, value in (("ts", ts), ("fare", fare)) if value is None]

    def make(metadata: Metadata) -> RowOperation:
        definition = metadata.newest().definition
        data = rows(ids, ts or 0, fare or 0.0).drop_columns(lacking)
        options, kept = parse_options(definition.options), Kept(True, dict(mergers or {}))
        return write_here(metadata, options, data, "upsert", definition, kept=kept)

    def became(old: tuple[int, float]) -> tuple[int, float]:
        if ts is not None and ts < old[0] and not mergers:
            return old
        added = old[1] if fare is None else old[1] + fare if mergers else fare
        return (old[0] if ts is None else max(ts, old[0])), added

    def model(state: State) -> State:
        known = {f"k{i}": state.get(f"k{i}") for i in ids}
        fresh = {key: (ts, fare) for key, old in known.items() if old is None and ts is not None}
        blended: Any = {key: became(old) for key, old in known.items() if old is not None}
        return {**state, **blended, **fresh}

    return Actor(f"partial {ids} {ts} {fare}", lambda s: driven(s, make, PAUSES), model)


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    "kind", [(MOR, "record"), pytest.param((COW, "bloom"), marks=pytest.mark.nightly)]
)
def test_two_writers_of_different_columns_of_a_row_both_stay(
    kind: tuple[str, str], depth: int | None
) -> None:
    runs = explored(
        kind,
        partial([0, 1], ts=7, fare=None),
        partial([0, 1], ts=None, fare=8.0),
        preemptions=depth,
    )
    assert {ours(run.storage)["k0"] for run in runs} == {(7, 8.0)} and {
        run.conflicts for run in runs
    } == {0, 1}


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [1, None])
def test_no_addition_of_two_upserts_that_add_is_lost(depth: int | None) -> None:
    adding = [partial([0, 20], ts=ts, fare=1.0, mergers={"fare": "sum"}) for ts in (2, 3)]
    runs = explored((MOR, "record"), *adding, preemptions=depth)
    fare = BASE_STATE["k0"][1]
    assert {(ours(run.storage)["k0"], ours(run.storage)["k20"]) for run in runs} == {
        ((3, fare + 2.0), (3, 2.0))
    }


@pytest.mark.nightly
@pytest.mark.parametrize("depth", [1, None])
def test_a_partial_upsert_beside_a_delete_an_upsert_and_a_compaction(depth: int | None) -> None:
    for other in (upsert([0, 20], 1, 5.0), compaction(), delete([3])):
        explored((MOR, "record"), partial([0, 1], ts=None, fare=8.0), other, preemptions=depth)

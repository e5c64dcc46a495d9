"""Deletes and updates by a condition beside others: every schedule ends as one after the other."""

from __future__ import annotations

import pytest
from counting import count
from schedules import compaction, conditional, upsert
from test_schedules import explored
from worlds import BASE_STATE, COW, MOR, ours

from mdt.write import conditional as written

DEPTH = [2, pytest.param(None, marks=pytest.mark.nightly)]
"""Of schedules by day: how often an actor may be interrupted; at night, as often as it can."""


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    "kind", [(MOR, "record"), pytest.param((COW, "bloom"), marks=pytest.mark.nightly)]
)
def test_of_two_updates_by_a_condition_one_sees_what_the_other_makes_of_a_row(
    kind: tuple[str, str], depth: int | None
) -> None:
    runs = explored(
        kind, conditional("fare = 1.0", 2.0), conditional("fare = 2.0", 1.0), preemptions=depth
    )
    assert len({fare for run in runs for _, fare in ours(run.storage).values()}) == 2
    assert all(len({fare for _, fare in ours(run.storage).values()}) == 1 for run in runs), (
        "they do not swap"
    )


@pytest.mark.parametrize(
    "kind", [(COW, "record"), pytest.param((MOR, "bloom"), marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("depth", DEPTH)
def test_a_delete_by_a_condition_and_an_update_of_the_same_rows(
    kind: tuple[str, str], depth: int | None
) -> None:
    explored(kind, conditional("fare = 2.0"), conditional("fare = 1.0", 2.0), preemptions=depth)


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize("fare", [None, 5.0])
def test_a_condition_beside_an_upsert_and_a_compaction(
    fare: float | None, depth: int | None
) -> None:
    runs = explored(
        (MOR, "record"), conditional("fare = 2.0", fare), upsert([0], 3, 3.0), preemptions=depth
    )
    assert all(ours(run.storage)["k0"] == (3, 3.0) for run in runs)
    runs = explored(
        (MOR, "record"), conditional("fare = 2.0", fare), compaction(), preemptions=depth
    )
    kept = sum(fare_ != 2.0 for _, fare_ in BASE_STATE.values())
    assert all(len(ours(run.storage)) == (len(BASE_STATE) if fare else kept) for run in runs)


@pytest.mark.parametrize("depth", [1, pytest.param(None, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("fare", [5.0, pytest.param(None, marks=pytest.mark.nightly)])
def test_a_condition_goes_on_beside_an_upsert_in_its_file_group_whose_rows_cannot_match(
    fare: float | None, depth: int | None
) -> None:
    """k0 has the fare 2.0, k4 has not; both stand in one file group."""
    runs = explored(
        (MOR, "record"), conditional("fare = 2.0", fare), upsert([4], 3, 3.0), preemptions=depth
    )
    assert {run.conflicts for run in runs} == {0}
    runs = explored(
        (MOR, "record"), conditional("fare = 2.0", fare), upsert([4], 3, 2.0), preemptions=depth
    )
    assert {run.conflicts for run in runs} == {0, 1}, "the new row matches"
    runs = explored(
        (MOR, "record"), conditional("fare = 2.0", fare), upsert([0], 3, 3.0), preemptions=depth
    )
    assert {run.conflicts for run in runs} == {0, 1}, "the row itself is another one"


def test_the_schedules_notice_a_condition_that_does_not_look_at_the_rows_that_others_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written, "may_match", lambda record, predicate, definition: False)
    with pytest.raises(AssertionError):
        explored(
            (MOR, "record"), conditional("fare = 2.0", 5.0), upsert([4], 3, 2.0), preemptions=1
        )
    count("mutants killed")

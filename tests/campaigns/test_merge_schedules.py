"""Merges beside others, in process and in tasks of an engine: every schedule ends as one after the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from pooled import thread
from schedules import PAUSES, Actor, Model, compaction, conditional, delete, driven, merge, upsert
from test_schedules import explored
from worlds import COW, MOR, SCHEMA, State, ours, rows

import mdt
from mdt.config import parse_options
from mdt.engines import merge_on_engine
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.write.clauses import Action, Clause, Clauses, Condition, When
from mdt.write.matching import matched_on
from mdt.write.merge import Decided, Decision, Merge, MergedRows, merge_of
from mdt.write.merge_request import SaidClause, SaidMerge
from mdt.write.merge_source import Source

DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]
"""Of schedules by day: how often an actor may be interrupted; at night, as often as it can."""
ALWAYS = Condition()


def counting(ids: Sequence[int]) -> Actor:
    """Somebody who adds one to the fare of rows that are there, and inserts the others: no addition
    may be lost.
    """

    def say(clauses: Clauses) -> list[Clause]:
        return [
            clauses.clause(
                When.MATCHED, Action.UPDATE, ALWAYS, {"fare": "target.fare + source.fare"}
            ),
            clauses.clause(When.NOT_MATCHED, Action.INSERT, ALWAYS, "*"),
        ]

    def model(state: State) -> State:
        old = {f"k{i}": state.get(f"k{i}", (2, 0.0)) for i in ids}
        return {**state, **{key: (ts, fare + 1.0) for key, (ts, fare) in old.items()}}

    return merge(ids, 2, 1.0, say, model)


def replacing(ids: Sequence[int], fare: float) -> Actor:
    """Somebody who makes the table what the rows say: the others go."""

    def say(clauses: Clauses) -> list[Clause]:
        return [
            clauses.clause(When.MATCHED, Action.UPDATE, ALWAYS, "*"),
            clauses.clause(When.NOT_MATCHED, Action.INSERT, ALWAYS, "*"),
            clauses.clause(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, ALWAYS, None),
        ]

    return merge(ids, 9, fare, say, lambda _: {f"k{i}": (9, fare) for i in ids})


def setting_where(other: float, fare: float) -> Actor:
    """Somebody with rows of nobody's keys who sets the fare of all rows that have another one."""

    def say(clauses: Clauses) -> list[Clause]:
        when = When.NOT_MATCHED_BY_SOURCE
        return [
            clauses.clause(
                when,
                Action.UPDATE,
                clauses.condition(when, f"target.fare = {other}", None),
                {"fare": fare},
            )
        ]

    def model(state: State) -> State:
        return {key: (ts, fare if old == other else old) for key, (ts, old) in state.items()}

    return merge([90], 1, 1.0, say, model)


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    "kind", [(MOR, "record"), pytest.param((COW, "bloom"), marks=pytest.mark.nightly)]
)
def test_no_addition_of_two_merges_of_the_same_keys_is_lost(
    kind: tuple[str, str], depth: int | None
) -> None:
    runs = explored(kind, counting([0, 20]), counting([0, 20]), preemptions=depth)
    assert {ours(run.storage)["k20"] for run in runs} == {(2, 2.0)} and {
        run.conflicts for run in runs
    } == {0, 1}


@pytest.mark.parametrize("depth", DEPTH)
def test_a_merge_beside_an_upsert_a_delete_and_a_compaction(depth: int | None) -> None:
    for other in (upsert([0, 20], 1, 5.0), delete([0, 1]), compaction()):
        explored((MOR, "record"), counting([0, 20]), other, preemptions=depth)


@pytest.mark.parametrize("depth", DEPTH)
def test_of_a_merge_and_an_update_by_a_condition_neither_misses_rows_of_the_other(
    depth: int | None,
) -> None:
    explored((MOR, "record"), counting([0, 1]), conditional("fare = 2.0", 7.0), preemptions=depth)
    runs = explored(
        (MOR, "bloom"), setting_where(1.0, 2.0), conditional("fare = 2.0", 1.0), preemptions=depth
    )
    assert all(len({fare for _, fare in ours(run.storage).values()}) == 1 for run in runs), (
        "they do not swap"
    )


@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_merges_that_make_the_table_their_own_rows_one_is_left(depth: int | None) -> None:
    runs = explored(
        (COW, "record"), replacing([0, 20], 5.0), replacing([1, 20, 21], 6.0), preemptions=depth
    )
    assert len({tuple(sorted(ours(run.storage))) for run in runs}) == 2


def swapping(other: float, fare: float, how: str, ids: Sequence[int] = (0, 4)) -> Actor:
    """Somebody who gives rows, by default two that stand in one file group, the fare ``fare`` where
    they have the fare ``other``.
    """

    def say(clauses: Clauses) -> list[Clause]:
        when = When.MATCHED
        condition = (
            clauses.condition(when, f"target.fare = {other}", None) if how == "clause" else ALWAYS
        )
        return [clauses.clause(when, Action.UPDATE, condition, {"fare": str(fare)})]

    def model(state: State) -> State:
        return {
            key: (ts, fare if int(key[1:]) in ids and old == other else old)
            for key, (ts, old) in state.items()
        }

    on = "source.id = target.id and source.city = target.city"
    return merge(
        ids, 1, 1.0, say, model, None if how == "clause" else f"{on} and target.fare = {other}"
    )


@pytest.mark.parametrize("depth", DEPTH)
def test_a_merge_goes_on_beside_writers_of_other_keys_in_its_file_group(depth: int | None) -> None:
    """k0, k2 and k4 stand in one file group, and 20 goes into it."""
    kind = (MOR, "record")
    for other in (upsert([2], 3, 3.0), delete([2]), counting([2])):
        runs = explored(kind, counting([0]), other, preemptions=depth)
        assert {run.conflicts for run in runs} == {0}, other.name
    for other in (upsert([0], 3, 3.0), delete([0]), upsert([0, 20], 3, 3.0), compaction()):
        runs = explored(kind, counting([0, 20]), other, preemptions=depth)
        assert {run.conflicts for run in runs} == {0, 1}, other.name
    runs = explored(kind, counting([20]), upsert([20], 3, 3.0), preemptions=depth)
    assert {run.conflicts for run in runs} == {0, 1}, "the key was absent"


@pytest.mark.parametrize("ids", [(0, 4), (0, 3)])
@pytest.mark.parametrize("how", ["clause", "on"])
@pytest.mark.parametrize("depth", DEPTH)
def test_two_merges_that_change_what_the_other_has_looked_at_do_not_swap(
    how: str, ids: tuple[int, int], depth: int | None
) -> None:
    """In one file group, and in two."""
    runs = explored(
        (MOR, "record"),
        swapping(1.0, 2.0, how, ids),
        swapping(2.0, 1.0, how, ids),
        preemptions=depth,
    )
    ends = {tuple(ours(run.storage)[f"k{i}"][1] for i in ids) for run in runs}
    assert ends == {(1.0, 1.0), (2.0, 2.0)} and {run.conflicts for run in runs} == {0, 1}


@pytest.mark.parametrize("how", ["clause", "on"])
def test_the_schedules_notice_a_merge_that_forgets_rows_which_it_leaves(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decision, "_left", lambda self, done: {})
    with pytest.raises(AssertionError):
        explored((MOR, "record"), swapping(1.0, 2.0, how), swapping(2.0, 1.0, how), preemptions=1)
    count("mutants killed")


def test_the_schedules_notice_a_merge_that_forgets_keys_that_it_found_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Decided, "absent", lambda self, is_global: {})
    with pytest.raises(AssertionError):
        explored((MOR, "record"), counting([20]), upsert([20], 1, 3.0), preemptions=1)
    count("mutants killed")


@pytest.mark.parametrize(
    ("more", "on"),
    [
        ({"scope": "partition"}, ["id"]),  # a row with the same id may come in another partition
        ({"options": {"mdt.keys.repeat": True}}, None),  # and here in any file group
        ({}, "source.fare = target.fare"),  # rows are chosen by what they say
    ],
)
def test_a_merge_whose_source_may_match_rows_that_come_is_refused_beside_others(
    more: dict[str, Any], on: Any
) -> None:
    found = []
    for is_refused in (True, False):
        storage = MemoryStorage()
        table = mdt.create(
            storage,
            SCHEMA,
            key=["id"],
            partition_by=["city"],
            table_type=MOR,
            **(more if is_refused else {}),
        )
        table.upsert(rows(range(8), 1, 1.0))
        snapshot = table.snapshot()
        source = Source(rows([0], 1, 1.0), snapshot.definition)
        how = matched_on(on if is_refused else None, source, snapshot.definition)
        clauses = [
            Clauses(source, snapshot.definition, how.equal).clause(
                When.MATCHED, Action.DELETE, ALWAYS, None
            )
        ]
        options = parse_options(snapshot.definition.options)
        merged = MergedRows(Metadata(storage), options, source, how, clauses)
        one = merge_of(merged, "deltacommit", snapshot.definition.schema)
        found.append(one.prepare(snapshot, "a" * 32).left)
    assert found[0] is None and found[1] is not None and list(map(len, found[1].values())) == [1]


# In tasks


def said(when: When, action: Action, given: Any, condition: str | None = None) -> SaidClause:
    return SaidClause(when, action, condition, None, given)


def in_tasks(
    ids: Sequence[int], ts: int, fare: float, clauses: Sequence[SaidClause], model: Model
) -> Actor:
    """Somebody who merges rows in tasks."""

    def make(metadata: Metadata) -> Merge:
        definition = metadata.newest().definition
        source: pa.Table = rows(ids, ts, fare)
        options, said = parse_options(definition.options), SaidMerge(None, tuple(clauses))
        return merge_on_engine.merge(
            thread(), metadata, options, [source], source.schema, said, definition.schema
        )

    return Actor(f"merge {ids} in tasks", lambda s: driven(s, make, PAUSES), model)


def counting_there(ids: Sequence[int], inserts: bool = True) -> Actor:
    """Somebody who adds one to the fare of rows that are there, and inserts the others or leaves
    them.
    """
    clauses = [said(When.MATCHED, Action.UPDATE, {"fare": "target.fare + source.fare"})]
    clauses += [said(When.NOT_MATCHED, Action.INSERT, "*")] if inserts else []

    def model(state: State) -> State:
        known = {f"k{i}": (2, 0.0) for i in ids} | {**state} if inserts else {**state}
        added = {f"k{i}": known[f"k{i}"] for i in ids if f"k{i}" in known}
        return {**state, **{key: (ts, fare + 1.0) for key, (ts, fare) in added.items()}}

    return in_tasks(ids, 2, 1.0, clauses, model)


def replacing_there(ids: Sequence[int], fare: float) -> Actor:
    """Somebody who makes the table what the rows say."""
    clauses = [
        said(When.MATCHED, Action.UPDATE, "*"),
        said(When.NOT_MATCHED, Action.INSERT, "*"),
        said(When.NOT_MATCHED_BY_SOURCE, Action.DELETE, None),
    ]
    return in_tasks(ids, 9, fare, clauses, lambda _: {f"k{i}": (9, fare) for i in ids})


@pytest.mark.parametrize("depth", DEPTH)
def test_merges_in_tasks_lose_nothing_beside_merges_upserts_deletes_and_a_compaction(
    depth: int | None,
) -> None:
    kind = (MOR, "record")
    runs = explored(kind, counting_there([0, 20]), counting([0, 20]), preemptions=depth)
    assert {ours(run.storage)["k20"] for run in runs} == {(2, 2.0)} and {
        run.conflicts for run in runs
    } == {0, 1}
    for other in (upsert([0, 21], 1, 5.0), delete([0, 1]), compaction()):
        explored(kind, counting_there([0, 21], inserts=False), other, preemptions=depth)


@pytest.mark.parametrize("depth", DEPTH)
def test_of_two_merges_in_tasks_that_choose_rows_neither_misses_those_of_the_other(
    depth: int | None,
) -> None:
    runs = explored(
        (COW, "record"),
        replacing_there([0, 20], 5.0),
        replacing([1, 20, 21], 6.0),
        preemptions=depth,
    )
    assert len({tuple(sorted(ours(run.storage))) for run in runs}) == 2

"""Prunes by skipping indexes: segments without a match, and positions that may match.

There are two rounds, in order of cost. Indexes with a small summary per segment (Bloom filters,
counts) give verdicts on whole segments. Then indexes with positions (bitmaps, inverted text) search
the shards of the remaining segments. For each leaf, the first index that covers a shard answers.
Positions of several leaves are intersected under And and united under Or. A shard without positions
is not searched further. Finally positions are split by segment (``mdt.plan.shard_rows``). Only the
needed parts of summaries are read, with threads for remote storage.

An index that is missing, damaged, or does not cover a segment proves nothing. The notes of the plan
mention it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import numbers
from indexes.base import BoolArray, Int64Array, intersected
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, leaves, verdicts
from mdt.metadata.skipping_indexes import explained, index_of
from mdt.plan.plan_state import PlanState
from mdt.plan.shard_rows import Rows, ShardRows, first_answers
from mdt.plan.table_index import TableIndex

_CHEAP = {"=": 0, "<=>": 0, "match": 1, "in": 1, "starts with": 2, "is null": 2, "like": 3}
_OTHER_OP = 4

Indexes = Sequence[TableIndex]


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of the second round for a share of the segments.

    Attributes:
        left: Numbers of the files that may match.
        positions: Serialized positions of these files, as in :class:`PlanState`.
        used: Index -> (consulted, number of pruned segments, errors of unreadable summaries).
    """

    left: Int64Array
    positions: Mapping[int, bytes]
    used: Mapping[str, tuple[bool, int, Sequence[str]]]


RemotePruner = Callable[[PlanState, Indexes], Sequence[Answer] | None]
"""Runs the second round elsewhere, on shares of a plan's segments, or returns None to decline."""


@dataclass(frozen=True, slots=True)
class PositionSearch:
    """The two rounds of a plan. ``remote`` may run the second round."""

    state: PlanState
    remote: RemotePruner | None = None

    def run(self) -> None:
        """Prune by every applicable index of the table, and add notes to the plan."""
        indexes = list(self._indexes())
        conjuncts = sorted(conjuncts_of(self.state.predicate), key=_cost)
        for conjunct in conjuncts:
            self._prune(
                [candidate for candidate in indexes if not candidate.index.finds_rows], conjunct
            )
        finders = [candidate for candidate in indexes if candidate.index.finds_rows]
        shares = None
        if self.remote is not None and finders:
            shares = self.remote(self.state, finders)
        if shares is None:
            self._locate(finders, conjuncts)
        else:
            self._merge(finders, shares)
        self.state.notes += [candidate.note() for candidate in indexes]

    def answer(self, specs: Sequence[str], *, with_positions: bool) -> Answer:
        """Run only the second round with the indexes ``specs``, for a share of a
        :data:`RemotePruner`.
        """
        indexes = {
            candidate.spec: candidate for candidate in self._indexes() if candidate.spec in specs
        }
        self._locate(list(indexes.values()), sorted(conjuncts_of(self.state.predicate), key=_cost))
        remaining = np.flatnonzero(self.state.maybe)
        positions = {}
        if with_positions:
            all_positions = self.state.positions
            positions = {
                i: all_positions[i].serialize() for i in remaining.tolist() if i in all_positions
            }
        used = {
            spec: (candidate.consulted, candidate.pruned, candidate.errors)
            for spec, candidate in indexes.items()
        }
        missing = {
            note.index: (True, 0, [note.detail]) for note in self.state.notes if note.index in specs
        }
        return Answer(remaining, positions, {**used, **missing})

    def _merge(self, indexes: Indexes, shares: Sequence[Answer]) -> None:
        """Apply the results of all shares."""
        self.state.maybe[:] = False
        for share in shares:
            self.state.maybe[share.left] = True
            self.state.positions.update(
                {i: BitMap.deserialize(data) for i, data in share.positions.items()}
            )
            for candidate in indexes:
                consulted, pruned, damaged = share.used[candidate.spec]
                candidate.consulted |= consulted
                candidate.pruned += pruned
                candidate.errors += damaged

    def _indexes(self) -> Iterator[TableIndex]:
        state, snapshot = self.state, self.state.snapshot
        tests = list(leaves(state.predicate))
        for text in snapshot.definition.indexes:
            spec, index = index_of(text)
            if isinstance(index, str):
                state.missing(text, explained(snapshot.definition, text, index))
                continue
            covered = snapshot.covered(text)
            summaries = state.metadata.summaries.directory(snapshot, text, index)
            table_index = TableIndex(state, text, spec.columns, index, summaries, covered)
            if all(set(leaf.columns).isdisjoint(spec.columns) for leaf in tests):
                state.unused(
                    text,
                    "column_not_tested",
                    f"the predicate does not test {', '.join(spec.columns)}",
                )
            elif not any(map(table_index.can_test, tests)):
                columns = ", ".join(spec.columns)
                state.unused(
                    text,
                    "operator_not_supported",
                    f"it does not support these tests of {columns}",
                )
            elif covered.any() or not len(snapshot):
                yield table_index
            else:
                state.unused(
                    text,
                    "not_covered",
                    "no file is covered yet; run t.rebuild_index() or mdt index build",
                )

    # Round 1: segments

    def _prune(self, indexes: Indexes, conjunct: Predicate) -> None:
        usable = _usable(indexes, conjunct)
        if not usable:
            return
        files = np.flatnonzero(self.state.maybe)
        if len(files) and any(candidate.index.row_groups for candidate in usable):
            verdict = self._row_group_verdict(usable, conjunct, files)
        else:
            verdict = _verdict(
                usable,
                conjunct,
                len(files),
                lambda candidate, leaf: candidate.verdicts(leaf, files),
            )
        self.state.maybe[files[~verdict]] = False
        for candidate in usable:
            candidate.pruned += int((~verdict & candidate.covered[files]).sum())

    def _row_group_verdict(
        self, usable: Indexes, conjunct: Predicate, file_numbers: Int64Array
    ) -> BoolArray:
        """Return MAYBE or NO for each segment by its row groups, bool[n]. Record the remaining row
        groups.
        """
        files = self.state.snapshot.files.take(("row_group_rows",), file_numbers)
        row_groups = np.maximum(
            numbers(pc.list_value_length(files["row_group_rows"])).astype(np.int64), 1
        )
        row_group_verdicts = _verdict(
            usable,
            conjunct,
            int(row_groups.sum()),
            lambda candidate, leaf: candidate.row_group_verdicts(leaf, file_numbers, row_groups),
        )
        verdict = np.ones(len(file_numbers), np.bool_)
        file_verdicts = np.split(row_group_verdicts, np.cumsum(row_groups)[:-1])
        for n, (file, remaining) in enumerate(
            zip(file_numbers.tolist(), file_verdicts, strict=True)
        ):
            previous = self.state.row_groups.get(file, np.ones(len(remaining), np.bool_))
            narrowed = remaining & previous
            verdict[n] = narrowed.any()
            if verdict[n] and not narrowed.all():
                self.state.row_groups[file] = narrowed
                for candidate in usable:
                    if candidate.index.row_groups and candidate.covered[file]:
                        candidate.row_groups += int(np.count_nonzero(previous & ~narrowed))
        return verdict

    # Round 2: positions

    def _locate(self, indexes: Indexes, conjuncts: Sequence[Predicate]) -> None:
        parts = [predicate or And(tuple(tests)) for tests, predicate in _by_column(conjuncts)]
        steps = [(usable, part) for part in parts if (usable := _usable(indexes, part))]
        if not steps:
            return
        requested = np.flatnonzero(self.state.maybe)
        shards = ShardRows.from_files(self.state.snapshot, requested)
        within = shards.within(self.state.positions)
        answers: Rows = [None] * len(shards)
        is_alive = np.ones(len(requested), np.bool_)
        for usable, part in steps:
            _narrow(answers, shards.shards, within, partial(_evaluate, usable, part))
            still_alive = shards.alive(answers)
            for candidate in usable:
                candidate.pruned += int(
                    (is_alive & ~still_alive & candidate.covered[requested]).sum()
                )
            is_alive = still_alive
        self.state.maybe[requested[~is_alive]] = False
        for file, rows in shards.of_files(answers):
            previous = self.state.positions.get(file)
            self.state.positions[file] = rows if previous is None else rows & previous


def _usable(indexes: Indexes, conjunct: Predicate) -> list[TableIndex]:
    tests = list(leaves(conjunct))
    return [candidate for candidate in indexes if any(map(candidate.can_test, tests))]


def _verdict(
    indexes: Indexes, predicate: Predicate, n: int, ask: Callable[[TableIndex, Leaf], BoolArray]
) -> BoolArray:
    """Return MAYBE or NO for n segments or row groups, bool[n].

    Args:
        ask: Gets the verdicts of an index.
    """
    return verdicts(
        predicate, n, lambda leaf: (ask(index, leaf) for index in indexes if index.can_test(leaf))
    )


def _narrow(
    answers: Rows, shards: Int64Array, within: Rows, ask: Callable[[Int64Array, Rows], Rows]
) -> None:
    """Intersect the positions ``answers`` in each shard with new answers, in place.

    Args:
        ask: Takes shards and their relevant positions. Shards without remaining rows are skipped.
    """
    live, before, among = [], [], []
    for n, rows in enumerate(answers):
        if rows is None or rows:
            live.append(n)
            before.append(rows)
            among.append(rows or within[n])
    new_answers = ask(shards[live], among)
    for n, rows in zip(live, intersected(before, new_answers), strict=True):
        answers[n] = rows


def _evaluate(indexes: Indexes, predicate: Predicate, shards: Int64Array, within: Rows) -> Rows:
    """Return the positions in each shard that may match, restricted to ``within``."""
    match predicate:
        case Unknown():
            return [None] * len(shards)
        case And(children):
            return _all(indexes, sorted(children, key=_cost), shards, within)
        case Or(children):
            return _any(indexes, children, shards, within)
    return _tests(indexes, [predicate], shards, within)


def _tests(indexes: Indexes, tests: Sequence[Leaf], shards: Int64Array, within: Rows) -> Rows:
    """Evaluate a conjunction of tests on one column. Each group of indexes gets its tests
    together.
    """
    groups: dict[tuple[int, ...], list[Leaf]] = {}
    for leaf in tests:
        able = tuple(n for n, candidate in enumerate(indexes) if candidate.can_test(leaf))
        groups.setdefault(able, []).append(leaf)
    answers: Rows = [None] * len(shards)
    for able, group in groups.items():
        answers = intersected(
            answers, _first_answer([indexes[n] for n in able], group, shards, within)
        )
    return answers


def _first_answer(
    indexes: Indexes, tests: Sequence[Leaf], shards: Int64Array, within: Rows
) -> Rows:
    """Return the answer of the first index that covers and can read each shard. All know
    ``tests``.
    """

    def ask(index: TableIndex, unanswered: list[int]) -> Rows:
        return index.positions(tests, shards[unanswered], [within[n] for n in unanswered])

    return first_answers(len(shards), [partial(ask, index) for index in indexes])


def _all(indexes: Indexes, children: Sequence[Predicate], shards: Int64Array, within: Rows) -> Rows:
    """Intersect the children's positions. Shards without remaining positions are skipped."""
    answers: Rows = [None] * len(shards)
    for tests, child in _by_column(children):
        ask = (
            partial(_tests, indexes, tests) if child is None else partial(_evaluate, indexes, child)
        )
        _narrow(answers, shards, within, ask)
    return answers


def _any(indexes: Indexes, children: Sequence[Predicate], shards: Int64Array, within: Rows) -> Rows:
    """Unite the children's positions. None, if any child is unknown."""
    if not children:
        return [BitMap() for _ in shards]
    answers = _evaluate(indexes, children[0], shards, within)
    for child in children[1:]:
        live = [n for n, rows in enumerate(answers) if rows is not None]
        child_answers = _evaluate(indexes, child, shards[live], [within[n] for n in live])
        for n, rows in zip(live, child_answers, strict=True):
            previous = answers[n]
            answers[n] = None if rows is None or previous is None else previous | rows
    return answers


def conjuncts_of(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the conditions that must all hold."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from conjuncts_of(child)
    else:
        yield predicate


def _by_column(children: Sequence[Predicate]) -> Iterator[tuple[list[Leaf], Predicate | None]]:
    """Group tests by column, in order of cost: yield (tests, None) for a column, ([], predicate)
    otherwise.
    """
    tests: dict[tuple[str, ...], list[Leaf]] = {}
    for child in children:
        if isinstance(child, Leaf):
            tests.setdefault(child.columns, []).append(child)
    for child in children:
        if not isinstance(child, Leaf):
            yield [], child
        elif child is tests[child.columns][0]:
            yield tests[child.columns], None


def _cost(predicate: Predicate) -> int:
    """Return a rank. Cheap and selective predicates come first."""
    if isinstance(predicate, Leaf):
        return _CHEAP.get(predicate.op, _OTHER_OP)
    return _OTHER_OP + 1

"""What a table's skipping indexes prove about a predicate: segments without a match, and positions that may match.

Two rounds, cheapest first.  Indexes that keep a small summary a segment (Bloom filters, counts) give a verdict on whole
segments.  Then indexes that know positions (bitmaps, inverted text) are asked about the segments that are left: for each
leaf the first index that covers a segment answers, positions of several leaves are intersected under And and united
under Or, and a segment without positions is done.  Their summaries are read only now, and only the parts that the test
needs; from remote storage in threads.

What is not covered, not installed, damaged or not understood proves nothing and is named in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes import paths as column_paths
from indexes import registry
from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary, intersected
from indexes.pieces import HEAD_BYTES
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, leaves
from mdt.errors import Corrupt
from mdt.metadata import Metadata
from mdt.skipping import find_index
from mdt.snapshot import Snapshot
from mdt.summaries import Asked, Known

REMOTE_THREADS = 32
"""Requests that wait at the same time for summaries of a store that is not local."""
_CHEAP = {"=": 0, "<=>": 0, "match": 1, "in": 1, "starts with": 2, "is null": 2, "like": 3}
_OTHER_OP = 4

T = TypeVar("T")

Rows = list[BitMap | None]
"""For each asked segment the positions that may match; None: any."""


@dataclass(frozen=True, slots=True)
class IndexNote:
    """What one index did for a plan.

    ``covered``: segments of which it has a summary.  ``pruned``: segments that it proved empty (where several indexes
    answered one condition together, each counts them).  ``used``: whether it was asked.  ``reason``: a code, ``detail``:
    a sentence.
    """

    index: str
    used: bool
    covered: int
    pruned: int
    reason: str
    detail: str


@dataclass(slots=True)
class _Entry:
    """One index of the table and what became of it."""

    spec: str
    column: str
    index: SkippingIndex
    covered: BoolArray
    asked: bool = False
    pruned: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Planning:
    """The state of a plan.  ``maybe``: bool[segments]; ``positions``: segment row -> the only rows that may match."""

    metadata: Metadata
    snapshot: Snapshot
    predicate: Predicate
    maybe: BoolArray
    positions: dict[int, BitMap] = field(default_factory=dict)
    notes: list[IndexNote] = field(default_factory=list)

    def note(self, index: str, verdict: BoolArray, covered: int, detail: str) -> None:
        """Apply a verdict, bool[segments], and record what it did."""
        pruned = int((self.maybe & ~verdict).sum())
        self.maybe &= verdict
        self.notes.append(IndexNote(index, True, covered, pruned, "used", detail))

    def unused(self, index: str, reason: str, detail: str) -> None:
        """Record that an index was of no use."""
        self.notes.append(IndexNote(index, False, 0, 0, reason, detail))


@dataclass(frozen=True, slots=True)
class RowSets:
    """The two rounds on one plan."""

    work: Planning

    def run(self) -> None:
        """Ask every index of the table that can help; shrink the plan's segments and positions, fill its notes."""
        entries = list(self._entries())
        conjuncts = sorted(conjuncts_of(self.work.predicate), key=_cost)
        for conjunct in conjuncts:
            self._verdicts([e for e in entries if not e.index.finds_rows], conjunct)
        for tests, other in _by_column(conjuncts):
            self._rows([e for e in entries if e.index.finds_rows], other or And(tuple(tests)))
        self.work.notes += [self._note(entry) for entry in entries]

    def _entries(self) -> Iterator[_Entry]:
        tested = {leaf.column for leaf in leaves(self.work.predicate)}
        for text in self.work.snapshot.definition.indexes:
            spec = registry.parse_spec(text)
            index = find_index(spec)
            if isinstance(index, str):
                self.work.unused(text, "not_installed", index)
            elif spec.column not in tested:
                self.work.unused(text, "column_not_tested", f"the predicate does not test {spec.column}")
            elif not any(self._can_test(index, leaf) for leaf in leaves(self.work.predicate) if leaf.column == spec.column):
                self.work.unused(text, "operator_not_supported", f"it knows nothing about these tests of {spec.column}")
            else:
                covered = self.work.snapshot.covered(text)
                if covered.any() or not len(covered):
                    yield _Entry(text, spec.column, index, covered)
                else:
                    self.work.unused(text, "not_covered", "no file is covered yet; t.rebuild_index() or mdt index build")

    def _note(self, entry: _Entry) -> IndexNote:
        covered = int(entry.covered.sum())
        if not entry.asked and (self.work.maybe & entry.covered).any():
            return IndexNote(entry.spec, False, covered, 0, "another_index", "another index answered")
        if not entry.asked:
            why = "cheaper indexes left no file that it covers"
            return IndexNote(entry.spec, False, covered, 0, "nothing_left", why)
        if entry.damaged:
            detail = f"{len(entry.damaged)} summaries cannot be read, the first: {entry.damaged[0]}"
            return IndexNote(entry.spec, True, covered, entry.pruned, "damaged", detail)
        return IndexNote(entry.spec, True, covered, entry.pruned, "used", f"tests on {entry.column}")

    def _can_test(self, index: SkippingIndex, leaf: Leaf) -> bool:
        return index.can_test(leaf, self._type(leaf))

    def _type(self, leaf: Leaf) -> pa.DataType:
        return column_paths.type_at(self.work.snapshot.definition.schema, leaf.column)

    # Round 1: whole segments

    def _verdicts(self, entries: Sequence[_Entry], conjunct: Predicate) -> None:
        usable = self._usable(entries, conjunct)
        if not usable:
            return
        asked = np.flatnonzero(self.work.maybe)
        verdict = self._verdict(usable, conjunct, asked)
        self.work.maybe[asked[~verdict]] = False
        for entry in usable:
            entry.pruned += int((~verdict & entry.covered[asked]).sum())

    def _usable(self, entries: Sequence[_Entry], conjunct: Predicate) -> list[_Entry]:
        tests = list(leaves(conjunct))
        return [e for e in entries if any(t.column == e.column and self._can_test(e.index, t) for t in tests)]

    def _verdict(self, entries: Sequence[_Entry], predicate: Predicate, asked: Int64Array) -> BoolArray:
        """Return MAYBE or NO -> bool[len(asked)]."""
        match predicate:
            case Unknown():
                return np.ones(len(asked), np.bool_)
            case And(children):
                return _reduced(np.logical_and, [self._verdict(entries, c, asked) for c in children], True, len(asked))
            case Or(children):
                return _reduced(np.logical_or, [self._verdict(entries, c, asked) for c in children], False, len(asked))
        verdict = np.ones(len(asked), np.bool_)
        for entry in entries:
            if entry.column == predicate.column and self._can_test(entry.index, predicate):
                mine = np.flatnonzero(entry.covered[asked])
                question = partial(_verdicts_of, entry.index, predicate, self._type(predicate))
                known, about = self._known(entry, asked[mine])
                found = self._ask(entry, known, about, question, True, [None] * len(about.summaries))
                verdict[mine] &= np.array(found, np.bool_)[about.of]
        return verdict

    # Round 2: positions

    def _rows(self, entries: Sequence[_Entry], conjunct: Predicate) -> None:
        usable = self._usable(entries, conjunct)
        if not usable:
            return
        asked = np.flatnonzero(self.work.maybe)
        found = self._evaluate(usable, conjunct, asked, [self.work.positions.get(i) for i in asked.tolist()])
        empty = []
        for i, rows in zip(asked.tolist(), found, strict=True):
            if rows is None:
                continue
            before = self.work.positions.get(i)
            if before is not None:
                rows &= before
            self.work.positions[i] = rows
            if not rows:
                empty.append(i)
        self.work.maybe[empty] = False
        for entry in usable:
            entry.pruned += int(entry.covered[empty].sum())

    def _evaluate(self, entries: Sequence[_Entry], predicate: Predicate, asked: Int64Array, within: Rows) -> Rows:
        """Return the rows of each asked segment that may match, as far as those ``within`` are concerned."""
        match predicate:
            case Unknown():
                return [None] * len(asked)
            case And(children):
                return self._all(entries, sorted(children, key=_cost), asked, within)
            case Or(children):
                return self._any(entries, children, asked, within)
        return self._tests(entries, [predicate], asked, within)

    def _tests(self, entries: Sequence[_Entry], tests: Sequence[Leaf], asked: Int64Array, within: Rows) -> Rows:
        """Answer tests of one column that must all hold; those that the same indexes know are asked together."""
        groups: dict[tuple[int, ...], list[Leaf]] = {}
        for leaf in tests:
            mine = [e.column == leaf.column and self._can_test(e.index, leaf) for e in entries]
            groups.setdefault(tuple(np.flatnonzero(mine).tolist()), []).append(leaf)
        found: Rows = [None] * len(asked)
        for capable, group in groups.items():
            found = intersected(found, self._first_answer([entries[n] for n in capable], group, asked, within))
        return found

    def _first_answer(
        self, entries: Sequence[_Entry], tests: Sequence[Leaf], asked: Int64Array, within: Rows
    ) -> Rows:
        """Ask for each segment the first of ``entries``, which all know ``tests``, that covers and can read it."""
        found: Rows = [None] * len(asked)
        open_ = np.ones(len(asked), np.bool_)
        for entry in entries:
            mine = np.flatnonzero(open_ & entry.covered[asked])
            question = partial(_rows_of, entry.index, tests, self._type(tests[0]))
            if not len(mine):
                continue
            places = mine.tolist()
            known, about = self._known(entry, asked[mine])
            answers = self._ask(entry, known, about, question, None, about.within([within[at] for at in places]))
            shares = about.spread(answers, self.work.snapshot.rows[asked[mine]])
            for at, answer in zip(places, shares, strict=True):
                found[at] = answer
                open_[at] = answer is None
        return found

    def _all(
        self, entries: Sequence[_Entry], children: Sequence[Predicate], asked: Int64Array, within: Rows
    ) -> Rows:
        """Intersect; a segment that has no position left is not asked about the rest."""
        found: Rows = [None] * len(asked)
        for tests, child in _by_column(children):
            live = [n for n, rows in enumerate(found) if rows is None or rows]
            among = [within[n] if (rows := found[n]) is None else rows for n in live]
            answers = (
                self._evaluate(entries, child, asked[live], among)
                if child is not None
                else self._tests(entries, tests, asked[live], among)
            )
            for at, rows in zip(live, intersected([found[n] for n in live], answers), strict=True):
                found[at] = rows
        return found

    def _any(
        self, entries: Sequence[_Entry], children: Sequence[Predicate], asked: Int64Array, within: Rows
    ) -> Rows:
        """Unite; None wherever one of the children says so."""
        if not children:
            return [BitMap() for _ in asked]
        found = self._evaluate(entries, children[0], asked, within)
        for child in children[1:]:
            live = [n for n, rows in enumerate(found) if rows is not None]
            answers = self._evaluate(entries, child, asked[live], [within[n] for n in live])
            for at, rows in zip(live, answers, strict=True):
                before = found[at]
                found[at] = None if rows is None or before is None else before | rows
        return found

    # Asking one index

    def _ask(
        self,
        entry: _Entry,
        known: Known,
        about: Asked,
        question: Callable[[Sequence[Summary], Rows], list[T]],
        guess: T,
        within: Rows,
    ) -> list[T]:
        """Return what each summary that is asked answers, ``guess`` where it cannot be read."""
        entry.asked |= bool(len(about.of))
        asked = list(zip(about.summaries.tolist(), within, strict=True))

        def answer(part: Sequence[tuple[int, BitMap | None]]) -> list[T]:
            try:
                return question([known.open(n) for n, _ in part], [among for _, among in part])
            except (ValueError, Corrupt) as error:
                if len(part) > 1:
                    return [one for single in part for one in answer([single])]
                entry.damaged.append(str(error))
                return [guess]

        if self.work.metadata.storage.local_path("") is not None or len(asked) < 2:
            return answer(asked) if asked else []
        size = -(-len(asked) // REMOTE_THREADS)
        parts = [asked[at : at + size] for at in range(0, len(asked), size)]
        with ThreadPoolExecutor(REMOTE_THREADS) as pool:
            return [one for part in pool.map(answer, parts) for one in part]

    def _known(self, entry: _Entry, rows: Int64Array) -> tuple[Known, Asked]:
        """Return the summaries of segment ``rows``; those of the same snapshot are found at once again."""
        snapshot = self.work.snapshot
        known = self.work.metadata.summaries.of_snapshot(snapshot.seq, entry.spec, entry.index, len(snapshot))
        return known, known.ask(rows, partial(snapshot.index_summaries, entry.spec))


def _verdicts_of(
    index: SkippingIndex, leaf: Leaf, type: pa.DataType, summaries: Sequence[Summary], within: Rows
) -> list[bool]:
    verdicts: list[bool] = index.prune(summaries, leaf, type).tolist()
    return verdicts


def _rows_of(
    index: SkippingIndex, tests: Sequence[Leaf], type: pa.DataType, summaries: Sequence[Summary], within: Rows
) -> Rows:
    return index.rows_within(summaries, tests, type, within)


def warm_index(metadata: Metadata, snapshot: Snapshot, spec: str, columns: Sequence[str] | None) -> None:
    """Open the summaries of one index, if its column is among ``columns`` (None: any); what is damaged is left."""
    parsed = registry.parse_spec(spec)
    index = find_index(parsed)
    if isinstance(index, str) or (columns is not None and parsed.column not in columns):
        return
    rows = np.flatnonzero(snapshot.covered(spec) & (snapshot.rows > snapshot.dead_rows))
    for found in snapshot.index_summaries(spec, rows):
        with suppress(Corrupt):
            if found is not None:
                metadata.summaries.open(index, found).read(0, HEAD_BYTES)


def conjuncts_of(predicate: Predicate) -> Iterator[Predicate]:
    """Yield the conditions that must all hold."""
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from conjuncts_of(child)
    else:
        yield predicate


def _by_column(children: Sequence[Predicate]) -> Iterator[tuple[list[Leaf], Predicate | None]]:
    """Yield the tests of each column together (None beside them), and everything else alone; in order of cost."""
    tests: dict[str, list[Leaf]] = {}
    for child in children:
        if isinstance(child, Leaf):
            tests.setdefault(child.column, []).append(child)
    for child in children:
        if not isinstance(child, Leaf):
            yield [], child
        elif child is tests[child.column][0]:
            yield tests[child.column], None


def _cost(predicate: Predicate) -> int:
    """Return a rank: what costs little and leaves little comes first."""
    if isinstance(predicate, Leaf):
        return _CHEAP.get(predicate.op, _OTHER_OP)
    return _OTHER_OP + 1


def _reduced(join: np.ufunc, parts: Sequence[BoolArray], empty: bool, n: int) -> BoolArray:
    return np.asarray(reduce(join, parts) if parts else np.full(n, empty), np.bool_)

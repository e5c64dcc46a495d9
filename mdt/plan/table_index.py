"""One skipping index of a table as a plan asks it: which segments it covers, its summaries, what became of the questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary
from indexes.predicate import Call, Leaf, forms
from mdt.errors import Corrupt, MdtError
from mdt.metadata.index_summaries import Asked, SummaryDirectory
from mdt.metadata.skipping import row_group_summaries, type_of
from mdt.plan.places import Layout, Places
from mdt.plan.plan_state import IndexNote, PlanState

REMOTE_THREADS = 32
"""Requests that wait at the same time for summaries of a store that is not local."""

S = TypeVar("S")
T = TypeVar("T")

Rows = list[BitMap | None]
"""For each place the positions that may match; None: any."""


@dataclass(slots=True)
class TableIndex:
    """One index that can help a plan.

    ``known``: its summaries.  ``covered``: bool[numbered].  ``layout``: of the places that are asked about, with ``rows``: int64[places].
    ``asked``, ``pruned``, ``damaged``: whether it was asked, how many segments it proved empty, which summaries could not
    be read.  ``row_groups``: how many row groups it proved empty in segments that are left.
    """

    work: PlanState
    spec: str
    columns: tuple[str, ...]
    index: SkippingIndex
    known: SummaryDirectory
    covered: BoolArray
    layout: Layout = field(default_factory=lambda: Layout.nothing(0))
    rows: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    asked: bool = False
    pruned: int = 0
    row_groups: int = 0
    damaged: list[str] = field(default_factory=list)

    def can_test(self, leaf: Leaf) -> bool:
        """Return whether the index may know something about ``leaf``."""
        return bool(self._forms(leaf))

    def _forms(self, leaf: Leaf) -> list[Leaf]:
        """Return the ways to say ``leaf`` that the index may know something about.

        A way is asked about what those before it left open: an index may take every test for possible, and know but one.
        """
        if isinstance(leaf, Call):
            known = leaf.function in self.index.functions and set(leaf.columns).issubset(self.columns)
        else:
            known = leaf.column in self.columns
        return [form for form in forms(leaf) if self._is_known(form)] if known else []

    def _is_known(self, form: Leaf) -> bool:
        try:
            return bool(self.index.can_test(form, self._type()))
        except Exception:  # noqa: BLE001 - as in _ask; it is not asked then
            return False

    def layout_of(self, segments: Int64Array) -> Layout:
        """Return how the index numbers the rows of ``segments``."""
        layout = Layout.nothing(len(segments))
        mine = self.covered[segments]
        look_up = partial(self.work.snapshot.index_summaries, self.spec)
        layout.number[mine], layout.first[mine] = self.known.of(segments[mine], look_up)
        return layout

    def settle(self, places: Places, layout: Layout) -> None:
        """From now on speak of ``places``; ``layout``: of their segments."""
        self.layout, self.rows = places.layout(layout), places.place_rows()

    def verdicts(self, leaf: Leaf, segments: Int64Array) -> BoolArray:
        """Return MAYBE or NO for each of ``segments`` -> bool[n]."""
        verdict = np.ones(len(segments), np.bool_)
        for form in self._forms(leaf):
            left = np.flatnonzero(verdict)
            verdict[left] = self._verdicts(form, segments[left])
        return verdict

    def _verdicts(self, leaf: Leaf, segments: Int64Array) -> BoolArray:
        verdict = np.ones(len(segments), np.bool_)
        mine = np.flatnonzero(self.covered[segments])
        layout = self.layout_of(segments[mine])

        def question(summaries: Sequence[Summary], _: list[None]) -> list[bool]:
            answers: list[bool] = self.index.prune(summaries, leaf, self._type()).tolist()
            if len(answers) != len(summaries):
                raise ValueError(f"{self.index.name} gave {len(answers)} verdicts on {len(summaries)} files")
            return answers

        about = Asked.about(layout.number, layout.first)
        found = self._ask(about, question, True, [None] * len(about.summaries))
        verdict[mine] = np.array(found, np.bool_)[about.of]
        return verdict

    def row_group_verdicts(self, leaf: Leaf, segments: Int64Array, row_groups: Int64Array) -> BoolArray:
        """Return MAYBE or NO for each row group of ``segments``, which have ``row_groups``: int64[n] of them -> bool[sum]."""
        if not self.index.row_groups:
            return np.repeat(self.verdicts(leaf, segments), row_groups)
        verdict = np.ones(int(row_groups.sum()), np.bool_)
        for form in self._forms(leaf):
            verdict &= self._row_group_verdicts(form, segments, row_groups)
        return verdict

    def _row_group_verdicts(self, leaf: Leaf, segments: Int64Array, row_groups: Int64Array) -> BoolArray:
        parts = [np.ones(count, np.bool_) for count in row_groups.tolist()]
        mine = np.flatnonzero(self.covered[segments])
        layout = self.layout_of(segments[mine])

        def question(summaries: Sequence[Summary], counts: Sequence[int]) -> list[BoolArray | None]:
            each = [row_group_summaries(one, count) for one, count in zip(summaries, counts, strict=True)]
            found = self.index.prune(list(chain.from_iterable(each)), leaf, self._type())
            if len(found) != sum(counts):
                raise ValueError(f"{self.index.name} gave {len(found)} verdicts on {sum(counts)} row groups")
            return list(np.split(found, np.cumsum(counts)[:-1]))

        about = Asked.about(layout.number, layout.first)
        answers = self._ask(about, question, None, row_groups[mine].tolist())
        for at, found in zip(mine.tolist(), answers, strict=True):
            parts[at] = parts[at] if found is None else found
        return np.concatenate(parts) if parts else np.empty(0, np.bool_)

    def positions(self, tests: Sequence[Leaf], places: Int64Array, within: Rows) -> Rows:
        """Return which rows of ``places``, as far as those ``within`` are concerned, may match all ``tests``.

        None also for a place that is not covered, or whose summary cannot be read.
        """
        found: Rows = [None] * len(places)
        for said in _rounds([self._forms(test) for test in tests]):
            left = [at for at, rows in enumerate(found) if rows is None]
            if left:
                answers = self._positions(said, places[left], [within[at] for at in left])
                for at, rows in zip(left, answers, strict=True):
                    found[at] = rows
        return found

    def _positions(self, tests: Sequence[Leaf], places: Int64Array, within: Rows) -> Rows:
        found: Rows = [None] * len(places)
        mine = np.flatnonzero(self.layout.number[places] >= 0)
        about = Asked.about(self.layout.number[places[mine]], self.layout.first[places[mine]])

        def question(summaries: Sequence[Summary], among: Rows) -> Rows:
            return self.index.rows_within(summaries, tests, self._type(), among)

        answers = self._ask(about, question, None, about.within([within[at] for at in mine.tolist()]))
        shares = about.spread(answers, self.rows[places[mine]])
        for at, answer in zip(mine.tolist(), shares, strict=True):
            found[at] = answer
        return found

    def note(self) -> IndexNote:
        """Return what became of it."""
        covered = int(self.covered.sum())
        if not self.asked and (self.work.maybe & self.covered).any():
            return IndexNote(self.spec, False, covered, 0, "another_index", "another index answered")
        if not self.asked:
            why = "cheaper indexes left no file that it covers"
            return IndexNote(self.spec, False, covered, 0, "nothing_left", why)
        where = self.work.where if self.index.finds_rows else ""
        if self.damaged:
            detail = f"{len(self.damaged)} summaries cannot be read, the first: {self.damaged[0]}{where}"
            return IndexNote(self.spec, True, covered, self.pruned, "damaged", detail, self.row_groups)
        detail = f"tests on {', '.join(self.columns)}{where}"
        return IndexNote(self.spec, True, covered, self.pruned, "used", detail, self.row_groups)

    def _type(self) -> pa.DataType:
        return type_of(self.work.snapshot.definition.schema, self.columns, self.index)

    def _ask(
        self, about: Asked, question: Callable[[Sequence[Summary], list[S]], list[T]], guess: T, within: Sequence[S]
    ) -> list[T]:
        """Return what each summary that is asked answers, ``guess`` where it cannot be read.

        ``within``: what the question is told of each.
        """
        self.asked |= bool(len(about.of))
        asked = list(zip(about.summaries.tolist(), within, strict=True))

        def answer(part: Sequence[tuple[int, S]]) -> list[T]:
            try:
                return question([self.known.open(n) for n, _ in part], [among for _, among in part])
            except Exception as error:  # the index may be of any package, and fail in any way
                if isinstance(error, MdtError) and not isinstance(error, Corrupt):
                    raise
                if len(part) > 1:
                    return [one for single in part for one in answer([single])]
                self.damaged.append(str(error) or type(error).__name__)
                return [guess]

        if self.work.metadata.storage.local_path("") is not None or len(asked) < 2:
            return answer(asked) if asked else []
        size = -(-len(asked) // REMOTE_THREADS)
        parts = [asked[at : at + size] for at in range(0, len(asked), size)]
        with ThreadPoolExecutor(REMOTE_THREADS) as pool:
            return [one for part in pool.map(answer, parts) for one in part]


def _rounds(ways: Sequence[Sequence[Leaf]]) -> list[list[Leaf]]:
    """Return the tests as they are asked, one round after the other; ``ways``: of each test, at least one."""
    rounds = max(map(len, ways))
    return [[way[min(n, len(way) - 1)] for way in ways] for n in range(rounds)]

"""A skipping index of a table during planning: its coverage, its summaries, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa

from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary
from indexes.predicate import Call, Leaf, forms
from mdt.errors import Corrupt, MdtError
from mdt.metadata.skipping_indexes import Parts, type_of
from mdt.metadata.statistics.index_summaries import SummaryDirectory
from mdt.plan.plan_state import IndexNote, PlanState
from mdt.plan.shard_rows import Rows, ShardRows, first_answers

REMOTE_THREADS = 32
"""Number of concurrent requests for summaries on a remote storage."""

T = TypeVar("T")


@dataclass(slots=True)
class TableIndex:
    """An index that can help a plan.

    Attributes:
        summaries: Its summaries.
        covered: Segments with a summary, bool[numbered].
        consulted: True if it was consulted.
        pruned: Number of segments that it proved empty.
        errors: Errors of unreadable summaries.
        row_groups: Number of row groups that it proved empty in remaining segments.
    """

    state: PlanState
    spec: str
    columns: tuple[str, ...]
    index: SkippingIndex
    summaries: SummaryDirectory
    covered: BoolArray
    consulted: bool = False
    pruned: int = 0
    row_groups: int = 0
    errors: list[str] = field(default_factory=list)

    def can_test(self, leaf: Leaf) -> bool:
        """Return True if the index may prune by ``leaf``."""
        return bool(self._forms(leaf))

    def _forms(self, leaf: Leaf) -> list[Leaf]:
        """Return the equivalent forms of ``leaf`` that the index may prune by.

        Each form is tested on what the previous forms left, because an index may accept all forms
        but only prune by one.
        """
        if isinstance(leaf, Call):
            applies = leaf.function in self.index.functions and set(leaf.columns).issubset(
                self.columns
            )
        else:
            applies = leaf.column in self.columns
        if not applies:
            return []
        return [form for form in forms(leaf) if self._is_known(form)]

    def _is_known(self, form: Leaf) -> bool:
        try:
            return bool(self.index.can_test(form, self._type()))
        except Exception:  # noqa: BLE001 - as in _ask; the index is then unused
            return False

    def verdicts(self, leaf: Leaf, files: Int64Array) -> BoolArray:
        """Return MAYBE or NO for each of ``files``, bool[n]."""
        return self._in_rounds(leaf, files, np.ones(len(files), np.int64))

    def row_group_verdicts(
        self, leaf: Leaf, files: Int64Array, row_groups: Int64Array
    ) -> BoolArray:
        """Return MAYBE or NO for each row group of ``files``, bool[sum].

        Args:
            row_groups: Number of row groups in each file, int64[n].
        """
        if not self.index.row_groups:
            return np.repeat(self.verdicts(leaf, files), row_groups)
        return self._in_rounds(leaf, files, row_groups)

    def _in_rounds(self, leaf: Leaf, files: Int64Array, parts: Int64Array) -> BoolArray:
        """Test each form of ``leaf`` on the files that the previous forms left, bool[parts]."""
        verdict = np.ones(int(parts.sum()), np.bool_)
        file_of_part = np.repeat(np.arange(len(files)), parts)
        for form in self._forms(leaf):
            remaining = np.unique(file_of_part[verdict])
            selected = np.isin(file_of_part, remaining)
            verdict[selected] &= self._verdicts(form, files[remaining], parts[remaining])
        return verdict

    def _verdicts(self, leaf: Leaf, files: Int64Array, parts: Int64Array) -> BoolArray:
        """Test the summaries of the parts of ``files``, bool[sum].

        Args:
            parts: Their numbers, int64[n].
        """
        verdict = np.ones(int(parts.sum()), np.bool_)
        covered = np.flatnonzero(self.covered[files])
        rows = ShardRows.from_files(self.state.snapshot, files[covered])
        counts = parts[covered].tolist()
        rows_by_shard = [counts[start:stop] for start, stop in pairwise(rows.start.tolist())]

        def question(shards: Sequence[tuple[Summary, int]]) -> list[BoolArray | None]:
            parts_by_file = [
                _parts(summary, rows.ranges[at], rows_by_shard[at]) for summary, at in shards
            ]
            answers = self.index.prune(list(chain.from_iterable(parts_by_file)), leaf, self._type())
            if len(answers) != sum(map(len, parts_by_file)):
                raise ValueError(
                    f"{self.index.name} gave {len(answers)} verdicts on"
                    f" {sum(map(len, parts_by_file))} parts"
                )
            return list(
                np.split(answers, np.cumsum([len(summaries) for summaries in parts_by_file])[:-1])
            )

        answers = self._ask(rows.shards, question)
        verdicts = [
            np.ones(sum(counts), np.bool_) if answer is None else answer
            for answer, counts in zip(answers, rows_by_shard, strict=True)
        ]
        if verdicts:
            verdict[np.repeat(self.covered[files], parts)] = np.concatenate(verdicts)
        return verdict

    def positions(self, tests: Sequence[Leaf], shards: Int64Array, within: Rows) -> Rows:
        """Return the positions in ``shards``, restricted to ``within``, that may match all
        ``tests``.

        None also for a shard that is not covered or has an unreadable summary.
        """

        def ask(form_tests: Sequence[Leaf], unanswered: list[int]) -> Rows:
            return self._positions(
                form_tests, shards[unanswered], [within[at] for at in unanswered]
            )

        rounds = _rounds([self._forms(test) for test in tests])
        return first_answers(len(shards), [partial(ask, form_tests) for form_tests in rounds])

    def _positions(self, tests: Sequence[Leaf], shards: Int64Array, within: Rows) -> Rows:
        positions: Rows = [None] * len(shards)
        covered = np.flatnonzero(self.state.snapshot.covered_shards(self.spec)[shards])

        def question(summaries: Sequence[tuple[Summary, int]]) -> Rows:
            among = [within[covered[at]] for _, at in summaries]
            return self.index.rows_within(
                [summary for summary, _ in summaries], tests, self._type(), among
            )

        for at, rows in zip(covered.tolist(), self._ask(shards[covered], question), strict=True):
            positions[at] = rows
        return positions

    def note(self) -> IndexNote:
        """Return a note on its effect."""
        covered = int(self.covered.sum())
        if not self.consulted and (self.state.maybe & self.covered).any():
            return IndexNote(
                self.spec, False, covered, 0, "another_index", "another index answered"
            )
        if not self.consulted:
            why = "cheaper indexes pruned all files that it covers"
            return IndexNote(self.spec, False, covered, 0, "nothing_left", why)
        location = ""
        if self.index.finds_rows:
            location = self.state.where
        if self.errors:
            detail = (
                f"{len(self.errors)} summaries cannot be read, the first: {self.errors[0]}"
                f"{location}"
            )
            return IndexNote(
                self.spec, True, covered, self.pruned, "damaged", detail, self.row_groups
            )
        detail = f"tests on {', '.join(self.columns)}{location}"
        return IndexNote(self.spec, True, covered, self.pruned, "used", detail, self.row_groups)

    def _type(self) -> pa.DataType:
        return type_of(self.state.snapshot.definition.schema, self.columns, self.index)

    def _ask(
        self,
        shards: Int64Array,
        question: Callable[[Sequence[tuple[Summary, int]]], Sequence[T | None]],
    ) -> list[T | None]:
        """Return the answer of each shard's summary, or None if the summary cannot be read.

        Args:
            question: Takes opened summaries, each with its index in ``shards``.
        """
        self.consulted |= bool(len(shards))
        refs = self.summaries.summaries_of(
            shards, partial(self.state.snapshot.index_summaries, self.spec)
        )

        def answer(part: Sequence[int]) -> Sequence[T | None]:
            try:
                return question([(self.summaries.open(refs[at]), at) for at in part])
            except Exception as error:  # third-party indexes may raise anything
                if isinstance(error, MdtError) and not isinstance(error, Corrupt):
                    raise
                if len(part) > 1:
                    return [verdict for single in part for verdict in answer([single])]
                self.errors.append(str(error) or type(error).__name__)
                return [None]

        if not len(shards):
            return []
        if not self.state.metadata.storage.is_remote or len(shards) == 1:
            return list(answer(range(len(shards))))
        size = -(-len(shards) // REMOTE_THREADS)
        parts = [range(at, min(at + size, len(shards))) for at in range(0, len(shards), size)]
        with ThreadPoolExecutor(REMOTE_THREADS) as pool:
            return [verdict for part in pool.map(answer, parts) for verdict in part]


def _parts(
    summary: Summary, ranges: Sequence[tuple[int, int]], counts: Sequence[int]
) -> list[Summary]:
    """Return the summaries of the parts of a shard's files.

    Args:
        counts: Number of parts per file.

    Raises ValueError if the summary has other parts.
    """
    found = summary.keep(lambda: Parts(summary))
    found_parts: list[Summary] = []
    for (start, stop), count in zip(ranges, counts, strict=True):
        found_parts += found.within(start, stop, count)
    return found_parts


def _rounds(forms_of_tests: Sequence[Sequence[Leaf]]) -> list[list[Leaf]]:
    """Return the tests of each round.

    Args:
        forms_of_tests: The forms of each test, at least one.
    """
    rounds = max(map(len, forms_of_tests))
    return [[forms[min(n, len(forms) - 1)] for forms in forms_of_tests] for n in range(rounds)]

"""Files of a plan grouped by shard, and conversion between positions in files and in shards.

Conditions are evaluated on positions in shards. Only the final result is split by file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from mdt.errors import Corrupt
from mdt.forking import cached_property
from mdt.limits import SEGMENT_ROWS_MAX, SHARD_ROWS_MAX
from mdt.metadata.snapshot.snapshot import Snapshot

Rows = list[BitMap | None]
"""For each shard the positions that may match, or None if any may."""


@dataclass(frozen=True)
class ShardRows:
    """m shards with their n requested files.

    Attributes:
        shards: Shard numbers, ascending, int64[m].
        files: File numbers, ascending and therefore ordered by shard and first row, int64[n].
        start: Index of each shard's first file, and n, int64[m + 1].
        first, rows: Position of the first row and number of rows of each file, int64[n].
    """

    shards: Int64Array
    files: Int64Array
    start: Int64Array
    first: Int64Array
    rows: Int64Array

    @classmethod
    def from_files(cls, snapshot: Snapshot, files: Int64Array) -> ShardRows:
        """Return the shards of ``files``, which are ascending file numbers."""
        shards, start = np.unique(snapshot.shards.of_file[files], return_index=True)
        first, rows = snapshot.first_rows[files], snapshot.rows[files]
        _check_positions(first, rows, start, f"checkpoint {snapshot.checkpoint.seq}")
        return cls(shards, files, np.append(start, len(files)), first, rows)

    def __len__(self) -> int:
        return len(self.shards)

    @cached_property
    def ranges(self) -> list[list[tuple[int, int]]]:
        """The positions of each file in its shard, as [first, end), by shard."""
        by_file = list(zip(self.first.tolist(), (self.first + self.rows).tolist(), strict=True))
        return [by_file[start:stop] for start, stop in pairwise(self.start.tolist())]

    def within(self, positions: Mapping[int, BitMap]) -> Rows:
        """Return the relevant positions of each shard: the requested files, or their ``positions``
        positions.
        """
        starts = self.start.tolist()
        if not positions:
            return [_in_ranges(ranges) for ranges in self.ranges]
        files = self.files.tolist()
        return [
            self._within(files[start:stop], ranges, positions)
            for (start, stop), ranges in zip(pairwise(starts), self.ranges, strict=True)
        ]

    def _within(
        self, files: list[int], ranges: list[tuple[int, int]], known_positions: Mapping[int, BitMap]
    ) -> BitMap | None:
        if not any(file in known_positions for file in files):
            return _in_ranges(ranges)
        positions = BitMap()
        for file, (low, high) in zip(files, ranges, strict=True):
            rows = known_positions.get(file)
            if rows is None:
                positions.add_range(low, high)
            else:
                positions |= rows.shift(low)
        return positions

    def alive(self, answers: Rows) -> BoolArray:
        """Return True for each file with a position in its shard's answer, or if that is None, as
        bool[n].
        """
        verdict: list[bool] = []
        for positions, ranges in zip(answers, self.ranges, strict=True):
            if positions is None:
                verdict += [True] * len(ranges)
            elif not positions:
                verdict += [False] * len(ranges)
            else:
                verdict += [positions.range_cardinality(low, high) > 0 for low, high in ranges]
        return np.array(verdict, np.bool_)

    def of_files(self, answers: Rows) -> Iterator[tuple[int, BitMap]]:
        """Yield the files with positions. Shards with the answer None are skipped."""
        for at, positions in enumerate(answers):
            if positions:
                span = slice(self.start[at], self.start[at + 1])
                parts = cut(positions, self.first[span], self.rows[span])
                for file, part in zip(self.files[span].tolist(), parts, strict=True):
                    if part:
                        yield file, part


def _check_positions(first: Int64Array, rows: Int64Array, start: Int64Array, path: str) -> None:
    """Raise Corrupt unless the files of each shard have ascending, disjoint ranges of rows."""
    are_possible = (
        (first >= 0) & (first <= SHARD_ROWS_MAX) & (rows >= 0) & (rows <= SEGMENT_ROWS_MAX - first)
    )
    follows = first[1:] >= (first + rows)[:-1]
    follows[start[1:] - 1] = True  # the first file of the next shard
    if not (are_possible.all() and follows.all()):
        raise Corrupt("files have impossible positions in their shard", path=path)


def _in_ranges(ranges: list[tuple[int, int]]) -> BitMap | None:
    """Return the positions in ascending ranges, or None for a single file at the beginning of a
    shard.
    """
    if len(ranges) == 1 and not ranges[0][0]:
        return None
    positions = BitMap()
    start, end = ranges[0]
    for low, high in ranges[1:]:
        if low > end:  # a gap: a removed file, or one that is not requested
            positions.add_range(start, end)
            start = low
        end = high
    positions.add_range(start, end)
    return positions


def cut(hits: BitMap, first: Int64Array, rows: Int64Array) -> Iterator[BitMap]:
    """Yield the positions of ``hits`` in each file of a shard.

    Args:
        hits: Not empty.
        first: Positions of the files' first rows, ascending, int64[n].
        rows: Row counts, int64[n].

    >>> [list(part) for part in cut(BitMap([1, 5]), np.array([0, 4]), np.array([4, 4]))]
    [[1], [1]]
    """
    if len(first) == 1 and not first[0] and hits.max() < rows[0]:
        yield hits
        return
    positions = np.frombuffer(hits.to_array(), np.uint32)
    starts, stops = np.searchsorted(positions, first), np.searchsorted(positions, first + rows)
    owner = np.searchsorted(first, positions, side="right") - 1
    # Differences for rows of other files are meaningless, but not used.
    offsets = (positions - first[owner]).astype(np.uint32).tobytes()
    size = positions.itemsize
    for start, stop in zip((size * starts).tolist(), (size * stops).tolist(), strict=True):
        yield BitMap(array("I", offsets[start:stop])) if stop > start else BitMap()


def first_answers(n: int, asks: Iterable[Callable[[list[int]], Rows]]) -> Rows:
    """For each of n shards return the first non-None answer. Each function gets the unanswered
    shards.

    >>> first_answers(2, [lambda left: [None, BitMap([7])], lambda left: [BitMap() for _ in left]])
    [BitMap([]), BitMap([7])]
    """
    answers: Rows = [None] * n
    for ask in asks:
        unanswered = [at for at, rows in enumerate(answers) if rows is None]
        if unanswered:
            for at, rows in zip(unanswered, ask(unanswered), strict=True):
                answers[at] = rows
    return answers

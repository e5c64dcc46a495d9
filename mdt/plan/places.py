"""Places: where a plan works out positions before it tells segments apart.

Segments that share joint summaries are one place if every index that is asked numbers their rows alike, as the indexes of
one commit do; every other segment is a place of its own.  Conditions are intersected and united by place, and only what
is left in the end is cut into the positions of segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from mdt.metadata.index_summaries import cut


@dataclass(frozen=True, slots=True)
class Layout:
    """How one index numbers the rows of n segments.

    ``number``: int64[n], of the summary that speaks of the segment, -1 for none.  ``first``: int64[n], position of the
    segment's first row in it if it is a joint one, else -1.
    """

    number: Int64Array
    first: Int64Array

    @classmethod
    def nothing(cls, segments: int) -> Layout:
        """Return the layout of an index that covers none of the segments."""
        return cls(np.full(segments, -1, np.int64), np.full(segments, -1, np.int64))


@dataclass(frozen=True, slots=True)
class Places:
    """m places of n segments.

    ``rows``: int64[n], of the segments.  ``order``: int64[n], the segments by place and first row in it.  ``start``:
    int64[m + 1], where the segments of a place begin in ``order``.  ``first``: int64[n], number of the segment's first
    row in its place; ``is_shared``: bool[m], whether a place is that of joint summaries.
    """

    rows: Int64Array
    order: Int64Array
    start: Int64Array
    first: Int64Array
    is_shared: BoolArray

    @classmethod
    def of(cls, layouts: Sequence[Layout], rows: Int64Array, alone: BoolArray) -> Places:
        """Return the places of n segments.  ``alone``: bool[n], those that are to be places of their own."""
        segments = len(rows)
        number = np.array([layout.number for layout in layouts], np.int64).reshape(len(layouts), segments)
        first = np.array([layout.first for layout in layouts], np.int64).reshape(len(layouts), segments)
        highest = first.max(axis=0, initial=-1)
        shared = (highest >= 0) & ((number < 0) | (first == highest)).all(axis=0) & ~alone
        own = np.where(shared, -1, np.arange(segments))
        first = np.where(shared, highest, 0)
        key = np.concatenate([np.where(shared, number, -1), own[None]])
        order = np.lexsort((first, *key))
        ordered = key[:, order]
        begins = np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) if segments else np.empty(0, np.bool_)
        start = np.append(np.flatnonzero(begins), segments)
        return cls(rows, order, start, first, shared[order[start[:-1]]])

    def __len__(self) -> int:
        return len(self.start) - 1

    def layout(self, of: Layout) -> Layout:
        """Return how an index numbers the rows of the places, given how it numbers those of their segments.

        ``first`` is -1 where the summary numbers them as the place does.
        """
        one = self.order[self.start[:-1]]
        return Layout(of.number[one], np.where(self.is_shared, -1, of.first[one]))

    def place_rows(self) -> Int64Array:
        """Return the rows of the (first) segment of each place -> int64[m]."""
        return self.rows[self.order[self.start[:-1]]]

    def segments(self, place: int) -> Int64Array:
        """Return the segments of a place, by their first rows in it."""
        return self.order[self.start[place] : self.start[place + 1]]

    def within(self, known: Mapping[int, BitMap]) -> list[BitMap | None]:
        """Return for each place the positions that matter: ``known`` ones of segments that are alone, None for all;
        in shared places the rows of their segments.
        """
        found: list[BitMap | None] = [known.get(segment) for segment in self.order[self.start[:-1]].tolist()]
        for place in np.flatnonzero(self.is_shared).tolist():
            mine = self.segments(place)
            start, stop = self.first[mine], self.first[mine] + self.rows[mine]
            ends = np.append(start[1:] != stop[:-1], True)
            begins = np.append(True, ends[:-1])
            rows = BitMap()
            for low, high in zip(start[begins].tolist(), stop[ends].tolist(), strict=True):
                rows.add_range(low, high)
            found[place] = rows
        return found

    def alive(self, answers: Sequence[BitMap | None]) -> BoolArray:
        """Return which segments have a position among the ``answers``, one for each place, or None -> bool[n]."""
        alive = np.ones(len(self.rows), np.bool_)
        for place, positions in enumerate(answers):
            if positions is not None:
                mine = self.segments(place)
                alive[mine] = self._hit(mine, positions) if self.is_shared[place] and positions else bool(positions)
        return alive

    def _hit(self, segments: Int64Array, positions: BitMap) -> list[bool]:
        """Return which ``segments`` of a shared place have one of ``positions``."""
        starts = self.first[segments]
        pairs = zip(starts.tolist(), (starts + self.rows[segments]).tolist(), strict=True)
        return [positions.range_cardinality(low, high) > 0 for low, high in pairs]

    def spread(self, answers: Sequence[BitMap | None]) -> dict[int, BitMap]:
        """Return the positions in each segment, left out where a place has None.  ``answers``: one for each place."""
        found: dict[int, BitMap] = {}
        for place, positions in enumerate(answers):
            mine = self.segments(place)
            if positions is None:
                continue
            if not self.is_shared[place]:
                found[int(mine[0])] = positions
                continue
            found |= zip(mine.tolist(), cut(positions, self.first[mine], self.rows[mine]), strict=True)
        return found

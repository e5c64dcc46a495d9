"""Summaries of skipping indexes as the indexes read them: in memory, or by ranges of the object where they stand.

What an index has parsed of a large summary is kept for the next query, and so are the ranges that were read from storage
that is not local (a local object is mapped, so the operating system keeps its pages).  Objects never change, so nothing
here can be stale.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar, cast

import numpy as np
from pyroaring import BitMap

from indexes.base import InMemory, Int64Array, SkippingIndex, Summary
from mdt.limits import INDEX_CACHE_BYTES_MAX, SEGMENTS_KNOWN_MAX, SUMMARIES_CACHE_BYTES_MAX, SUMMARY_OPEN_BYTES
from mdt.metadata.attachments import ObjectReader
from mdt.metadata.file_group import Joint, SummaryRef
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot
from mdt.stores.object_range import ObjectRange

T = TypeVar("T")
_SNAPSHOTS_KEPT = 32
"""Indexes times snapshots whose summaries are found without a look at the metadata table."""


class _Keeping:
    """Keeps what the index has parsed of a summary."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: Any = None

    def keep(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returned before for this summary, or call it."""
        if self._kept is None:
            self._kept = make()
        return cast(T, self._kept)


class Parsed(_Keeping):
    """A summary whose bytes are at hand, and what its index has parsed of them."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = memoryview(data)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  O(1)."""
        return self._data[start:stop]


class Stored(_Keeping):
    """A summary that stands in an object.  Its index checks the parts that it reads."""

    __slots__ = ("_cache", "_stored")

    def __init__(self, cache: SummaryCache, stored: ObjectRange) -> None:
        super().__init__()
        self._cache = cache
        self._stored = stored

    def __len__(self) -> int:
        return self._stored.length

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  Raises Corrupt if the object is too short, Unavailable if storage fails."""
        stop = min(stop, self._stored.length)
        start = min(start, stop)
        return self._cache.read(ObjectRange(self._stored.path, self._stored.offset + start, stop - start, 0))


class SummaryCache:
    """Opens summaries for their indexes; safe to use from threads.  ``is_local``: objects are mapped, not fetched."""

    def __init__(self, objects: ObjectReader, *, is_local: bool) -> None:
        self._objects = objects
        self._is_local = is_local
        self.opened: Recent[ObjectRange, Summary] = Recent(SUMMARIES_CACHE_BYTES_MAX)
        self._ranges: Recent[ObjectRange, memoryview] = Recent(INDEX_CACHE_BYTES_MAX)
        self._snapshots: Recent[tuple[int, int, str], SummaryDirectory] = Recent(_SNAPSHOTS_KEPT)

    def open(self, index: SkippingIndex, found: SummaryRef) -> Summary:
        """Return a summary for ``index``: by ranges if it knows positions, else whole and checked.  Raises Corrupt.

        Of a share of a joint summary: the joint summary.
        """
        if isinstance(found, bytes):
            return InMemory(found)
        found = found.stored if isinstance(found, Joint) else found
        known = self.opened.get(found)
        if known is not None:
            return known
        summary = (
            Stored(self, found) if index.finds_rows else InMemory(memoryview(self._objects.read(found, verify=True)))
        )
        return self.opened.put(found, summary, found.length + SUMMARY_OPEN_BYTES)

    def of_snapshot(self, snapshot: Snapshot, spec: str, index: SkippingIndex) -> SummaryDirectory:
        """Return what is known of the summaries of one index for one snapshot, to be filled by the caller.

        It is kept for tables of at most SEGMENTS_KNOWN_MAX files, whose numbers depend on the checkpoint.
        """
        if snapshot.numbered > SEGMENTS_KNOWN_MAX:
            return SummaryDirectory(self, index, snapshot.numbered)
        key = snapshot.seq, snapshot.checkpoint.seq, spec
        found = self._snapshots.get(key)
        return (
            found if found is not None else self._snapshots.put(key, SummaryDirectory(self, index, snapshot.numbered))
        )

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of opened summaries and, where storage is not local, of their ranges."""
        opened, ranges = ((cache.hits, cache.misses) for cache in (self.opened, self._ranges))
        return {"summaries": opened} if self._is_local else {"summaries": opened, "ranges": ranges}

    def read(self, part: ObjectRange) -> memoryview:
        """Return a range of an object, unchecked."""
        if self._is_local:
            return memoryview(self._objects.read(part, verify=False))
        known = self._ranges.get(part)
        if known is not None:
            return known
        return self._ranges.put(part, memoryview(self._objects.read(part, verify=False)), part.length)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which summaries speak of some places: one whose positions are the place's own once for each, others once in all.

    ``summaries``: int64[m], their numbers.  ``of``: int64[n], for each place which of the m.  ``first``: int64[n],
    position of the place's first row in the summary if it numbers rows of other places, too, else -1.
    """

    summaries: Int64Array
    of: Int64Array
    first: Int64Array

    @classmethod
    def about(cls, number: Int64Array, first: Int64Array) -> Asked:
        """Return how to ask the summaries ``number``, int64[n], one for each place; ``first`` as above."""
        shared = np.flatnonzero(first >= 0)
        if not len(shared):
            return cls(number, np.arange(len(number)), first)
        several, of_shared = np.unique(number[shared], return_inverse=True)
        own = first < 0
        of = np.cumsum(own) - 1
        of[shared] = int(own.sum()) + of_shared
        return cls(np.append(number[own], several), of, first)

    def within(self, among: Sequence[BitMap | None]) -> list[BitMap | None]:
        """Return for each summary what is given for its place, None if it speaks of several."""
        found: list[BitMap | None] = [None] * len(self.summaries)
        for at in np.flatnonzero(self.first < 0).tolist():
            found[self.of[at]] = among[at]
        return found

    def spread(self, answers: Sequence[BitMap | None], rows: Int64Array) -> list[BitMap | None]:
        """Return for each place its part of ``answers`` of the summaries, each bitmap once.  ``rows``: int64[n], its rows."""
        found = [answers[n] for n in self.of.tolist()]
        joint = np.flatnonzero(self.first >= 0)
        if not len(joint):
            return found
        joint = joint[np.lexsort((self.first[joint], self.of[joint]))]
        starts = np.flatnonzero(np.diff(self.of[joint], prepend=-1)).tolist()
        for start, stop in pairwise([*starts, len(joint)]):
            places = joint[start:stop]
            hits = answers[self.of[places[0]]]
            if hits is not None:
                parts = cut(hits, self.first[places], rows[places])
                for at, part in zip(places.tolist(), parts, strict=True):
                    found[at] = part
        return found


def cut(hits: BitMap, first: Int64Array, rows: Int64Array) -> Iterator[BitMap]:
    """Yield for some segments of a joint summary which of their rows are among ``hits``.

    ``first``: int64[n], rising, the numbers of their first rows there.  ``rows``: int64[n], how many they have.
    """
    positions = np.frombuffer(hits.to_array(), np.uint32)
    starts, stops = np.searchsorted(positions, first), np.searchsorted(positions, first + rows)
    owner = np.searchsorted(first, positions, side="right") - 1
    own = (positions - first[owner]).astype(np.uint32).tobytes()  # of rows of other segments: not used
    size = positions.itemsize
    for start, stop in zip((size * starts).tolist(), (size * stops).tolist(), strict=True):
        yield BitMap(array("I", own[start:stop])) if stop > start else BitMap()


class SummaryDirectory:
    """The summaries of one index for one snapshot, numbered as they become known; safe to use from threads."""

    def __init__(self, cache: SummaryCache, index: SkippingIndex, files: int) -> None:
        self._cache = cache
        self._index = index
        self._number = np.zeros(files, np.int64)  # of the summary, from 1; 0: not known yet
        self._first = np.zeros(files, np.int64)
        self._stored: list[SummaryRef] = []
        self._joint: dict[ObjectRange, int] = {}
        self._lock = Lock()

    def of(
        self, rows: Int64Array, look_up: Callable[[Int64Array], Sequence[SummaryRef | None]]
    ) -> tuple[Int64Array, Int64Array]:
        """Return of which summary, and from which position on, covered segment ``rows`` are a part -> int64[n] each.

        The position is -1 for a summary that is the segment's own.  ``look_up`` gives those that are not known yet.
        """
        missing = rows[self._number[rows] == 0]
        if len(missing):
            self._add(missing, look_up(missing))
        return self._number[rows] - 1, self._first[rows]

    def _add(self, rows: Int64Array, stored: Sequence[SummaryRef | None]) -> None:
        with self._lock:
            for row, found in zip(rows.tolist(), stored, strict=True):
                assert found is not None, "covered segments have summaries"
                self._first[row] = found.first if isinstance(found, Joint) else -1
                self._number[row] = 1 + self._number_of(found)

    def _number_of(self, found: SummaryRef) -> int:
        new = len(self._stored)
        number = self._joint.setdefault(found.stored, new) if isinstance(found, Joint) else new
        if number == new:
            self._stored.append(found)
        return number

    def open(self, number: int) -> Summary:
        """Return an opened summary.  Raises Corrupt as :meth:`SummaryCache.open` does."""
        return self._cache.open(self._index, self._stored[number])

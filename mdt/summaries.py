"""Summaries of skipping indexes as the indexes read them: in memory, or by ranges of the object where they stand.

What an index has parsed of a large summary is kept for the next query, and so are the ranges that were read from storage
that is not local (a local object is mapped, so the operating system keeps its pages).  Objects never change, so nothing
here can be stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar, cast

from indexes.base import InMemory, SkippingIndex, Summary
from mdt.blobs import Blobs
from mdt.file_group import Blob
from mdt.limits import INDEX_CACHE_BYTES_MAX, SUMMARIES_CACHED_MAX

T = TypeVar("T")
_SNAPSHOTS_KEPT = 32
"""Indexes times snapshots whose summaries are found without a look at the metadata table."""


@dataclass(slots=True)
class Counts:
    """How often something was found in a cache, and how often not."""

    hits: int = 0
    misses: int = 0


class Stored:
    """A summary that stands in an object.  Its index checks the parts that it reads."""

    __slots__ = ("_blob", "_cache", "_kept")

    def __init__(self, cache: SummaryCache, blob: Blob) -> None:
        self._cache = cache
        self._blob = blob
        self._kept: Any = None

    def __len__(self) -> int:
        return self._blob.length

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  Raises Corrupt if the object is too short, Unavailable if storage fails."""
        stop = min(stop, self._blob.length)
        start = min(start, stop)
        return self._cache.read(Blob(self._blob.path, self._blob.offset + start, stop - start, 0))

    def keep(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returned before for this summary, or call it."""
        if self._kept is None:
            self._kept = make()
        return cast(T, self._kept)


class SummaryCache:
    """Opens summaries for their indexes; safe to use from threads.  ``is_local``: objects are mapped, not fetched."""

    def __init__(self, blobs: Blobs, *, is_local: bool) -> None:
        self._blobs = blobs
        self._is_local = is_local
        self._stored: OrderedDict[Blob, Summary] = OrderedDict()
        self._ranges: OrderedDict[Blob, memoryview] = OrderedDict()
        self._range_bytes = 0
        self._snapshots: OrderedDict[tuple[int, str], dict[int, Summary]] = OrderedDict()
        self._lock = Lock()
        self.opened = Counts()
        self.ranges = Counts()

    def open(self, index: SkippingIndex, found: bytes | Blob) -> Summary:
        """Return a summary for ``index``: by ranges if it knows positions, else whole and checked.  Raises Corrupt."""
        if not isinstance(found, Blob):
            return InMemory(found)
        with self._lock:
            known = self._stored.get(found)
            if known is not None:
                self._stored.move_to_end(found)
                self.opened.hits += 1
                return known
        whole = not index.finds_rows
        made = InMemory(memoryview(self._blobs.read(found, verify=True))) if whole else Stored(self, found)
        with self._lock:
            self.opened.misses += 1
            self._stored[found] = made
            if len(self._stored) > SUMMARIES_CACHED_MAX:
                self._stored.popitem(last=False)
        return made

    def of_snapshot(self, seq: int, spec: str, segments: int) -> dict[int, Summary]:
        """Return what is kept of one index for one snapshot: segment row -> summary, to be filled by the caller.

        For tables of so few segments that all of them may be kept; else an empty mapping, forgotten after use.
        """
        if segments > SUMMARIES_CACHED_MAX:
            return {}
        with self._lock:
            found = self._snapshots.setdefault((seq, spec), {})
            self._snapshots.move_to_end((seq, spec))
            while len(self._snapshots) > _SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        return found

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of opened summaries and, where storage is not local, of their ranges."""
        counts = {"summaries": self.opened} if self._is_local else {"summaries": self.opened, "ranges": self.ranges}
        return {name: (found.hits, found.misses) for name, found in counts.items()}

    def read(self, part: Blob) -> memoryview:
        """Return a range of an object, unchecked."""
        if self._is_local:
            return memoryview(self._blobs.read(part, verify=False))
        with self._lock:
            known = self._ranges.get(part)
            if known is not None:
                self._ranges.move_to_end(part)
                self.ranges.hits += 1
                return known
        data = memoryview(self._blobs.read(part, verify=False))
        with self._lock:
            self.ranges.misses += 1
            if part not in self._ranges:
                self._ranges[part] = data
                self._range_bytes += part.length
            while self._range_bytes > INDEX_CACHE_BYTES_MAX and len(self._ranges) > 1:
                old, _ = self._ranges.popitem(last=False)
                self._range_bytes -= old.length
        return data

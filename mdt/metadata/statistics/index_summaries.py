"""Readers and caches for summaries of skipping indexes.

A summary is in memory, or read by ranges of its object.  The parsed form of a large summary is
cached for the next query, and so are ranges read from remote storage.  Local objects are mapped,
and the operating system caches their pages.  Objects never change, so no entry is ever stale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array, SkippingIndex, Summary
from mdt.limits import (
    INDEX_CACHE_BYTES_MAX,
    SEGMENTS_KNOWN_MAX,
    SUMMARIES_CACHE_BYTES_MAX,
    SUMMARY_OPEN_BYTES,
)
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.files.file_group import SummaryRef
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.session import Recent, session
from mdt.stores.object_range import ObjectRange

T = TypeVar("T")
_SNAPSHOTS_KEPT = 32
"""Number of (index, snapshot) pairs whose summary locations are cached."""


class _Keeping:
    """Caches the parsed form of a summary."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: Any = None

    def keep(self, make: Callable[[], T]) -> T:
        """Return the cached result of ``make``."""
        if self._kept is None:
            self._kept = make()
        return cast(T, self._kept)


class Parsed(_Keeping):
    """A summary in memory, and its parsed form."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | pa.Buffer) -> None:
        super().__init__()
        self._data = memoryview(data)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  O(1)."""
        return self._data[start:stop]


class Stored(_Keeping):
    """A summary in an object.  Its index checks the parts that it reads."""

    __slots__ = ("_cache", "_stored")

    def __init__(self, cache: SummaryCache, stored: ObjectRange) -> None:
        super().__init__()
        self._cache = cache
        self._stored = stored

    def __len__(self) -> int:
        return self._stored.length

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).

        Raises Corrupt if the object is too short, and Unavailable if storage fails.
        """
        stop = min(stop, self._stored.length)
        start = min(start, stop)
        return self._cache.read(
            ObjectRange(self._stored.path, self._stored.offset + start, stop - start, 0)
        )


class SummaryCache:
    """Opens summaries for their indexes.  Thread-safe.

    With ``is_local``, objects are mapped and not fetched.
    """

    def __init__(self, objects: ObjectReader, *, is_local: bool) -> None:
        self._objects = objects
        self._is_local = is_local
        self.opened: Recent[ObjectRange, Summary] = Recent(
            SUMMARIES_CACHE_BYTES_MAX, session().memory
        )
        self._ranges: Recent[ObjectRange, memoryview] = Recent(
            INDEX_CACHE_BYTES_MAX, session().memory
        )
        self._snapshots: Recent[tuple[object, ...], SummaryDirectory] = Recent(_SNAPSHOTS_KEPT)

    def open(self, index: SkippingIndex, ref: SummaryRef) -> Summary:
        """Return a summary for ``index``.

        Indexes that find rows read it by ranges.  Otherwise it is read whole and checked.  Raises
        Corrupt.
        """
        if isinstance(ref, bytes):
            return Parsed(ref)
        cached = self.opened.get(ref)
        if cached is not None:
            return cached
        if index.finds_rows:
            summary: Summary = Stored(self, ref)
        else:
            summary = Parsed(self._objects.read(ref, verify=True))
        return self.opened.put(ref, summary, ref.length + SUMMARY_OPEN_BYTES)

    def directory(self, snapshot: Snapshot, spec: str, index: SkippingIndex) -> SummaryDirectory:
        """Return the directory of an index's summaries in a snapshot, to be filled by the caller.

        Cached for tables of at most SEGMENTS_KNOWN_MAX files.  The numbers in it depend on the
        checkpoint.
        """
        if snapshot.numbered > SEGMENTS_KNOWN_MAX:
            return SummaryDirectory(self, index)
        key = *snapshot.cache_key, spec
        return self._snapshots.made(key, lambda: SummaryDirectory(self, index))

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of opened summaries and, on remote storage, of their ranges."""
        summaries, ranges = ((cache.hits, cache.misses) for cache in (self.opened, self._ranges))
        return (
            {"summaries": summaries}
            if self._is_local
            else {"summaries": summaries, "ranges": ranges}
        )

    def read(self, part: ObjectRange) -> memoryview:
        """Return a range of an object, unchecked."""

        def read() -> memoryview:
            return memoryview(self._objects.read(part, verify=False))

        if self._is_local:
            return read()
        return self._ranges.made(part, read, part.length)


class SummaryDirectory:
    """The known summaries of an index in a snapshot, or their locations.  Thread-safe."""

    def __init__(self, cache: SummaryCache, index: SkippingIndex) -> None:
        self._cache = cache
        self._index = index
        self._known: dict[int, Summary | ObjectRange] = {}

    def summaries_of(
        self, shards: Int64Array, look_up: Callable[[Int64Array], Sequence[SummaryRef | None]]
    ) -> list[Summary | ObjectRange]:
        """Return the summaries or object ranges of covered ``shards`` (ascending).

        ``look_up`` is called for shards that are not known yet.
        """
        missing = [shard for shard in shards.tolist() if shard not in self._known]
        if missing:
            summaries = look_up(np.array(missing, np.int64))
            for shard, summary in zip(missing, summaries, strict=True):
                assert summary is not None, "covered shards have summaries"
                self._known[shard] = Parsed(summary) if isinstance(summary, bytes) else summary
        return [self._known[shard] for shard in shards.tolist()]

    def open(self, summary: Summary | ObjectRange) -> Summary:
        """Return an opened summary.  Raises Corrupt as :meth:`SummaryCache.open` does."""
        return (
            self._cache.open(self._index, summary) if isinstance(summary, ObjectRange) else summary
        )

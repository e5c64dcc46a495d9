"""Preloads data that queries need: heads of summaries, page maps, key maps and footers. Maps data
files into memory.

Newest files come first, and each kind is loaded until its cache is full. Damaged data is skipped,
and the query that needs it reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from indexes.base import BoolArray, SkippingIndex
from indexes.blocks import HEAD_BYTES
from mdt.errors import Corrupt
from mdt.limits import DATA_FILES_MAPPED_MAX, SEGMENTS_CACHED_MAX
from mdt.metadata.files.file_group import BASE, SummaryRef
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import index_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import open_segment
from mdt.progress import Progress
from mdt.scan.scan_tasks import SMALL_ROWS
from mdt.session import Recent
from mdt.stores.object_range import ObjectRange

_AT_A_TIME = 256
"""Number of objects loaded between two checks of the cache."""

KINDS = ("summaries", "page_maps", "key_maps", "footers", "files")
"""Kinds of data to preload. Files are mapped without reading them."""


@dataclass(frozen=True, slots=True)
class WarmResult:
    """Counts of preloaded data, including data that was already cached.

    Attributes:
        seq: Commit of the snapshot.
        summaries, page_maps, key_maps, footers: Number of objects.
        bytes: Their size in storage, counting only the heads of large summaries.
        tasks: Number of Spark tasks that read summaries.
        opened: Number of data files that Spark has opened.
    """

    seq: int
    summaries: int = 0
    page_maps: int = 0
    key_maps: int = 0
    footers: int = 0
    bytes: int = 0
    tasks: int = 0
    opened: int = 0


@dataclass(frozen=True, slots=True)
class _Kind:
    """Objects to load.

    Attributes:
        load: Loads an object and returns its size in bytes, or raises Corrupt.
        cache: The cache that retains them.
    """

    name: str
    objects: Sequence[Any]
    load: Callable[[Any], int]
    cache: Recent[Any, Any] | None = None


def warm(
    metadata: Metadata,
    snapshot: Snapshot,
    threads: int,
    kinds: Sequence[str],
    *,
    specs: Sequence[str] = (),
    progress: Progress | None = None,
) -> WarmResult:
    """Preload the given ``kinds`` of data for queries of ``snapshot``.

    Args:
        specs: Indexes whose summaries to load.
    """
    selected = [kind for kind in _kinds(metadata, snapshot, specs) if kind.name in kinds]
    total = sum(len(kind.objects) for kind in selected)
    counts: dict[str, int] = {}
    size = before = 0
    with ThreadPoolExecutor(threads) as pool:
        for kind in selected:
            completed = before
            for sizes in _load_batches(pool, kind):
                counts[kind.name] = counts.get(kind.name, 0) + sum(map(bool, sizes))
                size, completed = size + sum(sizes), completed + len(sizes)
                if progress is not None:
                    progress(completed, total)
            before += len(kind.objects)
    counts.pop("files", None)
    return WarmResult(snapshot.seq, bytes=size, **counts)


def _load_batches(pool: Executor, kind: _Kind) -> Iterator[list[int]]:
    """Load objects until the cache begins to evict, and yield their sizes in batches, 0 if
    damaged.
    """

    def load(item: Any) -> int:
        with suppress(Corrupt):
            return kind.load(item)
        return 0

    dropped = 0 if kind.cache is None else kind.cache.dropped
    for first in range(0, len(kind.objects), _AT_A_TIME):
        if kind.cache is not None and kind.cache.dropped > dropped:
            return
        yield list(pool.map(load, kind.objects[first : first + _AT_A_TIME]))


def _kinds(metadata: Metadata, snapshot: Snapshot, specs: Sequence[str]) -> Iterator[_Kind]:
    """Yield the objects to load, in order.

    Footers are only loaded for base files above SMALL_ROWS rows. Readers fetch log files as whole
    blocks, and small files by page.
    """
    objects, summaries = metadata.objects, metadata.summaries
    for spec in specs:
        index, refs = summaries_of(snapshot, spec)
        if index is not None:
            yield _Kind("summaries", refs, _head_reader(metadata, index), summaries.opened)
    newest = np.flatnonzero(snapshot.has_rows)[::-1][:SEGMENTS_CACHED_MAX]
    segments = snapshot.files.segments(newest)

    def page_map(stored: ObjectRange) -> int:
        _ = objects.page_map(stored).info
        return stored.length

    def key_map(stored: ObjectRange) -> int:
        objects.key_map(stored).verify_all()
        return stored.length

    def footer(row: int) -> int:
        segment = snapshot.segment(row)
        return int(
            open_segment(
                metadata.storage, segment, footers=objects.footers
            ).metadata.serialized_size
        )

    page_maps = [segment.page_map for segment in segments if segment.page_map is not None]
    yield _Kind("page_maps", page_maps, page_map, objects.page_maps)
    key_maps = [segment.key_map for segment in segments if segment.key_map is not None]
    yield _Kind("key_maps", key_maps, key_map, objects.key_maps)
    yield _Kind("footers", _with_footers(snapshot).tolist(), footer, objects.footers)

    def mapped(segment: Segment) -> int:
        objects.data_files.get(segment.path, segment.size)
        return 0

    yield _Kind("files", segments[:DATA_FILES_MAPPED_MAX], mapped)


def _with_footers(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """Return the numbers of base files whose footers scans read, newest first."""
    is_read = (snapshot.kind == BASE) & (snapshot.rows > np.maximum(snapshot.dead_rows, SMALL_ROWS))
    return np.flatnonzero(is_read)[::-1]


def summaries_of(
    snapshot: Snapshot, spec: str, files: BoolArray | None = None
) -> tuple[SkippingIndex | None, list[SummaryRef]]:
    """Return an index, or None if it is not installed, and its summaries of ``files``.

    Args:
        files: bool[numbered], or None for all files with rows.
    """
    _, index = index_of(spec)
    if isinstance(index, str):
        return None, []
    selected = snapshot.covered(spec) & (snapshot.has_rows if files is None else files)
    shards = snapshot.shards.of_files(np.flatnonzero(selected))
    return index, [
        summary for summary in snapshot.index_summaries(spec, shards) if summary is not None
    ]


def _head_reader(metadata: Metadata, index: SkippingIndex) -> Callable[[SummaryRef], int]:
    """Return a function that opens a summary like a query and returns the number of bytes read."""
    return lambda found: len(metadata.summaries.open(index, found).read(0, HEAD_BYTES))


def read_heads(
    metadata: Metadata, snapshot: Snapshot, spec: str, files: BoolArray
) -> tuple[int, int]:
    """Open the summaries of an index for ``files`` (bool[numbered]). Return their number and bytes
    read.
    """
    index, summaries = summaries_of(snapshot, spec, files)
    if index is None:
        return 0, 0
    read_head, size = _head_reader(metadata, index), 0
    for summary in summaries:
        with suppress(Corrupt):
            size += read_head(summary)
    return len(summaries), size

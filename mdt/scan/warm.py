"""Load ahead of queries what they ask for: heads of summaries, page maps, key maps, footers; map
the data files themselves.

Newest files first, each kind until its cache is full.  What is damaged is left to who reads it.
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
"""Things between two looks at how full a cache is."""

KINDS = ("summaries", "page_maps", "key_maps", "footers", "files")
"""What can be loaded; files are mapped, which reads nothing yet."""


@dataclass(frozen=True, slots=True)
class WarmResult:
    """What was loaded ahead of queries, found in caches or not.

    ``seq``: of the state.  ``summaries``, ``page_maps``, ``key_maps``, ``footers``: how many;
    ``bytes``: of storage that they stand for, the heads of large summaries alone.  ``tasks``: in
    which Spark has read summaries; ``opened``: data files that Spark has opened.
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
    """Things to load: ``load`` returns the bytes of one, and raises Corrupt; ``cache``: where they
    are kept.
    """

    name: str
    wanted: Sequence[Any]
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
    """Load what queries of ``snapshot`` ask for, of these ``kinds``; ``specs``: the indexes whose
    summaries are meant.
    """
    work = [kind for kind in _kinds(metadata, snapshot, specs) if kind.name in kinds]
    total = sum(len(kind.wanted) for kind in work)
    counts: dict[str, int] = {}
    size = before = 0
    with ThreadPoolExecutor(threads) as pool:
        for kind in work:
            done = before
            for loaded in _loaded(pool, kind):
                counts[kind.name] = counts.get(kind.name, 0) + sum(map(bool, loaded))
                size, done = size + sum(loaded), done + len(loaded)
                if progress is not None:
                    progress(done, total)
            before += len(kind.wanted)
    counts.pop("files", None)
    return WarmResult(snapshot.seq, bytes=size, **counts)


def _loaded(pool: Executor, kind: _Kind) -> Iterator[list[int]]:
    """Load until what is loaded begins to push the first of it out of its cache; yield the bytes of
    each, 0 if it is damaged, some at a time.
    """

    def load(wanted: Any) -> int:
        with suppress(Corrupt):
            return kind.load(wanted)
        return 0

    dropped = 0 if kind.cache is None else kind.cache.dropped
    for first in range(0, len(kind.wanted), _AT_A_TIME):
        if kind.cache is not None and kind.cache.dropped > dropped:
            return
        yield list(pool.map(load, kind.wanted[first : first + _AT_A_TIME]))


def _kinds(metadata: Metadata, snapshot: Snapshot, specs: Sequence[str]) -> Iterator[_Kind]:
    """Yield what there is to load, in order; of log files a reader fetches the whole block, of tiny
    files single pages: they have no footers here.
    """
    objects, summaries = metadata.objects, metadata.summaries
    for spec in specs:
        index, found = summaries_of(snapshot, spec)
        if index is not None:
            yield _Kind("summaries", found, _head_reader(metadata, index), summaries.opened)
    newest = np.flatnonzero(snapshot.has_rows)[::-1][:SEGMENTS_CACHED_MAX]
    segments = snapshot.files.segments(newest)

    def page_map(stored: ObjectRange) -> int:
        _ = objects.page_map(stored).info
        return stored.length

    def key_map(stored: ObjectRange) -> int:
        objects.key_map(stored).whole()
        return stored.length

    def footer(row: int) -> int:
        segment = snapshot.segment(row)
        return int(
            open_segment(
                metadata.storage, segment, footers=objects.footers
            ).metadata.serialized_size
        )

    page_maps = [found.page_map for found in segments if found.page_map is not None]
    yield _Kind("page_maps", page_maps, page_map, objects.page_maps)
    key_maps = [found.key_map for found in segments if found.key_map is not None]
    yield _Kind("key_maps", key_maps, key_map, objects.key_maps)
    yield _Kind("footers", _with_footers(snapshot).tolist(), footer, objects.footers)

    def mapped(segment: Segment) -> int:
        objects.data_files.get(segment.path, segment.size)
        return 0

    yield _Kind("files", segments[:DATA_FILES_MAPPED_MAX], mapped)


def _with_footers(snapshot: Snapshot) -> npt.NDArray[np.int64]:
    """Return the numbers of the base files whose footers scans read, the newest first."""
    wanted = (snapshot.kind == BASE) & (snapshot.rows > np.maximum(snapshot.dead_rows, SMALL_ROWS))
    return np.flatnonzero(wanted)[::-1]


def summaries_of(
    snapshot: Snapshot, spec: str, files: BoolArray | None = None
) -> tuple[SkippingIndex | None, list[SummaryRef]]:
    """Return an index, None if this process does not have it, and its summaries of ``files``,
    bool[numbered] (None: of all with rows).
    """
    _, index = index_of(spec)
    if isinstance(index, str):
        return None, []
    asked = snapshot.covered(spec) & (snapshot.has_rows if files is None else files)
    shards = snapshot.shards.of_files(np.flatnonzero(asked))
    return index, [found for found in snapshot.index_summaries(spec, shards) if found is not None]


def _head_reader(metadata: Metadata, index: SkippingIndex) -> Callable[[SummaryRef], int]:
    """Return what opens a summary, as a question does first, and returns how many bytes of it were
    read.
    """
    return lambda found: len(metadata.summaries.open(index, found).read(0, HEAD_BYTES))


def read_heads(
    metadata: Metadata, snapshot: Snapshot, spec: str, files: BoolArray
) -> tuple[int, int]:
    """Open the summaries of one index of ``files``, bool[numbered]; return how many there are, and
    the bytes that were read.
    """
    index, found = summaries_of(snapshot, spec, files)
    if index is None:
        return 0, 0
    read, size = _head_reader(metadata, index), 0
    for summary in found:
        with suppress(Corrupt):
            size += read(summary)
    return len(found), size

"""Read ahead of scans and look-ups what they need of the files: footers, page maps, key maps; map the files themselves.

Newest files first, each kind until its cache is full.  What is damaged is left to who reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from mdt.errors import Corrupt
from mdt.limits import DATA_FILES_MAPPED_MAX, SEGMENTS_CACHED_MAX
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import open_segment
from mdt.scan.tasks import SMALL_ROWS
from mdt.stores.object_range import ObjectRange

_AT_A_TIME = 256
"""Files between two looks at how full a cache is."""


def warm_files(metadata: Metadata, snapshot: Snapshot, threads: int, *, with_keys: bool) -> None:
    """Keep what scans and look-ups need of the files of ``snapshot``; ``with_keys``: key maps, too."""
    objects = metadata.objects
    newest = np.flatnonzero(snapshot.has_rows)[::-1][:SEGMENTS_CACHED_MAX]
    segments = snapshot.files.segments(newest)
    with ThreadPoolExecutor(threads) as pool:
        page_maps = [found.page_map for found in segments if found.page_map is not None]
        _fill(pool, objects.page_maps, page_maps, lambda stored: objects.page_map(stored).info)
        if with_keys:
            key_maps = [found.key_map for found in segments if found.key_map is not None]
            _fill(pool, objects.key_maps, key_maps, lambda stored: objects.key_map(stored).whole())
        _warm_footers(pool, metadata, snapshot)
        for found in segments[:DATA_FILES_MAPPED_MAX]:
            with suppress(Corrupt):
                objects.data_files.get(found.path, found.size)


def _fill(
    pool: Executor,
    cache: Recent[ObjectRange, Any],
    wanted: Sequence[ObjectRange],
    read: Callable[[ObjectRange], object],
) -> None:
    """Read what is ``wanted`` until it begins to push the first of it out of ``cache``."""

    def keep(stored: ObjectRange) -> None:
        with suppress(Corrupt):
            read(stored)

    dropped = cache.dropped
    for first in range(0, len(wanted), _AT_A_TIME):
        if cache.dropped > dropped:
            return
        for _ in pool.map(keep, wanted[first : first + _AT_A_TIME]):
            pass


def _warm_footers(pool: Executor, metadata: Metadata, snapshot: Snapshot) -> None:
    """Keep the footers of base files.

    Log files, of which a reader fetches the whole block, and files so small that they are read by pages are left out.
    """
    footers = metadata.objects.footers
    wanted = (snapshot.kind == BASE) & (snapshot.rows > np.maximum(snapshot.dead_rows, SMALL_ROWS))
    rows = np.flatnonzero(wanted)[::-1].tolist()

    def keep(row: int) -> None:
        with suppress(Corrupt):
            open_segment(metadata.storage, snapshot.segment(row), footers=footers)

    for first in range(0, len(rows), _AT_A_TIME):
        if footers.dropped:
            return
        for _ in pool.map(keep, rows[first : first + _AT_A_TIME]):
            pass

"""Read the footers of data files before a scan asks for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from mdt.errors import Corrupt
from mdt.file_group import BASE
from mdt.metadata import Metadata
from mdt.read.work import SMALL_ROWS
from mdt.segment_file import open_segment
from mdt.snapshot import Snapshot

_AT_A_TIME = 256
"""Files between two looks at how full the cache is."""


def warm_footers(metadata: Metadata, snapshot: Snapshot, threads: int) -> None:
    """Keep the footers of base files, newest first, until the cache is full; what is damaged is left to who reads it.

    Log files, of which a reader fetches the whole block, and files so small that they are read by pages are left out.
    """
    footers = metadata.blobs.footers
    wanted = (snapshot.kind == BASE) & (snapshot.rows > np.maximum(snapshot.dead_rows, SMALL_ROWS))
    rows = np.flatnonzero(wanted)[::-1].tolist()

    def keep(row: int) -> None:
        with suppress(Corrupt):
            open_segment(metadata.storage, snapshot, row, footers=footers)

    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(rows), _AT_A_TIME):
            if footers.dropped:
                return
            for _ in pool.map(keep, rows[first : first + _AT_A_TIME]):
                pass

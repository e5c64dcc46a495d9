"""An estimate of the number of distinct values of a column, from a few row groups.

Spark's optimizer asks for it where no index knows.  The row groups are the first ones of a few
files that lie far apart. Their rows are neighbours, so the estimate is rough, and more often too
small than too large.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.scan.reader import read
from mdt.session import Recent

FILES = 3
_KEPT = 512


class Samples:
    """Samples of the states of one table, by the files that they are of; safe for many threads."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._distinct: Recent[tuple[tuple[int, ...], str], tuple[int, int, int]] = Recent(_KEPT)

    def distinct(self, snapshot: Snapshot, column: str) -> int:
        """Return about how many values ``column`` has, null aside; O(rows of the sample), which it
        reads at the first time.

        Values that occur once in the sample of n rows stand for sqrt(N / n) values of the N rows,
        others for themselves: the estimator GEE of Charikar, Chaudhuri, Motwani and Narasayya,
        "Towards estimation error guarantees for distinct values", PODS 2000.
        """
        scans = _scans(snapshot)
        key = _ids(snapshot, scans), column
        known = self._distinct.get(key)
        if known is None:
            values = self._rows(snapshot, scans, column).column(column).drop_null()
            counts = pc.value_counts(values).field("counts").to_numpy()
            known = self._distinct.put(
                key, (int(counts.sum()), len(counts), int((counts == 1).sum()))
            )
        sampled, values_in, once = known
        rows = int((snapshot.rows - snapshot.dead_rows).sum())
        return min(
            rows, round(once * math.sqrt(max(1.0, rows / max(1, sampled)))) + values_in - once
        )

    def _rows(self, snapshot: Snapshot, scans: tuple[SegmentScan, ...], column: str) -> pa.Table:
        found = list(
            read(self._metadata, ScanPlan(snapshot, None, scans, ()), (column,), threads=1)
        )
        if found:
            return pa.concat_tables(found)
        return pa.table({column: pa.array([], pa.null())})


def _scans(snapshot: Snapshot) -> tuple[SegmentScan, ...]:
    """Return the first row groups of some files with rows, spread evenly."""
    live = np.flatnonzero(snapshot.has_rows)
    at = np.unique(np.linspace(0, max(0, len(live) - 1), FILES).round().astype(int))
    if len(live):
        return tuple(SegmentScan(number, (0,)) for number in live[at].tolist())
    return ()


def _ids(snapshot: Snapshot, scans: tuple[SegmentScan, ...]) -> tuple[int, ...]:
    return tuple(snapshot.segment(scan.file).id for scan in scans)

"""Estimates the number of distinct values of a column from a few row groups.

Spark's optimizer uses it for columns without an index. The sample consists of the first row groups
of a few files that are far apart. Its rows are adjacent, so the estimate is rough, and too small
more often than too large.
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
_SAMPLES_MAX = 512


class Samples:
    """Samples of the snapshots of a table, by sampled files. Thread-safe."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._distinct: Recent[tuple[tuple[int, ...], str], tuple[int, int, int]] = Recent(
            _SAMPLES_MAX
        )

    def distinct(self, snapshot: Snapshot, column: str) -> int:
        """Return the approximate number of distinct non-null values of ``column``.

        Reads the sample on the first call, O(rows of the sample). A value that occurs once in the
        sample of n rows represents sqrt(N / n) values of the N rows, any other value represents
        itself. This is the GEE estimator of Charikar, Chaudhuri, Motwani and Narasayya, "Towards
        estimation error guarantees for distinct values", PODS 2000.
        """
        scans = _scans(snapshot)
        key = tuple(snapshot.segment(scan.file).id for scan in scans), column
        counted = self._distinct.get(key)
        if counted is None:
            values = self._rows(snapshot, scans, column).column(column).drop_null()
            counts = pc.value_counts(values).field("counts").to_numpy()
            counted = self._distinct.put(
                key, (int(counts.sum()), len(counts), int((counts == 1).sum()))
            )
        sampled, values_in, once = counted
        rows = int(snapshot.live_rows.sum())
        return min(
            rows, round(once * math.sqrt(max(1.0, rows / max(1, sampled)))) + values_in - once
        )

    def _rows(self, snapshot: Snapshot, scans: tuple[SegmentScan, ...], column: str) -> pa.Table:
        tables = list(
            read(self._metadata, ScanPlan(snapshot, None, scans, ()), (column,), threads=1)
        )
        if tables:
            return pa.concat_tables(tables)
        return pa.table({column: pa.array([], pa.null())})


def _scans(snapshot: Snapshot) -> tuple[SegmentScan, ...]:
    """Return the first row groups of up to FILES files with rows, evenly spread."""
    live = np.flatnonzero(snapshot.has_rows)
    at = np.unique(np.linspace(0, max(0, len(live) - 1), FILES).round().astype(int))
    if len(live):
        return tuple(SegmentScan(number, (0,)) for number in live[at].tolist())
    return ()

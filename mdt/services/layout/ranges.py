"""Ranges of column values in file groups, and the overlap of file groups.

Bounds come from column statistics. Values are replaced by their ranks among all bounds, so ranges
are pairs of integers for any type. Files of a sorted table share values only at their ends, which
should not count as overlap. So ranges are made *open*: ranks are doubled, and both ends are moved
inwards by one. A range of a single value stays a point, and overlaps other files with that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, numbers
from indexes.base import BoolArray, Int64Array
from mdt.metadata.snapshot.live_partitions import partitioned
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Ranges:
    """The value ranges of one column in n file groups (int64[n], ends included)."""

    low: Int64Array
    high: Int64Array

    def take(self, groups: Int64Array | BoolArray) -> Ranges:
        """Return the ranges of ``groups``, as positions or flags."""
        return Ranges(self.low[groups], self.high[groups])

    def overlap_counts(self) -> Int64Array:
        """Return the number of ranges that each range overlaps, including itself (int64[n]).

        O(n log n).
        """
        started = np.searchsorted(np.sort(self.low), self.high, side="right")
        ended = np.searchsorted(np.sort(self.high), self.low, side="left")
        return (started - ended).astype(np.int64)

    def depth(self, points: Int64Array | None = None) -> float:
        """Return the mean number of ranges that contain a point, 0.0 without points.

        ``points`` are by default the midpoints of the ranges.
        """
        if points is None:
            points = (self.low + self.high) // 2
        if not len(points):
            return 0.0
        started = np.searchsorted(np.sort(self.low), points, side="right")
        ended = np.searchsorted(np.sort(self.high), points, side="left")
        return float((started - ended).mean())


def ranges(snapshot: Snapshot, groups: Int64Array, column: str) -> Ranges:
    """Return the ranges of ``column`` in ``groups``, which are ascending numbers. O(files).

    A group with a file without statistics has the full range.
    """
    files = np.flatnonzero(snapshot.has_rows)
    group_of_file = snapshot.file_groups.of_files(files)
    is_selected = np.isin(group_of_file, groups)
    files, group = files[is_selected], np.searchsorted(groups, group_of_file[is_selected])
    low, high = _bounds(snapshot.column_stats(snapshot.definition.statistics_name(column)), files)
    first, last = np.full(len(groups), np.iinfo(np.int64).max), np.full(len(groups), -1)
    np.minimum.at(first, group, low)
    np.maximum.at(last, group, high)
    first = np.minimum(first, last.clip(0))  # groups without live rows
    return _open_ranges(first, last.clip(0))


def _open_ranges(low: Int64Array, high: Int64Array) -> Ranges:
    inwards = (low < high).astype(np.int64)
    return Ranges(2 * low + inwards, 2 * high - inwards)


def _bounds(stats: pa.Table | None, files: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the ranks of the files' minimum and maximum among all bounds (two int64[n])."""
    n = len(files)
    if stats is None:
        return np.zeros(n, np.int64), np.full(n, 2 * n + 1)
    stats = stats.take(pa.array(files))
    bounds = pa.chunked_array([*stats["min"].chunks, *stats["max"].chunks], pa.binary())
    rank = numbers(pc.rank(bounds, tiebreaker="min")).astype(np.int64)
    low, high = rank[:n], rank[n:]
    low[~flags(stats["min"].is_valid())] = 0
    high[~flags(stats["max"].is_valid())] = 2 * n + 1
    is_null = flags(pc.fill_null(pc.equal(stats["nulls"], stats["values"]), False))
    low[is_null] = high[is_null] = 2 * n + 1  # nulls sort last
    return low, high


def overlaps(
    snapshot: Snapshot, columns: Sequence[str], partitions: Sequence[str] | None = None
) -> dict[str, float]:
    """Return for each column the mean number of a partition's files that contain a value.

    1.0 if no two files overlap. Files of a group count as one. ``partitions`` are paths, or None
    for all.
    """
    groups, places = partitioned(snapshot, partitions)
    overlap = {}
    for column in columns:
        whole = ranges(snapshot, groups, column)
        depths = [whole.take(places_).depth() * len(places_) for places_ in places.values()]
        overlap[column] = sum(depths) / len(groups) if len(groups) else 0.0
    return overlap

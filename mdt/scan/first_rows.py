"""The first rows of a scan: limits, sorted results, and top-k by statistics.

Top-k queries skip data that cannot contain a result. Files, and the row groups of a file, are read
in batches in the order of their best bound of the first sort key. Once k rows are known, the last
of them is a threshold. Files and row groups that cannot contain a better row are skipped, and a
predicate skips columns of other rows. Bounds may be wide (truncated strings, deleted rows) or
absent. This only costs time, because only proofs from statistics skip data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import column_stats, paths
from indexes.arrays import expand_runs, run_starts
from indexes.base import BoolArray, Int64Array
from indexes.column_stats import STATS_SCHEMA
from indexes.predicate import And, Predicate
from mdt.filters.order import SortKey, sorted_rows
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.progress import Progress
from mdt.scan.reader import read
from mdt.scan.scan_tasks import UNIT_ROWS

_FILES_FIRST, _FILES_MAX = 16, 1024
"""Number of files whose row groups are considered together. Few at first, because most queries end
there.
"""
_ROWS_FIRST = 1024
"""Minimum number of rows in a round of reading."""
_GROWTH = 4
"""Growth factor of rounds, because a filter may reject all rows of the first ones."""


def limit_plan(plan: ScanPlan, limit: int) -> ScanPlan:
    """Restrict a plan without a predicate to its first ``limit`` rows."""
    assert plan.predicate is None, "the number of matching rows is unknown"
    snapshot = plan.snapshot
    ends = np.cumsum(snapshot.live_rows[plan.files])
    last = int(np.searchsorted(ends, limit))
    if last == len(ends):
        return plan
    segments = list(plan.segments[:last])
    remaining = limit - (int(ends[last - 1]) if last else 0)
    if remaining:
        segments.append(_first_rows(snapshot, plan.segments[last], remaining))
    return replace(plan, segments=tuple(segments))


def _first_rows(snapshot: Snapshot, scan: SegmentScan, count: int) -> SegmentScan:
    """Return the first ``count`` live rows of a segment that has at least as many."""
    dead = snapshot.vector(scan.file)
    live = BitMap(range(int(snapshot.rows[scan.file])))
    if dead is not None:
        live -= dead
    positions = live[:count]
    ends = np.cumsum(snapshot.segment(scan.file).row_groups)
    row_groups = int(np.searchsorted(ends, positions[-1], side="right")) + 1
    return replace(scan, row_groups=tuple(range(row_groups)), positions=positions)


def first_matches(
    metadata: Metadata,
    plan: ScanPlan,
    names: Sequence[str],
    limit: int,
    *,
    threads: int,
    progress: Progress | None = None,
) -> Iterator[pa.Table]:
    """Yield the first ``limit`` matching rows, or all if there are fewer. Reads no further.

    Args:
        progress: Called with the number of completed segments and of all segments.
    """
    assert limit, "limit must be positive"
    remaining, size, completed = limit, max(limit, _ROWS_FIRST), 0
    for row_groups in _chunks(plan, np.arange(len(plan.segments))):
        for picked in _rounds(row_groups, np.arange(len(row_groups)), size, threads):
            size *= _GROWTH
            for table in read(metadata, row_groups.plan(plan, picked), names, threads=threads):
                yield table[:remaining]
                remaining -= len(table)
                if remaining <= 0:
                    _report(progress, plan, len(plan.segments))
                    return
        completed += len(row_groups.scans)
        _report(progress, plan, completed)


def _report(progress: Progress | None, plan: ScanPlan, completed: int) -> None:
    if progress is not None:
        progress(completed, len(plan.segments))


def sorted_matches(
    metadata: Metadata,
    plan: ScanPlan,
    names: Sequence[str],
    keys: Sequence[SortKey],
    *,
    threads: int,
    progress: Progress | None = None,
) -> pa.Table:
    """Return all matching rows, sorted by ``keys``. They must fit in memory.

    Args:
        progress: See :func:`read`.
    """
    columns = _read_columns(plan, names, keys)
    tables = list(read(metadata, plan, columns, threads=threads, progress=progress))
    if tables:
        return sorted_rows(pa.concat_tables(tables), keys).select(names)
    return _empty_table(plan, names)


def top_k(
    metadata: Metadata,
    plan: ScanPlan,
    names: Sequence[str],
    keys: Sequence[SortKey],
    limit: int,
    *,
    threads: int,
    progress: Progress | None = None,
) -> pa.Table:
    """Return the first ``limit`` matching rows in the order of ``keys`` (top-k).

    Args:
        progress: Called with the number of segments that have been read or skipped, and of all
            segments.
    """
    assert limit, "limit must be positive"
    return _Search(metadata, plan, names, keys, limit, threads).run(progress).select(names)


def segments_with_bounds(plan: ScanPlan, key: SortKey) -> int:
    """Return the number of segments in ``plan`` with statistics of the sort column."""
    snapshot = plan.snapshot
    stats = snapshot.column_stats(snapshot.definition.statistics_name(key.column))
    if stats is None:
        return 0
    return len(plan.segments) - stats["values"].take(pa.array(plan.files)).null_count


def _read_columns(plan: ScanPlan, names: Sequence[str], keys: Sequence[SortKey]) -> list[str]:
    schema = with_meta(plan.snapshot.definition.schema)
    return list(dict.fromkeys([*names, *(paths.top_level(schema, key.column) for key in keys)]))


def _empty_table(plan: ScanPlan, names: Sequence[str]) -> pa.Table:
    schema = with_meta(plan.snapshot.definition.schema)
    return pa.schema([schema.field(name) for name in names]).empty_table()


@dataclass(frozen=True, slots=True)
class _RowGroups:
    """Row groups of segments, int64[n] each.

    Attributes:
        segment: Index of the segment in ``scans``.
        row_group: Number in the segment.
        rows: Row count.
    """

    scans: Sequence[SegmentScan]
    segment: Int64Array
    row_group: Int64Array
    rows: Int64Array

    def __len__(self) -> int:
        return len(self.segment)

    @classmethod
    def from_segments(cls, plan: ScanPlan, numbers: Int64Array) -> _RowGroups:
        """Return the row groups that a plan reads of the segments ``numbers``, in this order."""
        scans = [plan.segments[n] for n in numbers.tolist()]
        files = np.array([scan.file for scan in scans], np.int64)
        lists = plan.snapshot.files.take(("row_group_rows",), files)["row_group_rows"]
        sizes = np.asarray(pc.list_value_length(lists)).astype(np.int64)
        starts = run_starts(sizes)
        segment = np.repeat(np.arange(len(scans)), sizes)
        row_group = expand_runs(np.zeros(len(scans), np.int64), sizes)
        is_read = np.ones(len(segment), np.bool_)
        for scan, start, size in zip(scans, starts.tolist(), sizes.tolist(), strict=True):
            if scan.row_groups is not None:
                is_read[start : start + size] = np.isin(np.arange(size), scan.row_groups)
        rows = np.asarray(pc.list_flatten(lists)).astype(np.int64)
        return cls(scans, segment[is_read], row_group[is_read], rows[is_read])

    def plan(self, plan: ScanPlan, picked: Int64Array) -> ScanPlan:
        """Restrict ``plan`` to the row groups ``picked``."""
        order = picked[np.lexsort((self.row_group[picked], self.segment[picked]))]
        numbers, starts = np.unique(self.segment[order], return_index=True)
        parts = np.split(self.row_group[order], starts[1:])
        segments = (
            replace(self.scans[n], row_groups=tuple(row_groups.tolist()))
            for n, row_groups in zip(numbers.tolist(), parts, strict=True)
        )
        return replace(plan, segments=tuple(segments))

    def stats(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return statistics of ``column`` per row group, STATS_SCHEMA [n], falling back to its
        segment's.
        """
        rows = np.array([scan.file for scan in self.scans], np.int64)
        parts = [_file_stats(snapshot, column, rows)]
        at, first = self.segment.copy(), len(rows)
        starts = np.searchsorted(self.segment, np.arange(len(rows) + 1)).tolist()
        for row, start, end in zip(rows.tolist(), starts, starts[1:], strict=False):
            if end - start < 2:
                continue
            part = snapshot.row_group_stats(row)
            part = part.filter(
                pc.equal(part["column"], snapshot.definition.statistics_name(column))
            )
            place = np.searchsorted(self.row_group[start:end], np.asarray(part["row_group"]))
            place = np.minimum(place, end - start - 1)
            matches = np.flatnonzero(
                self.row_group[start:end][place] == np.asarray(part["row_group"])
            )
            at[start + place[matches]] = first + matches
            parts.append(part.select(STATS_SCHEMA.names))
            first += len(part)
        return pa.concat_tables(parts).take(pa.array(at))


def _file_stats(snapshot: Snapshot, column: str, rows: Int64Array) -> pa.Table:
    """Return statistics of ``column`` in the segments ``rows``, STATS_SCHEMA [n], null if
    absent.
    """
    stats = snapshot.column_stats(snapshot.definition.statistics_name(column))
    if stats is None:
        return pa.table(
            [pa.nulls(len(rows), type) for type in STATS_SCHEMA.types], schema=STATS_SCHEMA
        )
    return stats.select(STATS_SCHEMA.names).take(pa.array(rows))


def _chunks(plan: ScanPlan, numbers: Int64Array) -> Iterator[_RowGroups]:
    """Yield the row groups of the segments ``numbers`` in batches of a growing number of
    segments.
    """
    at, size = 0, _FILES_FIRST
    while at < len(numbers):
        yield _RowGroups.from_segments(plan, numbers[at : at + size])
        at, size = at + size, min(2 * size, _FILES_MAX)


def _rounds(
    row_groups: _RowGroups, order: Int64Array, size: int, threads: int
) -> Iterator[Int64Array]:
    """Yield the row groups in ``order`` in growing rounds. The first has at least ``size`` rows."""
    while len(order):
        rows_min = min(size, 2 * threads * UNIT_ROWS)
        count = int(np.searchsorted(np.cumsum(row_groups.rows[order]), rows_min)) + 1
        yield order[:count]
        order, size = order[count:], size * _GROWTH


class _Search:
    """A top-k search."""

    def __init__(
        self,
        metadata: Metadata,
        plan: ScanPlan,
        names: Sequence[str],
        keys: Sequence[SortKey],
        limit: int,
        threads: int,
    ) -> None:
        self._metadata = metadata
        self._plan = plan
        self._columns = _read_columns(plan, names, keys)
        self._sorted_by = _read_columns(plan, (), keys)
        self._keys = keys
        self._limit = limit
        self._threads = threads
        self._best = _empty_table(plan, self._columns)
        self._threshold: Predicate | None = None

    def run(self, progress: Progress | None) -> pa.Table:
        """Return the best rows."""
        snapshot, first = self._plan.snapshot, self._keys[0]
        rows = self._plan.files
        stats = _file_stats(snapshot, first.column, rows)
        remaining, size, round_rows = (
            _best_first(stats, first),
            _FILES_FIRST,
            max(self._limit, _ROWS_FIRST),
        )
        while len(remaining := remaining[self._may_hold(stats)[remaining]]):
            row_groups = _RowGroups.from_segments(self._plan, remaining[:size])
            remaining, size = remaining[size:], min(2 * size, _FILES_MAX)
            bounds = row_groups.stats(snapshot, first.column)
            order = _best_first(bounds, first)
            while len(order := order[self._may_hold(bounds)[order]]):
                picked = next(_rounds(row_groups, order, round_rows, self._threads))
                order, round_rows = order[len(picked) :], round_rows * _GROWTH
                self._read(row_groups.plan(self._plan, picked))
            if len(remaining):
                _report(progress, self._plan, len(rows) - len(remaining))
        if len(rows):
            _report(progress, self._plan, len(rows))
        return self._best

    def _may_hold(self, stats: pa.Table) -> BoolArray:
        """Return a mask of the files or row groups that may contain one of the best rows,
        bool[n].
        """
        if self._threshold is None:
            return np.ones(len(stats), np.bool_)
        first = self._keys[0]
        return column_stats.prune_predicate(
            lambda _: (stats, first.type), self._threshold, len(stats)
        )

    def _read(self, plan: ScanPlan) -> None:
        """Read the row groups of ``plan`` and merge their rows into the best rows."""
        if len(self._best) < self._limit and len(self._columns) > len(self._sorted_by):
            # Most rows are not among the best: find the threshold from the sort columns, then read
            # the other columns.
            seed = self._best_of(
                self._tables(plan, self._sorted_by), self._best.select(self._sorted_by)
            )
            threshold = self._threshold_of(seed, strict=False)
        else:
            threshold = self._threshold
        self._best = self._best_of(
            self._tables(_with_filter(plan, threshold), self._columns), self._best
        )
        self._threshold = self._threshold_of(self._best, strict=len(self._keys) == 1)

    def _tables(self, plan: ScanPlan, names: Sequence[str]) -> Iterator[pa.Table]:
        return read(self._metadata, plan, names, threads=self._threads)

    def _best_of(self, tables: Iterator[pa.Table], best: pa.Table) -> pa.Table:
        waiting, rows = [best], len(best)
        for table in tables:
            waiting.append(table)
            rows += len(table)
            if rows >= 2 * max(self._limit, UNIT_ROWS):
                waiting = [sorted_rows(pa.concat_tables(waiting), self._keys, self._limit)]
                rows = len(waiting[0])
        if len(waiting) == 1:
            return waiting[0]
        return sorted_rows(pa.concat_tables(waiting), self._keys, self._limit)

    def _threshold_of(self, rows: pa.Table, *, strict: bool) -> Predicate | None:
        """Return the test for rows that can still be among the best, or None if any row can.

        Args:
            strict: True if a row equal to the last one cannot.
        """
        if len(rows) < self._limit:
            return None
        first = self._keys[0]
        return first.not_behind(first.values(rows)[-1], strict=strict)


def _with_filter(plan: ScanPlan, test: Predicate | None) -> ScanPlan:
    if test is None:
        return plan
    if plan.predicate is not None:
        test = And((plan.predicate, test))
    return replace(plan, predicate=test)


def _best_first(stats: pa.Table, key: SortKey) -> Int64Array:
    """Return the order of files or row groups by their best possible value, unknown values first.

    Args:
        stats: Statistics of the sort column, STATS_SCHEMA [n].
    """
    bound = stats["max" if key.descending else "min"]
    only_nulls = pc.equal(stats["nulls"], stats["values"]).fill_null(False)
    is_unknown = pc.and_(pc.is_null(bound), pc.invert(only_nulls))
    if key.nulls_first:
        is_first = pc.or_(is_unknown, pc.greater(stats["nulls"], 0).fill_null(True))
    else:
        is_first = is_unknown
    rank = pc.if_else(is_first, 0, pc.if_else(only_nulls, 2, 1))
    sort_keys = [("rank", "ascending"), ("bound", "descending" if key.descending else "ascending")]
    return np.asarray(
        pc.sort_indices(pa.table({"rank": rank, "bound": bound}), sort_keys=sort_keys)
    ).astype(np.int64)

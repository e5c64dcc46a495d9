"""Estimates for a query optimizer: rows, bytes and column statistics of the result of a scan.

They describe the files and rows that remain after pruning. The optimizer estimates the conditions
that the scan tests row by row. Bounds and null counts come from the files and include rows deleted
by later commits, so they are valid bounds of the rows that are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import paths, values
from indexes.base import Int64Array
from indexes.key_numbers import as_numbers
from indexes.registry import parse_spec
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.plan.proofs import QueryFiles, stats_of

Floats = npt.NDArray[np.float64]

HISTOGRAM_BINS = 254
"""Number of bins of equal height, the default of Spark's ANALYZE
(``spark.sql.statistics.histogram.numBins``).
"""

_SPREAD = 0.9
"""Share of a column's range that counts as almost all of it, and of rows that counts as most of
them.
"""
_NARROW = 1e-9
_RANGE_MAX = 1e300
"""Wider ranges are ignored to avoid overflow in sums."""

Distinct = Callable[[str], int | None]
"""Returns the number of distinct values of a column, or None if it is unknown."""


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """Statistics of a column in the rows of a scan.

    Attributes:
        distinct: Approximate upper limit of distinct values, or None if unknown.
        low, high: Bounds as numbers (days, microseconds, 0 and 1), or None for strings, binaries
            and unknown bounds.
        nulls: Number of rows.
        bytes_mean: Mean size of a value in memory.
        edges: Bounds of bins with equal row counts, if requested, float64[bins + 1].
        height: Rows per bin.
    """

    distinct: int | None
    low: float | None
    high: float | None
    nulls: int
    bytes_mean: int
    edges: Floats | None = None
    height: float = 0.0

    @property
    def bins(self) -> list[tuple[float, float, int]]:
        """The histogram: lower and upper bound and number of distinct values of each bin."""
        if self.edges is None:
            return []
        width = np.diff(self.edges)
        values_of = np.maximum(
            1, width * (self.distinct or len(width)) / max(1.0, self.edges[-1] - self.edges[0])
        )
        return list(
            zip(
                self.edges[:-1].tolist(),
                self.edges[1:].tolist(),
                values_of.astype(int).tolist(),
                strict=True,
            )
        )


@dataclass(frozen=True, slots=True)
class TableEstimate:
    """Estimated rows and bytes of a scan, its number of ``files``, and column statistics by name.

    Attributes:
        spread: Join keys whose values prune no files. Most files cover almost the whole range of
            such a key, and no index covers it.
    """

    rows: int
    bytes: int
    files: int
    columns: dict[str, ColumnEstimate]
    spread: tuple[str, ...] = ()


def estimate(
    source: ScanPlan | Snapshot,
    columns: Sequence[str],
    distinct: Distinct,
    *,
    histograms: bool = False,
    keys: Sequence[str] = (),
) -> TableEstimate:
    """Estimate the result of a plan before its predicate is tested, or of a scan of a whole
    snapshot.

    Args:
        columns: Column names or field paths. Columns without statistics are left out.
        keys: Join keys to test for ``spread``.

    O(files + (columns + keys) × files of the scan).
    """
    if isinstance(source, Snapshot):
        selection = QueryFiles.all_files(source)
        rows = source.rows[selection.files]
    else:
        selection, rows = QueryFiles.from_plan(source), _rows(source.snapshot, source.segments)
    snapshot, files = selection.snapshot, selection.files
    share = rows / np.maximum(1, snapshot.rows[files])
    size = snapshot.files.numpy("size")[files]
    total = int(np.minimum(rows, selection.live).sum())
    requested = {name: stats_of(snapshot, name, files) for name in {*columns, *keys}}
    available = {name: stats for name, stats in requested.items() if stats is not None}
    estimates = {
        name: _column(snapshot, name, available[name], share, total, distinct, histograms)
        for name in columns
        if name in available
    }
    spread = tuple(
        name for name in keys if name in available and _is_spread(selection, name, available[name])
    )
    return TableEstimate(total, int((size * share).sum()), len(files), estimates, spread)


def _is_spread(selection: QueryFiles, column: str, stats: pa.Table) -> bool:
    """Return True if most rows are in files that cover almost the whole range of the column."""
    definition = selection.snapshot.definition
    if definition.key == (column,) or any(
        column in parse_spec(text).columns for text in definition.indexes
    ):
        return False
    low, high = (
        as_numbers(stats[side], paths.type_at(definition.schema, column)) / 2
        for side in ("min", "max")
    )
    has_bounds = np.isfinite(low) & np.isfinite(high)
    if not has_bounds.any():
        return False
    low, high, live = low[has_bounds], high[has_bounds], selection.live
    width = high.max() - low.min()  # halves, to avoid overflow
    in_wide = live[has_bounds][high - low >= _SPREAD * width].sum()
    return bool(width > 0 and in_wide >= _SPREAD * live.sum())


def _rows(snapshot: Snapshot, scans: Sequence[SegmentScan]) -> Int64Array:
    """Return the number of rows to read in each file."""
    rows = np.array([snapshot.rows[scan.file] for scan in scans], np.int64)
    for i, scan in enumerate(scans):
        if scan.positions is not None:
            rows[i] = len(scan.positions)
        elif scan.row_groups is not None:
            row_groups = snapshot.segment(scan.file).row_groups
            rows[i] = sum(row_groups[k] for k in scan.row_groups)
    return rows


def _column(
    snapshot: Snapshot,
    name: str,
    stats: pa.Table,
    share: Floats,
    rows: int,
    distinct: Distinct,
    histograms: bool,
) -> ColumnEstimate:
    type = paths.type_at(snapshot.definition.schema, name)
    counts = stats["values"].to_numpy()
    nulls = min(rows, math.ceil((stats["nulls"].to_numpy() * share).sum()))
    mean = int(stats["bytes"].to_numpy().sum() / max(1, counts.sum())) + 1
    low, high = as_numbers(stats["min"], type), as_numbers(stats["max"], type)
    has_bounds = np.isfinite(low) & np.isfinite(high)
    distinct_count = distinct(name)
    if not has_bounds.any():
        return ColumnEstimate(distinct_count and min(distinct_count, rows), None, None, nulls, mean)
    minimum, maximum = float(low[has_bounds].min()), float(high[has_bounds].max())
    bounds = [rows if distinct_count is None else distinct_count]
    if values.kind_of(type) in ("int", "date", "bool"):
        bounds.append(int(maximum - minimum + 1))
    if (low == high)[has_bounds].all():
        bounds.append(len(np.unique(low[has_bounds])))
    if len(bounds) > 1:
        distinct_count = min(bounds)
    edges = None
    if histograms and maximum - minimum < _RANGE_MAX:
        edges = edges_of(low[has_bounds], high[has_bounds], (counts * share)[has_bounds])
    if edges is not None and values.kind_of(type) not in ("float", "decimal"):
        edges = np.floor(edges)
    return ColumnEstimate(
        distinct_count and min(distinct_count, rows),
        minimum,
        maximum,
        nulls,
        mean,
        edges,
        (rows - nulls) / HISTOGRAM_BINS,
    )


def edges_of(low: Floats, high: Floats, rows: Floats) -> Floats:
    """Return the edges of HISTOGRAM_BINS bins with equal row counts. O(files × log(files)).

    Assumes that the rows of each file are evenly distributed between its bounds.

    >>> edges_of(np.array([0.0, 0.0]), np.array([1.0, 100.0]), np.array([90.0, 10.0])).round(2)[
    ...     [0, 127, 254]
    ... ].tolist()
    [0.0, 0.55, 100.0]
    """
    width_min = np.maximum(_NARROW * max(1.0, high.max() - low.min()), 4 * np.spacing(np.abs(low)))
    end = np.maximum(high, low + width_min)  # give a single value a tiny width
    density = rows / (end - low)
    at = np.concatenate((low, end))
    order = np.argsort(at, kind="stable")
    at, slope = at[order], np.cumsum(np.concatenate((density, -density))[order])
    below = np.concatenate(([0.0], np.cumsum(np.diff(at) * np.maximum(0.0, slope[:-1]))))
    return np.interp(np.linspace(0.0, below[-1], HISTOGRAM_BINS + 1), below, at)

"""What a plan says to an optimizer of what its scan will return: rows, bytes, and the values of
columns.

They describe the files, and the rows in them, that are left after pruning; conditions that the scan
tests row by row are the optimizer's to estimate.  Bounds and nulls are those of the files, rows
that later commits have ended included, so they are bounds for what is read.
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
from mdt.plan.proofs import Kept, stats_of

Floats = npt.NDArray[np.float64]

HISTOGRAM_BINS = 254
"""Bins of equal height; as many as Spark's ANALYZE makes
(``spark.sql.statistics.histogram.numBins``).
"""

_SPREAD = 0.9
"""Share of a column's range that is nearly all of it, and of rows that are most of them."""
_NARROW = 1e-9
_RANGE_MAX = 1e300
"""A wider range is no number, as is the sum of two."""

Distinct = Callable[[str], int | None]
"""The number of distinct values of a column, as far as it is known."""


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """What is known of the values of a column in the rows of a scan.

    ``distinct``: at most about so many values, None if nothing is known.  ``low``, ``high``: bounds
    as numbers (days, microseconds, 0 and 1), None for text, bytes and where none is known.
    ``nulls``: rows.  ``bytes_mean``: of a value in memory.  ``edges``: float64[bins + 1], values
    between which equally many rows lie, if they were asked for, and ``height``: how many.
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
        """The histogram: bounds of each bin, and how many of the distinct values lie in it."""
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
    """Rows and bytes of files that a scan reads, how many ``files`` these are, and what is known of
    some columns, by name.

    ``spread``: those of the keys of joins that values leave out no file by, wherever these lie in
    the range of all: most files range over nearly all of it, and no index knows more than that.
    """

    rows: int
    bytes: int
    files: int
    columns: dict[str, ColumnEstimate]
    spread: tuple[str, ...] = ()


def estimate(
    found: ScanPlan | Snapshot,
    columns: Sequence[str],
    distinct: Distinct,
    *,
    histograms: bool = False,
    keys: Sequence[str] = (),
) -> TableEstimate:
    """Return what the scan of a plan returns before its predicate is tested, or a scan of all of a
    snapshot.  O(files + (columns + keys) × files of the scan).

    ``columns``: names, or paths of fields; those without statistics are left out.  ``keys``: of
    joins, likewise.
    """
    if isinstance(found, Snapshot):
        kept = Kept.everything(found)
        rows = found.rows[kept.files]
    else:
        kept, rows = Kept.of(found), _rows(found.snapshot, found.segments)
    snapshot, files = kept.snapshot, kept.files
    share = rows / np.maximum(1, snapshot.rows[files])
    size = snapshot.files.numpy("size")[files]
    total = int(np.minimum(rows, kept.live).sum())
    asked = {name: stats_of(snapshot, name, files) for name in {*columns, *keys}}
    known = {name: stats for name, stats in asked.items() if stats is not None}
    told = {
        name: _column(snapshot, name, known[name], share, total, distinct, histograms)
        for name in columns
        if name in known
    }
    spread = tuple(name for name in keys if name in known and _is_spread(kept, name, known[name]))
    return TableEstimate(total, int((size * share).sum()), len(files), told, spread)


def _is_spread(kept: Kept, column: str, stats: pa.Table) -> bool:
    """Return whether most rows lie in files that range over nearly all that lies between the bounds
    of all.
    """
    definition = kept.snapshot.definition
    if definition.key == (column,) or any(
        column in parse_spec(text).columns for text in definition.indexes
    ):
        return False
    low, high = (
        as_numbers(stats[side], paths.type_at(definition.schema, column)) / 2
        for side in ("min", "max")
    )
    known = np.isfinite(low) & np.isfinite(high)
    if not known.any():
        return False
    low, high, live = low[known], high[known], kept.live
    width = high.max() - low.min()  # of halves, which do not overflow
    in_wide = live[known][high - low >= _SPREAD * width].sum()
    return bool(width > 0 and in_wide >= _SPREAD * live.sum())


def _rows(snapshot: Snapshot, scans: Sequence[SegmentScan]) -> Int64Array:
    """Return how many rows of each file are looked at."""
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
    known = np.isfinite(low) & np.isfinite(high)
    told = distinct(name)
    if not known.any():
        return ColumnEstimate(told and min(told, rows), None, None, nulls, mean)
    least, most = float(low[known].min()), float(high[known].max())
    bounds = [rows if told is None else told]
    if values.kind_of(type) in ("int", "date", "bool"):
        bounds.append(int(most - least + 1))
    if (low == high)[known].all():
        bounds.append(len(np.unique(low[known])))
    if len(bounds) > 1:
        told = min(bounds)
    edges = None
    if histograms and most - least < _RANGE_MAX:
        edges = edges_of(low[known], high[known], (counts * share)[known])
    if edges is not None and values.kind_of(type) not in ("float", "decimal"):
        edges = np.floor(edges)
    return ColumnEstimate(
        told and min(told, rows), least, most, nulls, mean, edges, (rows - nulls) / HISTOGRAM_BINS
    )


def edges_of(low: Floats, high: Floats, rows: Floats) -> Floats:
    """Return the edges of HISTOGRAM_BINS bins of equally many rows, where the rows of each file are
    spread evenly between its bounds.

    O(files × log(files)).

    >>> edges_of(np.array([0.0, 0.0]), np.array([1.0, 100.0]), np.array([90.0, 10.0])).round(2)[
    ...     [0, 127, 254]
    ... ].tolist()
    [0.0, 0.55, 100.0]
    """
    narrow = np.maximum(_NARROW * max(1.0, high.max() - low.min()), 4 * np.spacing(np.abs(low)))
    wide = np.maximum(high, low + narrow)  # one value is a very narrow range
    density = rows / (wide - low)
    at = np.concatenate((low, wide))
    order = np.argsort(at, kind="stable")
    at, slope = at[order], np.cumsum(np.concatenate((density, -density))[order])
    below = np.concatenate(([0.0], np.cumsum(np.diff(at) * np.maximum(0.0, slope[:-1]))))
    return np.interp(np.linspace(0.0, below[-1], HISTOGRAM_BINS + 1), below, at)

"""Exact facts about a query's result derived from statistics without reading data: totals over rows
that certainly match, and bounds of the first rows.

A fact is exact or omitted. A file is *covered* by a predicate if all its rows match. Then its live
rows count, and if it has no deleted rows, its bounds are values of matching rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import column_stats, paths, values
from indexes.base import BoolArray, Int64Array
from indexes.predicate import Leaf, Predicate, leaves, negate
from mdt.filters.order import SortKey
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import ScanPlan


@dataclass(frozen=True, slots=True)
class QueryFiles:
    """The files of a snapshot that a query reads.

    Attributes:
        predicate: The filter, or None.
        files: Numbers of the files that may contain a match, int64[n].
    """

    snapshot: Snapshot
    predicate: Predicate | None
    files: Int64Array

    @classmethod
    def from_plan(cls, plan: ScanPlan) -> QueryFiles:
        """Return the files that a plan reads."""
        return cls(plan.snapshot, plan.predicate, plan.files)

    @classmethod
    def all_files(cls, snapshot: Snapshot) -> QueryFiles:
        """Return all files with rows."""
        return cls(snapshot, None, np.flatnonzero(snapshot.has_rows))

    @property
    def live(self) -> Int64Array:
        """Number of live rows in each file."""
        return np.asarray(self.snapshot.live_rows[self.files])


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over the matching rows of a plan.

    Attributes:
        rows: Number of matching rows.
        nulls, least, most: Null count, minimum and maximum by column, where known. A bound is a key
            (:mod:`indexes.values`), or None if all values are null.
    """

    rows: int
    nulls: dict[str, int]
    least: dict[str, bytes | None]
    most: dict[str, bytes | None]


def totals(selection: QueryFiles, columns: Sequence[str]) -> Totals | None:
    """Return totals over matching rows, or None if a file may contain a row that does not match.

    O(files × columns).
    """
    snapshot, files = selection.snapshot, selection.files
    if not covered(selection).all():
        return None
    live = selection.live
    sums = Totals(int(live.sum()), {}, {}, {})
    for column in columns:
        stats = stats_of(snapshot, column, files)
        if stats is not None:
            _sum(sums, column, stats, snapshot.dead_rows[files] > 0, live)
    return sums


def _sum(
    result: Totals, column: str, stats: pa.Table, is_dirty: BoolArray, live: Int64Array
) -> None:
    """Add the known totals of a column.

    With deleted rows, the bounds of a file may not be values of live rows, but they are still
    bounds.
    """
    nulls = stats["nulls"].to_numpy()
    if not (is_dirty & (nulls > 0)).any():
        result.nulls[column] = int(nulls.sum())
    is_null = np.where(is_dirty, False, nulls == live)
    for side, sums, first in (
        ("min", result.least, "ascending"),
        ("max", result.most, "descending"),
    ):
        bounds, exact = (
            stats[side],
            stats[f"{side}_exact"].to_numpy(zero_copy_only=False) & ~is_dirty,
        )
        if is_null.all():
            sums[column] = None
        elif np.asarray(pc.is_valid(bounds))[~is_null].all():
            order = _sort_order(bounds, first)
            best = bounds[int(order[0])].as_py()
            is_best = np.asarray(
                pc.equal(bounds, best).fill_null(False).to_numpy(zero_copy_only=False)
            )
            if (exact & is_best).any():
                sums[column] = best


def threshold(selection: QueryFiles, key: SortKey, count: int) -> bytes | None:
    """Return a key bound with at least ``count`` matching rows at or before it, or None if none is
    known.

    The order is that of ``key``. Leading nulls count as before the bound. O(files × log(files)).
    """
    is_covered = covered(selection)
    stats = stats_of(selection.snapshot, key.column, selection.files[is_covered])
    if stats is None or not len(stats):
        return None
    certain = selection.live[is_covered]
    if not key.nulls_first:
        certain = np.maximum(0, certain - stats["nulls"].to_numpy())
    side, direction = "max", "ascending"
    if key.descending:
        side, direction = "min", "descending"
    bounds = stats[side]
    certain = np.where(np.asarray(pc.is_valid(bounds)), certain, 0)
    order = _sort_order(bounds, direction)
    at = int(np.searchsorted(np.cumsum(certain[order]), count))
    return None if at == len(order) else bounds[int(order[at])].as_py()


def share_behind(selection: QueryFiles, key: SortKey, bound: bytes) -> float:
    """Return the share of files with all rows after the bound, in the order of ``key``.
    O(files).
    """
    stats = stats_of(selection.snapshot, key.column, selection.files)
    if stats is None or not len(stats):
        return 0.0
    best_bounds = stats["max" if key.descending else "min"]
    is_after = pc.less(best_bounds, bound) if key.descending else pc.greater(best_bounds, bound)
    is_behind = is_after.fill_null(False).to_numpy()
    if key.nulls_first:
        is_behind &= stats["nulls"].to_numpy() == 0
    return float(np.mean(is_behind))


def files_with_rows(selection: QueryFiles, rows: int) -> Int64Array | None:
    """Return numbers of files with at least ``rows`` matching rows, or None if statistics cannot
    prove it.
    """
    is_covered = covered(selection)
    last = int(np.searchsorted(np.cumsum(np.where(is_covered, selection.live, 0)), rows))
    return None if last >= len(is_covered) else selection.files[: last + 1][is_covered[: last + 1]]


def covered(selection: QueryFiles) -> BoolArray:
    """Return True for each file in which all rows match, as bool[files]."""
    files, predicate = selection.files, selection.predicate
    if predicate is None:
        return np.ones(len(files), np.bool_)
    tests = list(leaves(predicate))
    if any(_may_be_null(test) for test in tests):
        return np.zeros(len(files), np.bool_)
    snapshot = selection.snapshot
    stats_by_column = {test.column: stats_of(snapshot, test.column, files) for test in tests}

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        stats = stats_by_column[path]
        return None if stats is None else (stats, paths.type_at(snapshot.definition.schema, path))

    is_covered = ~column_stats.prune_predicate(lookup, negate(predicate), len(files))
    for test in tests:
        stats = stats_by_column[test.column]
        if stats is None:
            return np.zeros(len(files), np.bool_)
        if test.op not in ("is null", "is not null", "<=>"):
            is_covered &= stats["nulls"].to_numpy() == 0
    return np.asarray(is_covered)


def _may_be_null(test: Leaf) -> bool:
    """Return True if a test can be null for a non-null value."""
    literals = test.value if isinstance(test.value, tuple) else (test.value,)
    return test.op not in ("is null", "is not null", "<=>") and any(
        literal is None for literal in literals
    )


def _sort_order(bounds: pa.ChunkedArray, direction: str) -> Int64Array:
    """Return the order of the bounds, with nulls last."""
    return np.asarray(
        pc.sort_indices(pa.table({"bound": bounds}), sort_keys=[("bound", direction)])
    ).astype(np.int64)


def stats_of(snapshot: Snapshot, path: str, files: Int64Array) -> pa.Table | None:
    """Return the statistics of a column for each file.

    None if a file has no statistics of it, or if its type has no order.
    """
    field = paths.field_at(snapshot.definition.schema, path)
    if field is None or not values.supports(field.type):
        return None
    stored = snapshot.column_stats(snapshot.definition.statistics_name(path))
    if stored is None:
        return None
    stats = stored.take(pa.array(files, pa.int64()))
    if stats["values"].null_count:
        return None
    return stats

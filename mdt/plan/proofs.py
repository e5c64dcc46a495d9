"""What statistics prove of a query's rows without a data file being read: sums over rows that
surely match, and where the best rows end.

Everything here is exact or is not said.  A file is *covered* by a predicate if every row of it
matches: then its live rows are counted, and if it has no dead ones its bounds are values of
matching rows.
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
class Kept:
    """What a query keeps of a state: ``predicate`` (None: no filter) and the numbers of files that
    may hold a match, int64[n].
    """

    snapshot: Snapshot
    predicate: Predicate | None
    files: Int64Array

    @classmethod
    def of(cls, found: ScanPlan) -> Kept:
        """Return what a plan keeps."""
        return cls(found.snapshot, found.predicate, found.files)

    @classmethod
    def everything(cls, snapshot: Snapshot) -> Kept:
        """Return all files with rows."""
        return cls(snapshot, None, np.flatnonzero(snapshot.has_rows))

    @property
    def live(self) -> Int64Array:
        """How many rows of each file live."""
        return np.asarray((self.snapshot.rows - self.snapshot.dead_rows)[self.files])


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the rows of a plan.  ``rows``: how many match.  ``nulls``, ``least``, ``most``: of
    columns, as far as they are known.

    A bound is a key (:mod:`indexes.values`), None if all values are null.
    """

    rows: int
    nulls: dict[str, int]
    least: dict[str, bytes | None]
    most: dict[str, bytes | None]


def totals(found: Kept, columns: Sequence[str]) -> Totals | None:
    """Return the sums over rows that match, None if a file may hold one that does not.  O(files ×
    columns).
    """
    snapshot, files = found.snapshot, found.files
    if not covered(found).all():
        return None
    live = found.live
    told = Totals(int(live.sum()), {}, {}, {})
    for column in columns:
        stats = stats_of(snapshot, column, files)
        if stats is not None:
            _sum(told, column, stats, snapshot.dead_rows[files] > 0, live)
    return told


def _sum(told: Totals, column: str, stats: pa.Table, is_dirty: BoolArray, live: Int64Array) -> None:
    """Add what is known of a column.  Bounds of files with dead rows are no values, but no value is
    beyond them.
    """
    nulls = stats["nulls"].to_numpy()
    if not (is_dirty & (nulls > 0)).any():
        told.nulls[column] = int(nulls.sum())
    is_null = np.where(is_dirty, False, nulls == live)
    for side, sums, first in (("min", told.least, "ascending"), ("max", told.most, "descending")):
        bounds, exact = (
            stats[side],
            stats[f"{side}_exact"].to_numpy(zero_copy_only=False) & ~is_dirty,
        )
        if is_null.all():
            sums[column] = None
        elif np.asarray(pc.is_valid(bounds))[~is_null].all():
            order = _sorted(bounds, first)
            best = bounds[int(order[0])].as_py()
            is_best = np.asarray(
                pc.equal(bounds, best).fill_null(False).to_numpy(zero_copy_only=False)
            )
            if (exact & is_best).any():
                sums[column] = best


def threshold(found: Kept, key: SortKey, count: int) -> bytes | None:
    """Return a bound that at least ``count`` rows which match are not behind, in the order of
    ``key``: a key, None if none is known.

    Nulls that come first are not behind it.  O(files × log(files)).
    """
    is_covered = covered(found)
    stats = stats_of(found.snapshot, key.column, found.files[is_covered])
    if stats is None or not len(stats):
        return None
    sure = found.live[is_covered]
    if not key.nulls_first:
        sure = np.maximum(0, sure - stats["nulls"].to_numpy())
    side, way = "max", "ascending"
    if key.descending:
        side, way = "min", "descending"
    bounds = stats[side]
    sure = np.where(np.asarray(pc.is_valid(bounds)), sure, 0)
    order = _sorted(bounds, way)
    at = int(np.searchsorted(np.cumsum(sure[order]), count))
    return None if at == len(order) else bounds[int(order[at])].as_py()


def behind(found: Kept, key: SortKey, bound: bytes) -> float:
    """Return the share of files of which every row is behind a bound, in the order of ``key``.
    O(files).
    """
    stats = stats_of(found.snapshot, key.column, found.files)
    if stats is None or not len(stats):
        return 0.0
    near = stats["max" if key.descending else "min"]
    far = pc.less(near, bound) if key.descending else pc.greater(near, bound)
    is_behind = far.fill_null(False).to_numpy()
    if key.nulls_first:
        is_behind &= stats["nulls"].to_numpy() == 0
    return float(np.mean(is_behind))


def enough(found: Kept, rows: int) -> Int64Array | None:
    """Return the numbers of files of which ``rows`` rows match, None if that is not proved of all
    of them together.
    """
    is_covered = covered(found)
    last = int(np.searchsorted(np.cumsum(np.where(is_covered, found.live, 0)), rows))
    return None if last >= len(is_covered) else found.files[: last + 1][is_covered[: last + 1]]


def covered(found: Kept) -> BoolArray:
    """Return of which files every row matches -> bool[files]."""
    files, predicate = found.files, found.predicate
    if predicate is None:
        return np.ones(len(files), np.bool_)
    tests = list(leaves(predicate))
    if any(_may_be_null(test) for test in tests):
        return np.zeros(len(files), np.bool_)
    snapshot = found.snapshot
    known = {test.column: stats_of(snapshot, test.column, files) for test in tests}

    def lookup(path: str) -> tuple[pa.Table, pa.DataType] | None:
        stats = known[path]
        return None if stats is None else (stats, paths.type_at(snapshot.definition.schema, path))

    is_covered = ~column_stats.prune_predicate(lookup, negate(predicate), len(files))
    for test in tests:
        stats = known[test.column]
        if stats is None:
            return np.zeros(len(files), np.bool_)
        if test.op not in ("is null", "is not null", "<=>"):
            is_covered &= stats["nulls"].to_numpy() == 0
    return np.asarray(is_covered)


def _may_be_null(test: Leaf) -> bool:
    """Return whether a test may be null for a value that is not."""
    literals = test.value if isinstance(test.value, tuple) else (test.value,)
    return test.op not in ("is null", "is not null", "<=>") and any(
        literal is None for literal in literals
    )


def _sorted(bounds: pa.ChunkedArray, way: str) -> Int64Array:
    """Return the numbers of bounds in order, absent ones last."""
    return np.asarray(
        pc.sort_indices(pa.table({"bound": bounds}), sort_keys=[("bound", way)])
    ).astype(np.int64)


def stats_of(snapshot: Snapshot, path: str, files: Int64Array) -> pa.Table | None:
    """Return the statistics of a column of files, None if one has none or the column has no
    order.
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

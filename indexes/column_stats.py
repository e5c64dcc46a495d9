"""Column statistics: min/max bounds and counts of each segment, and pruning of many segments at
once.

Statistics are computed from the data, never taken from a Parquet footer. Bounds are keys (see
``indexes.values``), so a binary column holds the bounds of any type. Bounds of long strings are cut
to :data:`BOUND_BYTES_MAX`, the lower bound down and the upper bound up, and marked as not exact. If
there is no upper bound of that length, it is missing. If a segment contains NaN, its upper bound is
NaN.

The columnar form (:data:`STATS_SCHEMA`, a row per segment) is the fast path. A row with a null in
``values`` stands for a segment without statistics: MAYBE for every test. :class:`ColumnStats`
stores the same data as a summary per segment.
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import key_ranges
from indexes import values as order
from indexes.arrays import MANY_VALUES, column, flags, is_sorted, mask
from indexes.base import MAYBE, NO, BoolArray, Int64Array, SkippingIndex, Summary, whole
from indexes.bounds import WORD_BYTES, Bounds, counts, known_or_true
from indexes.predicate import Call, Leaf, Predicate, verdicts
from indexes.values import sorted_keys

BOUND_BYTES_MAX = 64
"""Maximum length of a string or binary bound. Long enough for keys such as UUIDs, and
most paths.
"""

STATS_SCHEMA = pa.schema(
    [
        ("min", pa.binary()),
        ("max", pa.binary()),
        ("min_exact", pa.bool_()),
        ("max_exact", pa.bool_()),
        ("nulls", pa.int64()),
        ("nans", pa.int64()),
        ("values", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""One row per segment.

The columns are: bounds (keys, null if missing), exactness of each bound (True if a value equals
it), number of null rows, NaN rows and all rows, and estimated size in memory in bytes.
"""

_FIELDS = ("min", "max", "min_exact", "max_exact", "nulls", "nans", "values", "size")
_TYPES = STATS_SCHEMA.types
_NOT_COVERED = (None,) * len(_FIELDS)
_fields = operator.attrgetter(*_FIELDS)

_HEADER = struct.Struct(">BBqqqqHH")
_VERSION = 1
_HAS_MIN, _HAS_MAX, _MIN_EXACT, _MAX_EXACT = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a column of a segment. The fields are those of :data:`STATS_SCHEMA`, with
    ``size`` for ``bytes``.
    """

    min: bytes | None
    max: bytes | None
    min_exact: bool
    max_exact: bool
    nulls: int
    nans: int
    values: int
    size: int

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if (
            min(self.nulls, self.nans, self.values, self.size) < 0
            or self.nulls + self.nans > self.values
        ):
            raise ValueError(
                f"column statistics count {self.nulls} nulls and {self.nans} NaN in {self.values}"
                " rows"
            )
        if (self.min_exact and self.min is None) or (self.max_exact and self.max is None):
            raise ValueError("column statistics mark a missing bound as exact")
        if max(len(self.min or b""), len(self.max or b"")) > BOUND_BYTES_MAX:
            raise ValueError(f"a bound is longer than {BOUND_BYTES_MAX} bytes")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("the lower bound is above the upper bound")
        if self.nulls == self.values and not (self.min is None and self.max is None):
            raise ValueError("column statistics have bounds but no values")


def summarize(values: pa.Array | pa.ChunkedArray) -> Stats:
    """Return the statistics of a segment's column. A type without order has no bounds.

    ``values`` is a column [rows] of any type. O(rows), vectorized.

    >>> summarize(pa.array([4.0, None, 9.5])).nulls, summarize(pa.array(["b", "a"])).min
    (1, b'a')
    """
    size = int(values.nbytes)
    if not order.supports(values.type):
        return Stats(None, None, False, False, values.null_count, 0, len(values), size)
    values = order.plain(values)
    nulls, nans, present = values.null_count, 0, values
    if pa.types.is_floating(values.type):
        is_nan = pc.is_nan(values)
        nans = int(is_nan.true_count)
        present = values.filter(pc.invert(is_nan)) if nans else values
    low, high = _bounds(present)
    if nans:
        high = order.compare_key(float("nan"), values.type).data
        low = high if low is None else low
    return _stats(low, high, values.type, nulls, nans, len(values), size)


def summarize_row_groups(
    values: pa.Array | pa.ChunkedArray, row_group_rows: Sequence[int]
) -> list[Stats]:
    """Return the statistics of consecutive row groups with ``row_group_rows[i]`` rows each.

    Raises ValueError if the row groups do not add up to all rows.
    """
    if sum(row_group_rows) != len(values) or any(rows < 0 for rows in row_group_rows):
        raise ValueError(
            f"the row groups have {sum(row_group_rows)} rows, but the column {len(values)}"
        )
    if len(row_group_rows) == 1:
        return [summarize(values)]
    starts = accumulate(row_group_rows, initial=0)
    return [
        summarize(values.slice(start, rows))
        for start, rows in zip(starts, row_group_rows, strict=False)
    ]


def _outermost(
    choose: Callable[[Sequence[bytes]], bytes], bounds: Sequence[bytes | None]
) -> bytes | None:
    """Return the bound of all segments, or None if any bound is missing."""
    present = [bound for bound in bounds if bound is not None]
    if not present or len(present) < len(bounds):
        return None
    return choose(present)


def merge(row_groups: Sequence[Stats]) -> Stats:
    """Merge the statistics of row groups. O(row groups).

    The result equals the statistics of all rows, except for ``size``. If several row groups have
    the same bound, it is exact if it is exact in any of them.

    >>> ab, cd = summarize(pa.array(["a", "b"])), summarize(pa.array(["c", "d", None]))
    >>> both = merge([ab, cd])
    >>> both.min, both.max, both.nulls, both.values
    (b'a', b'd', 1, 5)
    """
    if len(row_groups) == 1:
        return row_groups[0]
    filled = [row_group for row_group in row_groups if row_group.nulls < row_group.values]
    low = _outermost(min, [row_group.min for row_group in filled])
    high = _outermost(max, [row_group.max for row_group in filled])
    low_is_exact = low is not None and any(part.min_exact and part.min == low for part in filled)
    high_is_exact = high is not None and any(part.max_exact and part.max == high for part in filled)
    return Stats(
        low,
        high,
        low_is_exact,
        high_is_exact,
        sum(part.nulls for part in row_groups),
        sum(part.nans for part in row_groups),
        sum(part.values for part in row_groups),
        sum(part.size for part in row_groups),
    )


def union(stats: pa.Table, starts: Int64Array) -> pa.Table:
    """Merge runs of consecutive segments, each like :func:`merge` -> STATS_SCHEMA [runs].

    If a segment has no statistics, its run has none. The same holds for NaN counts. O(n).

    Args:
        stats: STATS_SCHEMA [n] in a single chunk.
        starts: First segments of the runs, ascending from 0.
    """
    nulls, nans, rows = (counts(stats[name]) for name in ("nulls", "nans", "values"))
    is_known = np.logical_and.reduceat((nulls >= 0) & (rows >= nulls), starts)
    has_values, run_of = (
        rows > nulls,
        np.repeat(np.arange(len(starts)), np.diff(starts, append=len(stats))),
    )
    columns: dict[str, pa.Array] = {}
    for end in ("min", "max"):
        keys = stats[end].combine_chunks()
        is_bounded = np.logical_or.reduceat(has_values, starts) & ~np.logical_or.reduceat(
            has_values & _is_true(keys.is_null()), starts
        )
        extremes = [
            pc.min_max(keys.slice(start, stop - start))[end].as_py() if is_valid else None
            for start, stop, is_valid in zip(
                starts.tolist(),
                [*starts[1:].tolist(), len(stats)],
                is_bounded & is_known,
                strict=True,
            )
        ]
        columns[end] = pa.array(extremes, pa.binary())
        at_bound = pc.equal(keys, columns[end].take(column(run_of)))
        exact = _is_true(at_bound) & has_values & _is_true(stats[f"{end}_exact"])
        columns[f"{end}_exact"] = _masked(np.logical_or.reduceat(exact, starts), is_known)
    nan_counts = np.where(
        np.logical_and.reduceat(nans >= 0, starts), np.add.reduceat(nans, starts), -1
    )
    columns |= {
        "nulls": column(np.add.reduceat(nulls, starts), is_known),
        "nans": column(nan_counts, is_known & (nan_counts >= 0)),
    }
    columns |= {
        name: column(np.add.reduceat(counts(stats[name]), starts), is_known)
        for name in ("values", "bytes")
    }
    return pa.table([columns[name] for name in STATS_SCHEMA.names], schema=STATS_SCHEMA)


def _is_true(values: Any) -> BoolArray:
    """Return bool[n], False for null."""
    if values.null_count:
        values = values.fill_null(False)
    return flags(values)


def _masked(values: BoolArray, valid: BoolArray) -> pa.Array:
    """Return booleans [n], null where not ``valid``."""
    return pc.if_else(mask(valid), mask(values), pa.scalar(None, pa.bool_()))


def to_batch(stats: Sequence[Stats | None]) -> pa.RecordBatch:
    """Return the statistics of n segments in columnar form (:data:`STATS_SCHEMA`).

    None stands for a segment without statistics.
    """
    rows = [_NOT_COVERED if row is None else _fields(row) for row in stats]
    columns: Iterable[Sequence[object]] = zip(*rows, strict=True) if rows else [()] * len(_TYPES)
    arrays = [pa.array(column, type) for column, type in zip(columns, _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=STATS_SCHEMA)


def from_table(stats: pa.RecordBatch | pa.Table) -> list[Stats]:
    """Return the rows of :data:`STATS_SCHEMA` as objects. The inverse of :func:`to_batch`.

    All segments must have statistics.
    """
    columns = (stats.column(name).to_pylist() for name in STATS_SCHEMA.names)
    return [Stats(*row) for row in zip(*columns, strict=True)]


def prune(stats: pa.RecordBatch | pa.Table | Bounds, leaf: Leaf, type: pa.DataType) -> BoolArray:
    """Return MAYBE or NO for each of n segments -> bool[n].

    O(n × log(literals)), vectorized. Raises ValueError for a literal that cannot be compared with
    ``type``.

    Args:
        stats: :data:`STATS_SCHEMA` [n] of the tested column, or a :class:`Bounds` read from it.
        type: Type of the tested column.

    >>> known = [summarize(pa.array([1, 3])), summarize(pa.array([5, 9]))]
    >>> stats = to_batch([*known, None])  # None: no statistics
    >>> prune(stats, Leaf("n", "<", 4), pa.int64()).tolist()
    [True, False, True]
    """
    if not isinstance(stats, Bounds):
        stats = Bounds.read(stats, type)
    verdict = _verdict(stats, leaf, type)
    return np.asarray((verdict & stats.has_rows) | ~stats.known, dtype=np.bool_)


def prune_predicate(
    lookup: Callable[[str], tuple[pa.RecordBatch | pa.Table | Bounds, pa.DataType] | None],
    predicate: Predicate,
    n: int,
) -> BoolArray:
    """Return MAYBE or NO for each of ``n`` segments under a whole predicate -> bool[n].

    Raises ValueError like :func:`prune`, and for statistics of a different number of segments.

    Args:
        lookup: Returns the statistics [n] and the type of a column, or None (MAYBE).

    >>> from indexes.predicate import And
    >>> stats = to_batch([summarize(pa.array([1, 3])), summarize(pa.array([5, 9]))])
    >>> both = And((Leaf("n", ">", 4), Leaf("note", "like", "%a%")))
    >>> prune_predicate(lambda name: (stats, pa.int64()) if name == "n" else None, both, 2).tolist()
    [False, True]
    """

    def ask(leaf: Leaf) -> Iterator[BoolArray]:
        if isinstance(leaf, Call) or (column_stats := lookup(leaf.column)) is None:
            return
        stats, type = column_stats
        if stats.num_rows != n:
            raise ValueError(
                f"statistics of {leaf.column!r} cover {stats.num_rows} segments instead of {n}"
            )
        yield prune(stats, leaf, type)

    return verdicts(predicate, n, ask)


class ColumnStats(SkippingIndex):
    """Column statistics with a summary per segment.

    Bytes: version (1), flags (1: has min 1, has max 2, min exact 4, max exact 8), nulls, NaN, rows,
    size (int64 each), lengths of min and max (uint16 each), min, max; big-endian.
    """

    name: ClassVar[str] = "column_stats/1"

    def supports(self, type: pa.DataType) -> bool:
        """Return True if columns of ``type`` can be summarized. O(1)."""
        return order.supports(type)

    def summarize(self, values: pa.Array) -> bytes:
        """Return the packed statistics of a segment's column [rows]. O(rows)."""
        return pack(summarize(values))

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE or NO for each of n summaries -> bool[n]. Raises ValueError for foreign
        bytes.
        """
        return prune(to_batch([unpack(whole(summary), type) for summary in summaries]), leaf, type)


def pack(stats: Stats) -> bytes:
    """Return the bytes of a summary. :class:`ColumnStats` documents the format."""
    stats.check()
    low, high = stats.min or b"", stats.max or b""
    flags = (
        _HAS_MIN * (stats.min is not None)
        + _HAS_MAX * (stats.max is not None)
        + _MIN_EXACT * stats.min_exact
        + _MAX_EXACT * stats.max_exact
    )
    counts = (stats.nulls, stats.nans, stats.values, stats.size)
    return _HEADER.pack(_VERSION, flags, *counts, len(low), len(high)) + low + high


def unpack(summary: bytes | memoryview, type: pa.DataType) -> Stats:
    """Decode a summary of a column of ``type``. Raises ValueError for bytes not made by
    :func:`pack`.
    """
    if len(summary) < _HEADER.size:
        raise ValueError(
            f"a column statistics summary must have at least {_HEADER.size} bytes, got"
            f" {len(summary)}"
        )
    version, flags, nulls, nans, rows, size, low_bytes, high_bytes = _HEADER.unpack_from(summary)
    if version != _VERSION or flags > 15 or len(summary) != _HEADER.size + low_bytes + high_bytes:
        raise ValueError(
            f"not a column statistics summary: version {version}, flags {flags}, {len(summary)}"
            " bytes"
        )
    if (low_bytes and not flags & _HAS_MIN) or (high_bytes and not flags & _HAS_MAX):
        raise ValueError("a column statistics summary contains a bound that its flags exclude")
    split = _HEADER.size + low_bytes
    low = bytes(summary[_HEADER.size : split]) if flags & _HAS_MIN else None
    high = bytes(summary[split:]) if flags & _HAS_MAX else None
    stats = Stats(
        low, high, bool(flags & _MIN_EXACT), bool(flags & _MAX_EXACT), nulls, nans, rows, size
    )
    stats.check()
    width = order.key_width(type)
    if width is not None and any(
        bound is not None and len(bound) != width for bound in (low, high)
    ):
        raise ValueError(
            f"bounds of type {type} must have {width} bytes, got {low_bytes} and {high_bytes}"
        )
    return stats


def _bounds(values: pa.Array) -> tuple[bytes | None, bytes | None]:
    """Return the keys of the smallest and largest value, or (None, None) without values.

    ``values``: Array without NaN.
    """
    if values.null_count == len(values):
        return None, None
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    if len(values) >= MANY_VALUES and order.kind_of(values.type) == "string" and is_sorted(values):
        # mostly the record key
        return order.encode_one(values[0]), order.encode_one(values[-1])
    if len(values) == 1:
        key = order.encode_one(values[0])
        return key, key
    extremes = pc.min_max(values)
    return order.encode_one(extremes["min"]), order.encode_one(extremes["max"])


def _stats(
    low: bytes | None,
    high: bytes | None,
    type: pa.DataType,
    nulls: int,
    nans: int,
    rows: int,
    size: int,
) -> Stats:
    """Return the statistics with truncated bounds."""
    kind = order.kind_of(type)
    low_cut, high_cut = low, high
    if kind in ("string", "binary") and low is not None and high is not None:
        low_cut = order.truncate_down(low, BOUND_BYTES_MAX)
        high_cut = order.truncate_up(high, BOUND_BYTES_MAX, utf8=kind == "string")
    min_exact = low_cut is not None and low_cut == low
    max_exact = high_cut is not None and high_cut == high
    return Stats(low_cut, high_cut, min_exact, max_exact, nulls, nans, rows, size)


def _verdict(columns: Bounds, leaf: Leaf, type: pa.DataType) -> BoolArray:
    """Return MAYBE or NO, assuming that all segments have statistics."""
    op, value = leaf.op, leaf.value
    if op == "is null" or (op == "<=>" and value is None):
        return columns.has_nulls
    if op == "is not null":
        return columns.has_values
    if op in ("in", "not in"):
        assert isinstance(value, tuple)
        if op == "in":
            return _in_verdict(columns, value, type)
        return _not_in_verdict(columns, value, type)
    if op in ("match", "not match"):
        return columns.has_values & columns.each(value is not None)
    ranges, _ = key_ranges.ranges_of(leaf, type)
    return columns.has_values & reduce(
        np.logical_or, (_overlap(columns, *keys) for keys in ranges), columns.each(NO)
    )


def _overlap(columns: Bounds, start: bytes, stop: bytes | None) -> BoolArray:
    """Return MAYBE where keys from ``start`` to below ``stop`` may lie between the bounds."""
    verdict = columns.each(MAYBE)
    if start:
        verdict &= columns.high(operator.ge, start)
    if stop is not None:
        verdict &= columns.low(operator.lt, stop)
    return verdict


def _in_verdict(columns: Bounds, literals: tuple[object, ...], type: pa.DataType) -> BoolArray:
    """Return MAYBE where a literal is between the bounds.

    That is the case if more literals are at or below max than below min.
    """
    keys = sorted_keys(literals, type)
    if not keys:
        return columns.each(NO)
    if len(keys) <= 2:
        inside = [columns.low(operator.le, key) & columns.high(operator.ge, key) for key in keys]
        return np.asarray(columns.has_values & np.logical_or.reduce(inside), dtype=np.bool_)
    low, high = columns.min, columns.max
    if low.words is not None and high.words is not None and order.key_width(type) == WORD_BYTES:
        words = np.frombuffer(b"".join(keys), dtype=">u8").astype(np.uint64)
        above = (
            high.words
            if high.absent is None
            else np.where(high.absent, np.uint64(2**64 - 1), high.words)
        )
        below = np.searchsorted(words, low.words, side="left")
        not_above = np.searchsorted(words, above, side="right")
        return np.asarray(columns.has_values & (not_above > below), dtype=np.bool_)
    verdict = (
        columns.has_values & columns.low(operator.le, keys[-1]) & columns.high(operator.ge, keys[0])
    )
    candidates = np.flatnonzero(verdict)
    lows, highs = (bound.keys.take(pa.array(candidates)).to_pylist() for bound in (low, high))
    verdict[candidates] = [_between(keys, *pair) for pair in zip(lows, highs, strict=True)]
    return verdict


def _between(keys: list[bytes], low: bytes | None, high: bytes | None) -> bool:
    """Return True if any of the sorted ``keys`` is in [low, high]. O(log(keys))."""
    at = bisect_left(keys, low) if low is not None else 0
    return at < len(keys) and (high is None or keys[at] <= high)


def _not_in_verdict(columns: Bounds, literals: tuple[object, ...], type: pa.DataType) -> BoolArray:
    """Return NO where all values equal the same literal."""
    keys = sorted_keys(literals, type)
    if None in literals:
        return columns.each(NO)
    low, high = columns.min.keys, columns.max.keys
    same = pc.and_(pc.equal(low, high), pc.is_in(low, value_set=pa.array(keys, pa.binary())))
    return np.asarray(columns.has_values & known_or_true(pc.invert(same)), dtype=np.bool_)

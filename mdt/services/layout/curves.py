"""Orders of rows that keep what is alike in few files: by columns one after the other, or along a
curve through all of them.

A curve puts rows into one order so that each of several columns has narrow ranges in every file.
Columns count by the *ranks* of their values, so that any type that has an order will do, and a
skewed column as much as an even one.  Along the z-order the bits of the ranks alternate; the curve
of Hilbert makes no jumps, so that its files have smaller ranges still.  Pure, without a loop over
rows:

    >>> import pyarrow as pa
    >>> rows = pa.table({"a": [1, 0, 1, 0], "b": [0.5, 0.5, None, float("nan")]})
    >>> row_order([rows["a"], rows["b"]], "sort").tolist()
    [1, 3, 0, 2]
    >>> row_order([rows["a"], rows["b"]], "hilbert").tolist()
    [1, 3, 2, 0]

Hilbert's curve is John Skilling's (*Programming the Hilbert curve*, AIP Conference Proceedings 707,
2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, numbers, stable_order
from indexes.base import Int64Array, UInt64Array

SORT, ZORDER, HILBERT = "sort", "zorder", "hilbert"
CURVES = (SORT, ZORDER, HILBERT)
COLUMNS_MAX = 8
"""Of a curve: with more, no column has narrow ranges."""

UInt32Array = np.ndarray[tuple[int], np.dtype[np.uint32]]

_CODE_BITS = 64
_CELLS_PER_ROW_BITS = 8
"""A curve tells so many times more cells apart than there are rows (as a power of two): finer ones
change no file.
"""
_RANKED_ROWS_MAX = 1 << 17
"""Of which ranks are counted; of more numbers a sample of as many is looked at."""
_CELLS = 1 << 13
"""Into which a sample cuts a column."""
_GOLDEN = (5**0.5 - 1) / 2
_BLOCK_ROWS = 1 << 15
"""Rows whose codes are made at a time: few enough for the processor's cache."""


def row_order(columns: Sequence[pa.ChunkedArray], curve: str) -> Int64Array:
    """Return the permutation that puts n rows in order along ``curve`` through ``columns`` ->
    int64[n].  O(n log n).

    Rows of equal codes keep their order.  Null stands behind everything, NaN behind all other
    numbers.
    """
    if curve == SORT or len(columns) == 1:
        names = [str(i) for i in range(len(columns))]
        keys = [(name, "ascending") for name in names]
        return numbers(pc.sort_indices(pa.table(list(columns), names=names), keys)).astype(np.int64)
    return order_along(curve, [ranks(column) for column in columns])


def order_along(curve: str, ranked: Sequence[Int64Array]) -> Int64Array:
    """Return what :func:`row_order` does for a curve.  ``ranked``: the :func:`ranks` of two or more
    columns, int64[n] each.
    """
    return stable_order(codes(ranked, curve))


def ranks(column: pa.Array | pa.ChunkedArray) -> Int64Array:
    """Return how many of the n values of a column are below each -> int64[n]; null above all, NaN
    next to it.

    Of many numbers about how many, by a sample: equal ones have the same, and larger ones no
    smaller.  A curve has fewer cells by far than there are rows, and ranks are most of the price of
    its codes: 2 M doubles 0.4 s, by a sample 0.1.
    """
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if len(column) > _RANKED_ROWS_MAX and (
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    ):
        return _sampled_ranks(column)
    found = numbers(pc.rank(column, tiebreaker="min")).astype(np.int64) - 1
    if column.null_count:  # pyarrow 24 has one rank for NaN and null
        found[flags(pc.is_null(column))] = len(column) - column.null_count
    return found


def _sampled_ranks(column: pa.Array | pa.ChunkedArray) -> Int64Array:
    """Return the :func:`ranks` of many numbers by bounds that cut a sample of them into cells of
    one size.
    """
    n, nulls = len(column), column.null_count
    is_null = flags(pc.is_null(column))
    values = numbers(pc.fill_null(column, pa.scalar(0).cast(column.type)))
    # even, and in step with no period of the rows
    at = (np.arange(_RANKED_ROWS_MAX) * _GOLDEN % 1.0 * n).astype(np.int64)
    bounds = np.sort(values[at[~is_null[at]]])[:: _RANKED_ROWS_MAX // _CELLS]
    found = (
        np.searchsorted(bounds, values).astype(np.int64) * (n - nulls - 1) // max(1, len(bounds))
    )
    found[is_null] = n - nulls
    return found


def codes(ranked: Sequence[Int64Array], curve: str) -> UInt64Array:
    """Return the place of each of n rows on a curve -> uint64[n].  ``ranked``: of 2 to COLUMNS_MAX
    columns, 0 to n - 1.
    """
    n, d = len(ranked[0]), len(ranked)
    assert 2 <= d <= COLUMNS_MAX, "fewer columns need no curve, more have no use of one"
    bits = min(_CODE_BITS // d, -(-(max(n, 1).bit_length() + _CELLS_PER_ROW_BITS) // d))
    found = np.empty(n, np.uint64)
    for start in range(0, n, _BLOCK_ROWS):
        block = [_scaled(one[start : start + _BLOCK_ROWS], n, bits) for one in ranked]
        if curve == HILBERT:
            _to_hilbert(block, bits)
        found[start : start + _BLOCK_ROWS] = _interleaved(block, bits)
    return found


def _scaled(ranked: Int64Array, n: int, bits: int) -> UInt32Array:
    """Return ranks below ``n`` as numbers of ``bits`` bits."""
    return (ranked.astype(np.float64) * (float(1 << bits) / n)).astype(np.uint32)


def _interleaved(axes: Sequence[UInt32Array], bits: int) -> UInt64Array:
    """Return numbers of ``bits`` bits with their bits taken in turn, the highest of the first axis
    first.
    """
    found = np.zeros(len(axes[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            found <<= one
            found |= (axis >> np.uint32(bit)) & np.uint32(1)
    return found


def _to_hilbert(axes: Sequence[UInt32Array], bits: int) -> None:
    """Turn coordinates, in place, into those whose interleaved bits are the place on Hilbert's
    curve: Skilling's AxesToTranspose.

    Bits decide by masks of all ones or none, which takes a quarter of the time of np.where.
    """
    first = axes[0]
    for bit in range(bits - 1, 0, -1):
        low = np.uint32((1 << bit) - 1)
        for axis in axes:
            is_set = _mask(axis, bit)
            swapped = (first ^ axis) & ~is_set & low
            first ^= (is_set & low) | swapped
            if axis is not first:
                axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turn = np.zeros(len(first), np.uint32)
    for bit in range(bits - 1, 0, -1):
        turn ^= _mask(axes[-1], bit) & np.uint32((1 << bit) - 1)
    for axis in axes:
        axis ^= turn


def _mask(axis: UInt32Array, bit: int) -> UInt32Array:
    """Return all ones where a bit of ``axis`` is set, else 0 -> uint32[n]."""
    return np.negative((axis >> np.uint32(bit)) & np.uint32(1))

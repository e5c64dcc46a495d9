"""Bit-sliced bitmaps: one bitmap for each bit of the row codes.

Any range query reads as many bitmaps as codes have bits. Sources: O'Neil and Quass, "Improved Query
Performance with Variant Indexes", SIGMOD 1997 (bit-sliced index, algorithm 4.2), and Chan and
Ioannidis, "Bitmap Index Design and Evaluation", SIGMOD 1998 (range encoding in base 2 with a
bitmap per component). Both evaluate ``code <= v`` with one operation on all rows for each bit.

This module splits the rows from the highest bit down and splits again only the halves that a range
cuts. The halves shrink, so a range costs about three operations on all rows, however many bits the
codes have. A set of ranges is evaluated in a single pass.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexes.positions import from_bits

Range = tuple[int, int]
"""Half-open range of codes: start (included), stop (excluded)."""

_RANGES_MAX = 100
"""With more ranges than this, decode the code of every row instead."""

_DECODED_ROWS_MAX = 1 << 24
"""Limit of rows for decoding: 64 MiB of codes, whatever row count a damaged summary has."""


def slice_count(codes: int) -> int:
    """Return the number of slices needed for ``codes`` distinct codes (0, 1, ...).

    >>> [slice_count(codes) for codes in (1, 2, 3, 256, 257)]
    [0, 1, 2, 8, 9]
    """
    return max(codes - 1, 0).bit_length()


def pack(codes: npt.NDArray[np.unsignedinteger[Any]], count: int) -> list[bytes]:
    """Return the slices of n codes below ``count``, highest bit first.

    ``codes``: unsigned[n]. O(n x slices).
    """
    masks = (codes.dtype.type(1 << bit) for bit in reversed(range(slice_count(count))))
    return [from_bits((codes & mask) != 0) for mask in masks]


def select(slices: Sequence[BitMap], ranges: Sequence[Range], present: BitMap) -> BitMap:
    """Return the positions with a code in any of the ``ranges``.

    Args:
        slices: Bitmaps of the slices of :func:`pack`.
        ranges: Sorted, disjoint, not empty, and within 2**slices.
        present: Positions to search. May be reused as the result.

    >>> from indexes.positions import to_bitmap
    >>> slices = [to_bitmap(data) for data in pack(np.array([3, 0, 5, 3], np.uint32), 6)]
    >>> select(slices, [(1, 4)], BitMap([0, 1, 2, 3]))  # codes 1, 2 and 3
    BitMap([0, 3])
    """
    if len(ranges) > _RANGES_MAX and present and present.max() < _DECODED_ROWS_MAX:
        return _select_by_codes(slices, ranges, present)
    if len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1:
        return _equal(slices, ranges[0][0], present)
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    matches: list[BitMap] = []
    nodes = [(present, 0)]
    for depth in range(len(slices) + 1):
        width = 1 << (len(slices) - depth)
        halves: list[tuple[BitMap, int]] = []
        for rows, low in nodes:
            range_number = bisect_right(stops, low)
            if starts[range_number] <= low and low + width <= stops[range_number]:
                matches.append(rows)
            else:
                halves.append((rows, low))
        if not halves:
            break
        slice = slices[depth]
        nodes = [
            half
            for rows, low in halves
            for half in _split(rows, low, slice, width // 2, starts, stops)
        ]
    if not matches:
        return BitMap()
    if len(matches) == 1:
        return matches[0]
    return BitMap.union(*matches)


def _equal(slices: Sequence[BitMap], code: int, rows: BitMap) -> BitMap:
    """Return the positions in ``rows`` with the given code. Modifies ``rows``, one operation per
    slice.
    """
    for weight, slice in enumerate(reversed(slices)):
        if code >> weight & 1:
            rows &= slice
        else:
            rows -= slice
        if not rows:
            break
    return rows


def _split(
    rows: BitMap, low: int, slice: BitMap, width: int, starts: list[int], stops: list[int]
) -> Iterator[tuple[BitMap, int]]:
    """Yield the nonempty halves of ``rows`` that overlap a range.

    ``rows`` have codes from ``low`` on. Each half spans ``width`` codes.
    """
    middle = low + width
    if starts[bisect_right(stops, low)] < middle and (zeros := rows - slice):
        yield zeros, low
    range_number = bisect_right(stops, middle)
    if (
        range_number < len(starts)
        and starts[range_number] < middle + width
        and (ones := rows & slice)
    ):
        yield ones, middle


def _select_by_codes(slices: Sequence[BitMap], ranges: Sequence[Range], present: BitMap) -> BitMap:
    """Same as :func:`select`, but decodes every code. Cheaper for many ranges."""
    rows = np.frombuffer(present.to_array(), np.uint32)
    codes = np.zeros(int(rows[-1]) + 1, np.uint32)
    for slice in slices:
        codes <<= np.uint32(1)
        codes[np.frombuffer((slice & present).to_array(), np.uint32)] |= np.uint32(1)
    depth = np.zeros((1 << len(slices)) + 1, np.int32)
    bounds = np.array(ranges, np.int64)
    depth[bounds[:, 0]] += 1
    np.subtract.at(depth, bounds[:, 1], 1)
    hits = rows[np.cumsum(depth)[codes[rows]] > 0]
    return BitMap(array("I", hits.tobytes()))

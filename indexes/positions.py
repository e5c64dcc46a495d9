"""Sets of positions as bytes: roaring bitmaps without the zeros at their end.

The bytes are the portable format of roaring bitmaps (Lemire et al., "Roaring Bitmaps: Implementation of an Optimized
Software Library", 2018), runs included, with all zero bytes at the end taken away: the last container of a segment is
seldom full, and half of a dense bitmap of 78,000 rows would be such zeros.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexes.base import BoolArray

CONTAINER_ROWS = 65536
"""Positions that share a container of a roaring bitmap."""

_CONTAINER_BYTES = 8192
_ARRAY_MAX = 4096
_COOKIE = 12346
_TAIL = bytes(_CONTAINER_BYTES)
_ROWS_PER_CHANGE = 16
"""A bitset of 65,536 rows takes as many bytes as 2,048 runs, that is 4,096 changes: one in 16 rows."""


def from_positions(positions: npt.NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return the bytes of sorted, distinct positions below 2**32; ``positions``: unsigned[n].  O(n)."""
    bitmap = BitMap(array("I", positions.astype(np.uint32).tobytes()))
    bitmap.run_optimize()
    return bitmap.serialize().rstrip(b"\0")


def from_bits(bits: BoolArray) -> bytes:
    """Return the bytes of the positions where ``bits``: bool[n] is set.  O(n).

    Dense and irregular bits are written as they are, which is an order of magnitude faster than by way of positions.
    """
    containers = -(-len(bits) // CONTAINER_ROWS)
    if not containers:
        return from_positions(np.zeros(0, np.uint32))
    packed = np.zeros(containers * _CONTAINER_BYTES, np.uint8)
    packed[: -(-len(bits) // 8)] = np.packbits(bits, bitorder="little")
    counts = np.bitwise_count(packed.view(np.uint64)).reshape(containers, -1).sum(axis=1, dtype=np.int64)
    changes = int(np.count_nonzero(bits[1:] != bits[:-1]))
    if int(counts.min()) <= _ARRAY_MAX or changes * _ROWS_PER_CHANGE < len(bits):
        return from_positions(np.flatnonzero(bits).astype(np.uint32))
    keys = np.stack([np.arange(containers), counts - 1], axis=1).astype("<u2")
    first = 8 + 8 * containers
    offsets = (first + _CONTAINER_BYTES * np.arange(containers)).astype("<u4")
    head = struct.pack("<II", _COOKIE, containers) + keys.tobytes() + offsets.tobytes()
    return (head + packed.tobytes()).rstrip(b"\0")


def to_bitmap(data: bytes | memoryview) -> BitMap:
    """Return the positions of :func:`from_positions` or :func:`from_bits`; raises ValueError for other bytes.  O(n)."""
    return BitMap.deserialize(b"".join((data, _TAIL)))

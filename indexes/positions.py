"""Sets of positions as bytes: roaring bitmaps without trailing zeros.

The bytes are the portable format of roaring bitmaps (Lemire et al., "Roaring Bitmaps:
Implementation of an Optimized Software Library", 2018), including runs. All zero bytes at the end
are removed. The last container of a segment is seldom full, and half of a dense bitmap of 78,000
rows would be trailing zeros.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from indexes.base import BoolArray

CONTAINER_ROWS = 65536
"""Positions per container of a roaring bitmap."""

_CONTAINER_BYTES = 8192
_ARRAY_MAX = 4096
_COOKIE = 12346
_RUN_COOKIE = 12347
_OFFSETS_FROM = 4  # containers; bitmaps with runs and fewer have no offsets
_UINT16, _UINT32 = struct.Struct("<H"), struct.Struct("<I")
_TAIL = bytes(_CONTAINER_BYTES)
_ROWS_PER_CHANGE = 16
"""A bitset of 65,536 rows takes as many bytes as 2,048 runs. That is 4,096 changes, one per 16
rows.
"""


def from_positions(positions: npt.NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return the bytes of sorted, distinct positions below 2**32: unsigned[n]. O(n)."""
    bitmap = BitMap(array("I", positions.astype(np.uint32).tobytes()))
    bitmap.run_optimize()
    return bitmap.serialize().rstrip(b"\0")


def from_bits(bits: BoolArray) -> bytes:
    """Return the bytes of the positions where ``bits``: bool[n] is set. O(n).

    Dense, irregular bits are written directly, which is ten times faster than conversion to
    positions.

    >>> to_bitmap(from_bits(np.array([True, False, True])))
    BitMap([0, 2])
    """
    containers = -(-len(bits) // CONTAINER_ROWS)
    if not containers:
        return from_positions(np.zeros(0, np.uint32))
    packed = np.zeros(containers * _CONTAINER_BYTES, np.uint8)
    packed[: -(-len(bits) // 8)] = np.packbits(bits, bitorder="little")
    counts = (
        np.bitwise_count(packed.view(np.uint64)).reshape(containers, -1).sum(axis=1, dtype=np.int64)
    )
    changes = int(np.count_nonzero(bits[1:] != bits[:-1]))
    if int(counts.min()) <= _ARRAY_MAX or changes * _ROWS_PER_CHANGE < len(bits):
        return from_positions(np.flatnonzero(bits).astype(np.uint32))
    keys = np.stack([np.arange(containers), counts - 1], axis=1).astype("<u2")
    first = 8 + 8 * containers
    offsets = (first + _CONTAINER_BYTES * np.arange(containers)).astype("<u4")
    head = struct.pack("<II", _COOKIE, containers) + keys.tobytes() + offsets.tobytes()
    return (head + packed.tobytes()).rstrip(b"\0")


def to_bitmap(data: bytes | memoryview) -> BitMap:
    """Decode the bytes of :func:`from_positions` or :func:`from_bits`. O(n).

    Raises ValueError for other bytes.
    """
    return deserialize(b"".join((data, _TAIL)))


def deserialize(data: bytes, rows: int = 2**32) -> BitMap:
    """Decode a roaring bitmap in the portable format with all positions below ``rows``.

    Raises ValueError for other bytes. The underlying library trusts the container headers. A bitset
    of the wrong size, or a run beyond its container, would overwrite foreign memory. O(containers),
    for arrays and bitsets O(bytes).

    >>> deserialize(BitMap([2, 7]).serialize(), rows=8)
    BitMap([2, 7])
    >>> deserialize(BitMap([2, 7]).serialize(), rows=7)
    Traceback (most recent call last):
        ...
    ValueError: position 7 is out of range for 7 rows
    """
    try:
        _check_containers(data, rows)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a roaring bitmap of {len(data)} bytes is truncated") from error
    bitmap = BitMap.deserialize(data)
    if bitmap and bitmap.max() >= rows:
        raise ValueError(f"position {bitmap.max()} is out of range for {rows} rows")
    return bitmap


def _check_containers(data: bytes, rows: int) -> None:
    """Raise ValueError, struct.error or IndexError unless all containers are valid and start below
    ``rows``.
    """
    cookie = _UINT32.unpack_from(data)[0]
    at, runs = 8, b""
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        runs = data[4:at]
    elif cookie == _COOKIE:
        count = _UINT32.unpack_from(data, 4)[0]
    else:
        raise ValueError("not a roaring bitmap")
    if count > CONTAINER_ROWS or at + 4 * count > len(data):
        raise ValueError(f"a roaring bitmap of {count} containers in {len(data)} bytes")
    heads = struct.unpack_from(f"<{2 * count}H", data, at)
    at += 4 * count + (4 * count if not runs or count >= _OFFSETS_FROM else 0)
    keys = heads[::2]
    if any(low >= high for low, high in pairwise(keys)):
        raise ValueError("the containers of a roaring bitmap are not ascending")
    if keys and keys[-1] * CONTAINER_ROWS >= rows:
        raise ValueError(f"a roaring bitmap contains positions beyond {rows} rows")
    if not runs and max(heads[1::2], default=0) < _ARRAY_MAX:
        _check_arrays(data, at, heads[1::2])
        return
    for number, size in enumerate(heads[1::2]):
        is_run = bool(runs) and bool(runs[number // 8] >> number % 8 & 1)
        at += _check_runs(data, at) if is_run else _check_container(data, at, size + 1)


def _check_arrays(data: bytes, at: int, sizes: Sequence[int]) -> None:
    """Raise ValueError unless the data consists of valid array containers. ``sizes`` are
    less one.
    """
    ends = np.array(list(accumulate(sizes, initial=0))[1:], np.int64) + np.arange(1, len(sizes) + 1)
    if not len(ends):
        return
    if at + 2 * int(ends[-1]) > len(data):
        raise IndexError
    values = np.frombuffer(data, "<u2", int(ends[-1]), at)
    rising = values[1:] > values[:-1]
    rising[ends[:-1] - 1] = True
    if not rising.all():
        raise ValueError("a container of a roaring bitmap is invalid")


def _check_container(data: bytes, at: int, size: int) -> int:
    """Return the length in bytes of the array or bitset with ``size`` positions at ``at``."""
    length = 2 * size if size <= _ARRAY_MAX else _CONTAINER_BYTES
    if at + length > len(data):
        raise IndexError
    if size <= _ARRAY_MAX:
        array_ = np.frombuffer(data, "<u2", size, at)
        right = bool((array_[1:] > array_[:-1]).all())
    else:
        right = (
            int(
                np.bitwise_count(np.frombuffer(data, np.uint64, _CONTAINER_BYTES // 8, at)).sum(
                    dtype=np.int64
                )
            )
            == size
        )
    if not right:
        raise ValueError("a container of a roaring bitmap is invalid")
    return length


def _check_runs(data: bytes, at: int) -> int:
    """Return the length in bytes of the run container at ``at``.

    It holds starts and lengths less one. Runs must be separate and ascending.
    """
    count = _UINT16.unpack_from(data, at)[0]
    length = 2 + 4 * count
    if at + length > len(data) or not count:
        raise ValueError("a run container of a roaring bitmap is empty or too long")
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).astype(np.int64)
    start, end = runs[::2], runs[::2] + runs[1::2]
    if end[-1] >= CONTAINER_ROWS or bool((start[1:] <= end[:-1]).any()):
        raise ValueError("the runs of a roaring bitmap overlap or exceed their container")
    return length

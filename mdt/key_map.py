"""Key maps: for one segment, which record key stands at which position.

A key map is the sorted 128-bit hashes of a segment's record keys with their positions and, where the table has an
ordering field, the ordering values.  It answers exactly (up to a collision of 128-bit hashes, about 1e-20 for a billion
keys) what a key index can only guess.

Bytes, little-endian (see FORMAT.md): ``b"MKM1" | u32 flags (1 = has ordering) | u64 n | u64 hi[n] | u64 lo[n] |
u64 ordering[n] if flagged | u32 position[n]``.  Sorted by (hi, lo).  Integrity is the reference's CRC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.errors import Corrupt, Invalid

MAGIC = b"MKM1"
HAS_ORDERING = 1
_HEADER_BYTES = 16


@dataclass(frozen=True, slots=True)
class KeyMap:
    """Hashes (sorted), positions and ordering values of one segment; arrays of length n, ``ordering`` may be None."""

    hashes: KeyHashes
    position: npt.NDArray[np.uint32]
    ordering: UInt64Array | None

    def __len__(self) -> int:
        return len(self.position)

    def find(self, wanted: KeyHashes) -> Int64Array:
        """Return the entry of each wanted key, or -1 -> int64[m].  O(m log n), faster if ``wanted`` is sorted."""
        n, hi, lo = len(self), self.hashes.hi, self.hashes.lo
        if n == 0 or len(wanted) == 0:
            return np.full(len(wanted), -1, dtype=np.int64)
        at = hi.searchsorted(wanted.hi)
        np.minimum(at, n - 1, out=at)
        same = hi[at] == wanted.hi
        found = same & (lo[at] == wanted.lo)
        # Equal first words with other second words are next to impossible; the loop is for correctness.
        for open_ in np.flatnonzero(same & ~found).tolist():
            while at[open_] + 1 < n and hi[at[open_] + 1] == wanted.hi[open_] and not found[open_]:
                at[open_] += 1
                found[open_] = lo[at[open_]] == wanted.lo[open_]
        return np.where(found, at, -1)

    def check(self) -> None:
        """Assert the invariants: strictly increasing hashes, each position once."""
        hi, lo = self.hashes.hi, self.hashes.lo
        rising = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
        assert bool(np.all(rising)), "hashes must rise strictly"
        assert len(np.unique(self.position)) == len(self.position), "positions must be unique"


def build(hashes: KeyHashes, ordering: UInt64Array | None) -> KeyMap:
    """Return the key map of a segment whose n-th row has the n-th of ``hashes`` and of ``ordering``."""
    order = hashes.order()
    return KeyMap(hashes.take(order), order.astype(np.uint32), None if ordering is None else ordering[order])


def encode(key_map: KeyMap) -> bytes:
    """Return the bytes of ``key_map``."""
    has_ordering = key_map.ordering is not None
    head = MAGIC + (HAS_ORDERING if has_ordering else 0).to_bytes(4, "little") + len(key_map).to_bytes(8, "little")
    parts = [head, key_map.hashes.hi.astype("<u8").tobytes(), key_map.hashes.lo.astype("<u8").tobytes()]
    if key_map.ordering is not None:
        parts.append(key_map.ordering.astype("<u8").tobytes())
    parts.append(key_map.position.astype("<u4").tobytes())
    return b"".join(parts)


def decode(data: Any, *, path: str, offset: int) -> KeyMap:
    """Return the key map in the buffer ``data`` without copying; ``path`` and ``offset`` name it in errors."""
    view = memoryview(data).cast("B")
    if len(view) < _HEADER_BYTES or bytes(view[:4]) != MAGIC:
        raise Corrupt("not a key map", path=path, offset=offset, expected=MAGIC.decode(), got=repr(bytes(view[:4])))
    has_ordering = bool(int.from_bytes(view[4:8], "little") & HAS_ORDERING)
    n = int.from_bytes(view[8:16], "little")
    width = 28 if has_ordering else 20
    if len(view) != _HEADER_BYTES + n * width:
        raise Corrupt(
            "a key map has the wrong length", path=path, offset=offset, expected=str(16 + n * width), got=str(len(view))
        )
    hi = np.frombuffer(view, "<u8", n, 16)
    lo = np.frombuffer(view, "<u8", n, 16 + 8 * n)
    ordering = np.frombuffer(view, "<u8", n, 16 + 16 * n) if has_ordering else None
    position = np.frombuffer(view, "<u4", n, 16 + n * (width - 4))
    return KeyMap(KeyHashes(hi, lo), position, ordering)


def orderable(type: pa.DataType) -> bool:
    """Return whether a column of ``type`` can be an ordering field."""
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type)
    )


def ordering_words(column: pa.ChunkedArray | pa.Array) -> UInt64Array:
    """Return ordering values as unsigned words that compare as the values do -> uint64[n].

    Integers, floats (NaN above all, -0.0 below 0.0: as Hudi's readers compare them when they merge logs), dates and
    timestamps.  Raises Invalid for nulls, naming the first rows.
    """
    if column.null_count:
        rows = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[:10]
        raise Invalid(
            f"the ordering field is null in {column.null_count} rows, first at rows {rows.tolist()}",
            hint="fill the ordering field, or create the table without one",
        )
    wide = column
    if pa.types.is_date32(column.type):
        wide = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_integer(column.type):
        wide = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        wide = column.cast(pa.float64())
    encoded = values.encode(wide)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    if len(encoded) == 0:
        return np.empty(0, dtype=np.uint64)
    flat = b"".join(encoded.to_pylist()) if encoded.offset else encoded.buffers()[2]
    words = np.frombuffer(flat, ">u8", len(encoded)).astype(np.uint64)
    if pa.types.is_floating(wide.type):
        numbers = wide.to_numpy()
        words -= np.signbit(numbers) & (numbers == 0)  # 0.0 and -0.0 have one word; the one below it is free
    return words

"""``exact(bits='128')``: a key index from another package. It stores the hash and the group of
every key, sorted.

Bytes of a key part: magic, groups (uint32), entries n (uint64), CRC-32 of all other bytes, n × { hi
(uint64), lo (uint64), group (uint32) } sorted and distinct. All numbers are little-endian.
"""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex

_HEADER = struct.Struct("<4sIQ")
_CRC = struct.Struct("<I")
_MAGIC = b"XKI1"
_ENTRY = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("group", "<u4")])


class ExactKeyIndex(KeyIndex):
    """Sorted hashes. A look-up is a binary search."""

    name = "exact/1"
    can_index_log_files = True

    def __init__(self, bits: str = "128") -> None:
        """bits: "128", or "64" to compare only the first word of each hash. With "64", look-ups
        return a few more groups.
        """
        if bits not in ("64", "128"):
            raise ValueError(f"bits={bits!r} must be 64 or 128")
        self._mask = np.uint64(0xFFFFFFFFFFFFFFFF if bits == "128" else 0)

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See the contract. O(n log n)."""
        entries = np.empty(len(hashes), _ENTRY)
        entries["hi"], entries["lo"], entries["group"] = hashes.hi, hashes.lo & self._mask, group
        return _encode(entries, groups)

    def locate(self, key_part: bytes | memoryview, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """See the contract. O(m log n), after a checksum of the key part."""
        entries, _ = _decode(key_part)
        left, right = (
            np.searchsorted(entries["hi"], hashes.hi, side) for side in ("left", "right")
        )
        times = right - left
        key = np.repeat(np.arange(len(hashes), dtype=np.int64), times)
        before = np.repeat(np.cumsum(times) - times, times)
        at = np.repeat(left, times) + np.arange(int(times.sum())) - before
        hit = entries["lo"][at] == hashes.lo[key] & self._mask
        return Candidates(key[hit], entries["group"][at[hit]].astype(np.int64))

    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """See the contract."""
        parts = [np.empty(0, _ENTRY)]
        for key_part, numbers in zip(key_parts, groups, strict=True):
            entries, count = _decode(key_part)
            if len(numbers) != count:
                raise ValueError(f"a key part of {count} groups, new numbers for {len(numbers)}")
            renumbered, fresh = entries.copy(), numbers[entries["group"]]
            renumbered["group"] = np.maximum(fresh, 0)
            parts.append(renumbered[fresh >= 0])
        return _encode(np.concatenate(parts), total)


def _encode(entries: np.ndarray, groups: int) -> bytes:
    body = np.unique(entries).tobytes()
    head = _HEADER.pack(_MAGIC, groups, len(body) // _ENTRY.itemsize)
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def _decode(key_part: bytes | memoryview) -> tuple[np.ndarray, int]:
    """Return the entries and the number of groups, after comparing the checksum. Raises ValueError
    for other bytes.
    """
    view = memoryview(key_part).cast("B")
    start = _HEADER.size + _CRC.size
    if len(view) < start:
        raise ValueError("not a key part of exact/1: too short")
    magic, groups, count = _HEADER.unpack_from(view)
    if magic != _MAGIC or len(view) != start + count * _ENTRY.itemsize:
        raise ValueError("not a key part of exact/1")
    if _CRC.unpack_from(view, _HEADER.size)[0] != zlib.crc32(
        view[start:], zlib.crc32(view[: _HEADER.size])
    ):
        raise ValueError("a key part of exact/1 is damaged: its checksum differs")
    entries = np.frombuffer(view, _ENTRY, count, start)
    if count and int(entries["group"].max()) >= groups:
        raise ValueError("a key part of exact/1 names a group that it does not have")
    return entries, groups

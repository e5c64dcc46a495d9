r"""``record/1``: sorted key hashes with their groups.

A lookup costs a single probe per key, for any number of groups. The index stores at least 40 bits
of each hash. For n entries with p bits, a share of n / 2^p of the absent keys gets a false
candidate. For a key part built at once that is at most one in two million, or one in 280,000 for a
billion entries. Merged key parts retain only the bits common to all of them, so for a billion
entries from small loads the share is one in a thousand.

Key parts are designed for memory mapping. Looking up a key reads the header, an entry of the
fan-out, and a shard. Each of them is verified before use.

Byte layout, little-endian, without padding:

========================  ==========================================================================
offset, size              meaning
========================  ==========================================================================
0, 8                      magic ``b"MDTREC\x00\x03"``, the last byte is the version
8, 8                      n: number of entries
16, 8                     groups: every group number is smaller
24, 2                     b: the fan-out has 2^b shards, 0 <= b <= 16
26, 2                     p: known bits of a hash, 40 to 64; the others are taken as zeros
28, 4                     CRC-32 of bytes 0 to 27 followed by the whole fan-out
32, 8 (2^b + 1)           fan-out, starts: uint64, the first entry of each shard; the last start is
                          n
..., 8 * 2^b              fan-out, checks: uint64, the checksum of each shard
..., h n                  hashes: h bytes of the ``hi`` word of each key, ascending in a shard,
                          which is its b upper bits
..., g n                  groups: g bytes each, ascending for equal hashes; no pair appears twice
========================  ==========================================================================

h is 8, the whole word, if b < 8. Otherwise h is 4, the 32 bits after the b upper bits. g is 1, 2 or
4, the smallest size for all numbers below ``groups``. Versions 1 and 2 can be read. They have h = 8
and p = 64 (bytes 26 and 27 are zero), and version 1 has g = 4.

The checksum of a shard is the first word of MurmurHash3_x64_128 over its groups. The seed is the
first four bytes of the same function (seed 0) over its hashes. A lookup of many keys reads every
shard. This checksum is twice as fast as zlib's CRC-32, and still takes most of the time of a
lookup.

Shards hold 1,000 to 2,000 entries, or fewer if 256 shards are used to store hashes in four bytes.
In a key part of 5 M entries, a lookup verifies the fan-out (64 KiB) and a shard (6 KiB).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import expand_runs, stable_order
from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex, UInt64Array
from indexes.keys.sealed import GROUPS_MAX, check_groups, check_renumbering

UInt32Array = npt.NDArray[np.uint32]
UIntArray = npt.NDArray[np.unsignedinteger]

_MAGICS = (b"MDTREC\x00\x01", b"MDTREC\x00\x02", b"MDTREC\x00\x03")
_HEADER = struct.Struct("<8sQQHH")
_CHECK = struct.Struct("<I")
_FAN_OUT_AT = _HEADER.size + _CHECK.size
_SHARD_ENTRIES = 2048
_HASH_BITS = 64
_SHARD_BITS_MAX = 16
_NARROW_SHARD_BITS = 8
"""From this many shard bits on, hashes are stored in _NARROW_BITS bits. Key parts with at least
_NARROW_ENTRIES entries have at least this many shard bits.
"""
_NARROW_BITS = 32
_KNOWN_MIN = _NARROW_SHARD_BITS + _NARROW_BITS
_NARROW_ENTRIES = 1 << 15
_FEWER = 4
"""If a key part has this many times fewer entries than there are keys, search its entries among the
keys.
"""
_NEAR = 64
"""Hashes are evenly distributed, so most are within this distance of their interpolated position in
a full shard.
"""


class RecordKeyIndex(KeyIndex):
    """Index of key hashes.

    A key takes 5 bytes with up to 256 groups, else 6 or 8. Key parts of fewer than 32,768 keys take
    4 bytes more per key. ``locate`` is O(m log shard) and verifies only the shards it reads.

    >>> from indexes.key_hash import hash_keys
    >>> keys = pa.array(["id_1", "id_2", "id_3"])
    >>> key_part = RecordKeyIndex().build(keys, hash_keys(keys, 0), np.array([0, 0, 1]), groups=2)
    >>> asked = pa.array(["id_3", "id_4"])
    >>> candidates = RecordKeyIndex().locate(key_part, asked, hash_keys(asked, 0))
    >>> candidates.key.tolist(), candidates.group.tolist()  # id_3 may be in group 1, id_4 is absent
    ([0], [1])
    """

    name: ClassVar[str] = "record/1"
    can_index_log_files: ClassVar[bool] = True

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build`. O(n log n).

        Raises ValueError for more than 2^32 groups.
        """
        assert not len(group) or 0 <= int(group.min()) <= int(group.max()) < groups, (
            int(group.max()),
            groups,
        )
        return self._build(hashes.hi, group, groups)

    def build_of_groups(self, keys: Sequence[pa.Array], hashes: Sequence[KeyHashes]) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build_of_groups`. Does not concatenate the keys."""
        group = np.arange(len(hashes), dtype=_number_type(len(hashes)))
        words = np.concatenate([part.hi for part in hashes])
        return self._build(words, np.repeat(group, list(map(len, hashes))), len(hashes))

    def _build(self, words: UInt64Array, group: npt.NDArray[np.integer[Any]], groups: int) -> bytes:
        check_groups("record", groups)
        form, order = _Form.for_count(len(words)), stable_order(words)
        numbers = group.astype(_number_type(groups), copy=False)[order]
        return _encode(*_distinct_pairs(words[order] & form.mask, numbers), groups, form)

    def opened(self, key_part: bytes | memoryview) -> _KeyPart:
        """See :meth:`indexes.base.KeyIndex.opened`. Each shard is verified once, on first use."""
        return _open(key_part)

    def locate(
        self, key_part: bytes | memoryview | _KeyPart, keys: pa.Array, hashes: KeyHashes
    ) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate`. Equal hashes return all their groups."""
        reader = key_part if isinstance(key_part, _KeyPart) else _open(key_part)
        if len(hashes) == 1:
            return reader.locate_one(int(hashes.hi[0]))
        order = hashes.kept_order()
        sorted_hashes = hashes.hi[order]
        if reader.count * _FEWER <= len(sorted_hashes):
            return reader.locate_entries(sorted_hashes, order)
        shard, stored = _shard(sorted_hashes, reader.form.bits), reader.form.encode(sorted_hashes)
        reader.verify(_distinct(shard))
        first = reader.search(stored, shard)
        times = np.zeros(len(first), np.int64)
        is_inside = reader.starts[shard + 1].astype(np.int64) > first
        times[is_inside] = reader.hashes[first[is_inside]] == stored[is_inside]
        if reader.holds_repeats(first, shard, stored):
            times = reader.search(stored, shard, beyond=True) - first
        first, key = expand_runs(first, times), np.repeat(order, times)
        return Candidates(key.astype(np.int64), reader.groups_at(first))

    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """See :meth:`indexes.base.KeyIndex.merge`. Verifies all bytes. O(n log key parts)."""
        check_groups("record", total)
        readers = [_open(key_part) for key_part in key_parts]
        parts = [_renumber(part, new) for part, new in zip(readers, groups, strict=True)]
        hashes = np.concatenate([np.zeros(0, np.uint64), *(part[0] for part in parts)])
        numbers = np.concatenate([np.zeros(0, np.uint32), *(part[1] for part in parts)])
        form = _Form.for_count(
            len(hashes), min((part.form.known_bits for part in readers), default=_HASH_BITS)
        )
        hashes &= form.mask
        order = np.argsort(hashes, kind="stable")  # merges sorted runs
        return _encode(*_distinct_pairs(hashes[order], numbers[order]), total, form)


@dataclass(frozen=True, slots=True)
class _Form:
    """Storage form of hashes.

    Attributes:
        bits: Number of bits that select the shard.
        known_bits: Number of stored bits, including those of the shard.
        width: Bytes of a stored hash.
    """

    bits: int
    known_bits: int
    width: int

    @classmethod
    def for_count(cls, count: int, known_bits: int = _HASH_BITS) -> _Form:
        """Return the form of ``count`` hashes with ``known_bits`` each."""
        bits = min(_SHARD_BITS_MAX, (count // _SHARD_ENTRIES).bit_length())
        if count >= _NARROW_ENTRIES:
            bits = max(bits, _NARROW_SHARD_BITS)
        if bits < _NARROW_SHARD_BITS:
            return cls(bits, known_bits, 8)
        return cls(bits, min(known_bits, bits + _NARROW_BITS), 4)

    @property
    def mask(self) -> np.uint64:
        """Mask of the known bits of a hash."""
        return np.uint64((1 << _HASH_BITS) - (1 << (_HASH_BITS - self.known_bits)))

    def encode(self, hashes: UInt64Array) -> UIntArray:
        """Return ``hashes`` as stored in a shard -> uint64[n] or uint32[n]."""
        if self.width == 8:
            return hashes & self.mask
        return ((hashes & self.mask) << np.uint64(self.bits) >> np.uint64(_NARROW_BITS)).astype(
            np.uint32
        )


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """An opened key part.

    The header and the fan-out are verified. The arrays are views of the bytes.

    Attributes:
        verified: bool[2^bits], True for each verified shard.
    """

    form: _Form
    group_count: int
    starts: UInt64Array
    checks: UInt64Array
    hashes: UIntArray
    groups: UIntArray
    verified: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.hashes)

    def whole_hashes(self) -> UInt64Array:
        """Return the known bits of all hashes as 64-bit words -> uint64[n], ascending."""
        if self.form.width == 8:
            return self.hashes.astype(np.uint64)
        shards = np.arange(1 << self.form.bits, dtype=np.uint64) << np.uint64(
            _HASH_BITS - self.form.bits
        )
        hashes = self.hashes.astype(np.uint64) << np.uint64(
            _HASH_BITS - self.form.bits - _NARROW_BITS
        )
        hashes |= np.repeat(
            shards, self.starts[1:].astype(np.int64) - self.starts[:-1].astype(np.int64)
        )
        return hashes

    def verify(self, shards: npt.NDArray[np.integer]) -> None:
        """Verify the checksums of ``shards`` on first use. Raises ValueError with the first damaged
        shard.
        """
        shards = shards[~self.verified[shards]]
        starts, ends = self.starts[shards].tolist(), self.starts[shards + 1].tolist()
        checks = _checksums(self.hashes.data, self.groups.data, starts, ends)
        damaged = np.flatnonzero(checks != self.checks[shards])
        if len(damaged):
            raise ValueError(f"record key part: shard {shards[damaged[0]]} is damaged")
        self.verified[shards] = True

    def groups_at(self, entries: Int64Array | slice) -> Int64Array:
        """Return the groups of entries -> int64[n]."""
        group = self.groups[entries].astype(np.int64)
        if len(group) and int(group.max()) >= self.group_count:
            raise ValueError(
                f"record key part: group {group.max()} is not below {self.group_count}"
            )
        return group

    def locate_one(self, hash: int) -> Candidates:
        """Look up a single hash, like :meth:`RecordKeyIndex.locate`."""
        shard = hash >> (_HASH_BITS - self.form.bits)
        self.verify(np.array([shard]))
        start, end = int(self.starts[shard]), int(self.starts[shard + 1])
        stored = self.form.encode(np.array([hash], np.uint64))[0]
        first = last = start + int(self.hashes[start:end].searchsorted(stored))
        while last < end and self.hashes[last] == stored:
            last += 1
        return Candidates(np.zeros(last - first, np.int64), self.groups_at(slice(first, last)))

    def locate_entries(self, hashes: UInt64Array, order: Int64Array) -> Candidates:
        """Look up like :meth:`RecordKeyIndex.locate`, by searching each entry among the keys.

        Args:
            hashes: Ascending hashes of the keys.
            order: Key number of each hash.
        """
        self.verify(np.arange(1 << self.form.bits))
        hashes, entries = hashes & self.form.mask, self.whole_hashes()
        first = hashes.searchsorted(entries)
        counts = hashes.searchsorted(entries, "right") - first
        return Candidates(
            order[expand_runs(first, counts)],
            self.groups_at(np.repeat(np.arange(self.count), counts)),
        )

    def search(self, stored: UIntArray, shard: Int64Array, *, beyond: bool = False) -> Int64Array:
        """Return the position of each hash in its shard -> int64[m].

        The search starts from an interpolated position and advances for all hashes together. That
        takes a third (for 2,000 entries) to half (for 50,000) of the time of a full binary search.
        It never reads another shard, which may be damaged and would silently mislead the search.

        Args:
            stored: Hashes in stored form.
            shard: Shard of each hash.
            beyond: True for the position after equal hashes, False for the position before them.
        """
        start, end = self.starts[shard].astype(np.int64), self.starts[shard + 1].astype(np.int64)
        if self.form.width == 8:
            fraction = (stored << np.uint64(self.form.bits)).astype(np.float64) * 2.0**-_HASH_BITS
        else:
            fraction = stored.astype(np.float64) * 2.0**-_NARROW_BITS
        first = np.maximum(start + (fraction * (end - start)).astype(np.int64) - _NEAR, start)
        positions = self._bisect(stored, first, end, 2 * _NEAR, beyond)
        unsure = ((positions == first) & (first > start)) | (
            (positions == first + (2 * _NEAR - 1)) & (positions < end)
        )
        if unsure.any():
            start, end = start[unsure], end[unsure]
            reach = 1 << int((end - start).max()).bit_length()
            positions[unsure] = self._bisect(stored[unsure], start, end, reach, beyond)
        return positions

    def _bisect(
        self, stored: UIntArray, first: Int64Array, end: Int64Array, reach: int, beyond: bool
    ) -> Int64Array:
        """Search positions from ``first`` to below ``first + reach``, a power of two. See
        :meth:`search`.
        """
        if not self.count:
            return first
        is_before = np.less_equal if beyond else np.less
        positions, last, step = first.copy(), np.maximum(end - 1, 0), reach // 2
        while step:
            positions += (
                is_before(self.hashes[np.minimum(positions + (step - 1), last)], stored) * step
            )
            step //= 2
        return np.minimum(positions, end)

    def holds_repeats(self, first: Int64Array, shard: Int64Array, stored: UIntArray) -> bool:
        """Return True if any of ``stored``, found at ``first`` in its ``shard``, precedes an equal
        hash.
        """
        inside = self.starts[shard + 1].astype(np.int64) > first + 1
        return bool(np.any(self.hashes[first[inside] + 1] == stored[inside]))


def _open(key_part: bytes | memoryview) -> _KeyPart:
    """Verify the header and the fan-out, and return views. Raises ValueError. Reads
    nothing else.
    """
    view = memoryview(key_part).cast("B")
    if len(view) < _FAN_OUT_AT:
        raise ValueError(f"record key part: {len(view)} bytes are too few for a header")
    magic, count, group_count, bits, known_bits = _HEADER.unpack_from(view)
    if magic not in _MAGICS or bits > _SHARD_BITS_MAX or group_count > GROUPS_MAX:
        raise ValueError("record key part: the header is not of version 1 to 3")
    is_older = magic != _MAGICS[-1]
    width = 8 if is_older or bits < _NARROW_SHARD_BITS else 4
    known_max = _HASH_BITS if width == 8 else bits + _NARROW_BITS
    if known_bits not in ((0,) if is_older else range(_KNOWN_MIN, known_max + 1)):
        raise ValueError(f"record key part: {known_bits} bits of hashes are invalid")
    form = _Form(bits, known_bits or _HASH_BITS, width)
    checks_at = _FAN_OUT_AT + 8 * ((1 << bits) + 1)
    hashes_at = checks_at + 8 * (1 << bits)
    number = np.dtype("<u4") if magic == _MAGICS[0] else _number_type(group_count)
    size = hashes_at + (form.width + number.itemsize) * count
    if len(view) != size:
        raise ValueError(f"record key part: {len(view)} bytes instead of {size}")
    (check,) = _CHECK.unpack_from(view, _HEADER.size)
    if zlib.crc32(view[_FAN_OUT_AT:hashes_at], zlib.crc32(view[: _HEADER.size])) != check:
        raise ValueError("record key part: header or fan-out is damaged")
    starts = np.frombuffer(view, np.dtype("<u8"), (1 << bits) + 1, _FAN_OUT_AT)
    if starts[0] != 0 or starts[-1] != count or not bool(np.all(starts[1:] >= starts[:-1])):
        raise ValueError("record key part: the fan-out does not cover the entries")
    checks = np.frombuffer(view, np.dtype("<u8"), 1 << bits, checks_at)
    hashes = np.frombuffer(view, np.dtype(f"<u{form.width}"), count, hashes_at)
    groups = np.frombuffer(view, number, count, hashes_at + form.width * count)
    return _KeyPart(
        form, group_count, starts, checks, hashes, groups, np.zeros(1 << bits, np.bool_)
    )


def _encode(hashes: UInt64Array, groups: UIntArray, group_count: int, form: _Form) -> bytes:
    """Return the key part for the pairs of :func:`_distinct_pairs`.

    ``hashes`` must have no bits outside of ``form``.
    """
    bits = form.bits
    bounds = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64((_HASH_BITS - bits) % _HASH_BITS)
    starts = np.concatenate(([0], np.searchsorted(hashes, bounds), [len(hashes)])).astype(
        np.dtype("<u8")
    )
    stored = form.encode(hashes).astype(np.dtype(f"<u{form.width}"), copy=False)
    numbers = groups.astype(_number_type(group_count), copy=False)
    at = starts.tolist()
    checks = _checksums(stored.data, numbers.data, at[:-1], at[1:])
    fan_out = starts.tobytes() + checks.astype(np.dtype("<u8")).tobytes()
    header = _HEADER.pack(_MAGICS[-1], len(hashes), group_count, bits, form.known_bits)
    check = _CHECK.pack(zlib.crc32(fan_out, zlib.crc32(header)))
    return b"".join((header, check, fan_out, stored.data, numbers.data))


def _number_type(groups: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of group numbers below ``groups``."""
    if groups <= 1 << 8:
        return np.dtype("u1")
    if groups <= 1 << 16:
        return np.dtype("<u2")
    return np.dtype("<u4")


def _distinct_pairs(hashes: UInt64Array, groups: UIntArray) -> tuple[UInt64Array, UIntArray]:
    """Return the distinct pairs of hash and group. Groups of equal hashes are ascending.

    ``hashes`` must be sorted.
    """
    equal = hashes[1:] == hashes[:-1]
    if not bool(equal.any()):
        return hashes, groups
    # equal hashes are rare: sort only them
    ties = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    groups = groups.copy()
    groups[ties] = groups[ties][np.lexsort((groups[ties], hashes[ties]))]
    is_new = np.concatenate(([True], ~equal | (groups[1:] != groups[:-1])))
    return hashes[is_new], groups[is_new]


def _renumber(key_part: _KeyPart, new: Int64Array) -> tuple[UInt64Array, UInt32Array]:
    """Verified hashes and new group numbers of a key part, without the dropped groups."""
    check_renumbering("record", key_part.group_count, new)
    key_part.verify(np.arange(1 << key_part.form.bits, dtype=np.int64))
    numbers, hashes = new[key_part.groups_at(slice(None))], key_part.whole_hashes()
    is_kept = numbers >= 0
    if bool(is_kept.all()):
        return hashes, numbers.astype(np.uint32)
    return hashes[is_kept], numbers[is_kept].astype(np.uint32)


def _shard(hashes: UInt64Array, bits: int) -> Int64Array:
    if not bits:
        return np.zeros(len(hashes), np.int64)
    return (hashes >> np.uint64(_HASH_BITS - bits)).astype(np.int64)


def _distinct(ascending: Int64Array) -> Int64Array:
    is_new = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_new[1:])
    return ascending[is_new]


def _checksums(
    hashes: memoryview, groups: memoryview, starts: Sequence[int], ends: Sequence[int]
) -> UInt64Array:
    """Checksums of the shards [start, end). A loop over at most 2^16 shards."""
    digest = mmh3.mmh3_x64_128_digest
    words = [
        digest(groups[start:end], int.from_bytes(digest(hashes[start:end], 0)[:4], "little"))[:8]
        for start, end in zip(starts, ends, strict=True)
    ]
    return np.frombuffer(b"".join(words), np.dtype("<u8"))

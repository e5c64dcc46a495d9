r"""``record/1``: sorted key hashes with their groups.

One probe answers for a key, whatever the number of groups, and the answer is exact but for 64-bit hash collisions.
The key part is made to be mapped, not read: a key looks at the header, at one entry of the fan-out, and at one shard, and
each of the three is verified before it is believed.

Byte layout, little-endian, nothing between the parts:

========================  ============================================================================
offset, size              meaning
========================  ============================================================================
0, 8                      magic ``b"MDTREC\x00\x02"``, the last byte is the version
8, 8                      n: number of entries
16, 8                     groups: every group number is smaller
24, 4                     b: the fan-out has 2^b shards, 0 <= b <= 16
28, 4                     CRC-32 of bytes 0 to 27 followed by the whole fan-out
32, 8 (2^b + 1)           fan-out, starts: uint64, the first entry of each shard; the last start is n
..., 8 * 2^b              fan-out, checks: uint64, the checksum of each shard
..., 8 n                  hashes: uint64, the ``hi`` word of each key, ascending; shard = its b upper bits
..., g n                  groups: g bytes each, ascending where hashes are equal; no pair appears twice
========================  ============================================================================

g is 1, 2 or 4, the least that holds every number below ``groups``; in version 1, which is read, it is 4.

The checksum of a shard is the first word of MurmurHash3_x64_128 over its groups, seeded with the first four bytes of
the same function (seed 0) over its hashes.  A look-up of many keys touches every shard; this hash runs at twice the
speed of zlib's CRC-32 and is the largest part of the time that remains.

Shards hold 1,000 to 2,000 entries: of a key part of 5 M entries one look-up checks the fan-out (64 KiB) and one shard
(11 KiB).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex, UInt64Array
from indexes.sorting import stable_order
from indexes.threads import side_by_side

UInt32Array = npt.NDArray[np.uint32]
UIntArray = npt.NDArray[np.unsignedinteger]

_MAGIC = b"MDTREC\x00\x02"
_MAGIC_1 = b"MDTREC\x00\x01"
_HEADER = struct.Struct("<8sQQI")
_CHECK = struct.Struct("<I")
_FAN_OUT_AT = _HEADER.size + _CHECK.size
_SHARD_ENTRIES = 2048
_HASH_BITS = 64
_SHARD_BITS_MAX = 16
_PIECE_ENTRIES = 1 << 17
"""Of about so many keys, a megabyte of hashes, the second-level cache holds most."""
_FEWER = 4
"""A key part with so many times fewer entries than there are keys: its entries are looked for among the keys."""
_NEAR = 64
"""Hashes are spread evenly, so of a full shard most stand nowhere farther from where their share of it ends."""
GROUPS_MAX = 2**32
"""Group numbers are stored in 32 bits."""


class RecordKeyIndex(KeyIndex):
    """Exact index of key hashes.  9 bytes a key of up to 256 groups, else 10 or 12; ``locate`` is O(m log shard) and verifies the shards it touches.

    >>> from indexes.hashing import hash_keys
    >>> keys = pa.array(["id_1", "id_2", "id_3"])
    >>> key_part = RecordKeyIndex().build(keys, hash_keys(keys, 0), np.array([0, 0, 1]), groups=2)
    >>> asked = pa.array(["id_3", "id_4"])
    >>> found = RecordKeyIndex().locate(key_part, asked, hash_keys(asked, 0))
    >>> found.key.tolist(), found.group.tolist()  # id_3 may live in group 1, id_4 nowhere
    ([0], [1])
    """

    name: ClassVar[str] = "record/1"
    can_index_log_files: ClassVar[bool] = True

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build`.  O(n log n).  Raises ValueError for more than GROUPS_MAX groups."""
        _check_groups(groups)
        assert not len(group) or 0 <= int(group.min()) <= int(group.max()) < groups, (int(group.max()), groups)
        order = stable_order(hashes.hi)
        return _encode(*_distinct_pairs(hashes.hi[order], group.astype(_number_type(groups))[order]), groups)

    def build_of_groups(self, keys: Sequence[pa.Array], hashes: Sequence[KeyHashes]) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build_of_groups`.  Many keys are brought together piece by piece.  O(n log n + groups · pieces)."""
        _check_groups(len(hashes))
        if sum(map(len, hashes)) <= _PIECE_ENTRIES:
            return super().build_of_groups(keys, hashes)
        runs = side_by_side(lambda one: one.hi[one.kept_order()], hashes, sum(map(len, hashes)))
        return _encode(*_in_pieces(runs), len(hashes))

    def opened(self, key_part: bytes | memoryview) -> _KeyPart:
        """See :meth:`indexes.base.KeyIndex.opened`.  Each shard is verified once, when it is looked into first."""
        return _open(key_part)

    def locate(self, key_part: bytes | memoryview | _KeyPart, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate`.  Equal hashes give all their groups."""
        opened = key_part if isinstance(key_part, _KeyPart) else _open(key_part)
        if len(hashes) == 1:
            return opened.locate_one(int(hashes.hi[0]))
        order = hashes.kept_order()
        wanted = hashes.hi[order]
        if opened.count * _FEWER <= len(wanted):
            return opened.located_among(wanted, order)
        shard = _shard(wanted, opened.bits)
        opened.verify(_distinct(shard))
        left = opened.search(wanted, shard)
        times = np.zeros(len(left), np.int64)
        hit = opened.starts[shard + 1].astype(np.int64) > left
        times[hit] = opened.hashes[left[hit]] == wanted[hit]
        if opened.holds_repeats(left, shard, wanted):
            times = opened.search(wanted, shard, beyond=True) - left
        left, key = _spread(left, times), np.repeat(order, times)
        return Candidates(key.astype(np.int64), opened.groups_at(left))

    def merge(self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.merge`.  Verifies every byte.  O(n log key parts): sorted runs are merged."""
        _check_groups(total)
        parts = [_renumber(_open(key_part), new) for key_part, new in zip(key_parts, groups, strict=True)]
        hashes = np.concatenate([np.zeros(0, np.uint64), *(part[0] for part in parts)])
        numbers = np.concatenate([np.zeros(0, np.uint32), *(part[1] for part in parts)])
        order = np.argsort(hashes, kind="stable")  # which takes runs as they are
        return _encode(*_distinct_pairs(hashes[order], numbers[order]), total)


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """An opened key part: header and fan-out are verified; of the arrays, which are views, the shards that ``verified`` says -> bool[2^bits]."""

    bits: int
    group_count: int
    starts: UInt64Array
    checks: UInt64Array
    hashes: UInt64Array
    groups: UIntArray
    verified: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        return len(self.hashes)

    def verify(self, shards: npt.NDArray[np.integer]) -> None:
        """Compare the checksums of those ``shards`` that have not been; ValueError names the first that is damaged."""
        shards = shards[~self.verified[shards]]
        starts, ends = self.starts[shards].tolist(), self.starts[shards + 1].tolist()
        found = _checksums(self.hashes.data, self.groups.data, starts, ends)
        wrong = np.flatnonzero(found != self.checks[shards])
        if len(wrong):
            raise ValueError(f"record key part: shard {shards[wrong[0]]} is damaged")
        self.verified[shards] = True

    def groups_at(self, entries: Int64Array | slice) -> Int64Array:
        """Return the groups of some entries -> int64[n]."""
        group = self.groups[entries].astype(np.int64)
        if len(group) and int(group.max()) >= self.group_count:
            raise ValueError(f"record key part: group {group.max()} of {self.group_count}")
        return group

    def locate_one(self, wanted: int) -> Candidates:
        """Return what :meth:`RecordKeyIndex.locate` does for one hash."""
        shard = wanted >> (_HASH_BITS - self.bits)
        self.verify(np.array([shard]))
        start, end = int(self.starts[shard]), int(self.starts[shard + 1])
        inside = self.hashes[start:end]
        first = last = start + int(inside.searchsorted(np.uint64(wanted)))
        while last < end and int(self.hashes[last]) == wanted:
            last += 1
        return Candidates(np.zeros(last - first, np.int64), self.groups_at(slice(first, last)))

    def located_among(self, wanted: UInt64Array, order: Int64Array) -> Candidates:
        """Return what :meth:`RecordKeyIndex.locate` does: each entry is looked for among the ascending ``wanted``, those of the keys ``order``."""
        self.verify(np.arange(1 << self.bits))
        first = wanted.searchsorted(self.hashes)
        times = wanted.searchsorted(self.hashes, "right") - first
        return Candidates(order[_spread(first, times)], self.groups_at(np.repeat(np.arange(self.count), times)))

    def search(self, wanted: UInt64Array, shard: Int64Array, *, beyond: bool = False) -> Int64Array:
        """Return where each of ``wanted`` belongs in its ``shard``, before what equals it or ``beyond`` -> int64[m].

        All steps are taken for all of them together, from where a hash of that size is likely to be: that takes a third (of 2,000) to half (of 50,000) of the time of a search through the whole.
        Looks at no byte of another shard: one that is damaged there would mislead the search without being noticed.
        """
        start, end = self.starts[shard].astype(np.int64), self.starts[shard + 1].astype(np.int64)
        share = (wanted << np.uint64(self.bits)).astype(np.float64) * 2.0**-_HASH_BITS
        first = np.maximum(start + (share * (end - start)).astype(np.int64) - _NEAR, start)
        found = self._searched(wanted, first, end, 2 * _NEAR, beyond)
        unsure = ((found == first) & (first > start)) | ((found == first + (2 * _NEAR - 1)) & (found < end))
        if unsure.any():
            start, end = start[unsure], end[unsure]
            reach = 1 << int((end - start).max()).bit_length()
            found[unsure] = self._searched(wanted[unsure], start, end, reach, beyond)
        return found

    def _searched(
        self, wanted: UInt64Array, first: Int64Array, end: Int64Array, reach: int, beyond: bool
    ) -> Int64Array:
        """Return what :meth:`search` does of places from ``first`` to below ``first + reach``, a power of two."""
        if not self.count:
            return first
        is_before = np.less_equal if beyond else np.less
        found, last, step = first.copy(), np.maximum(end - 1, 0), reach // 2
        while step:
            found += is_before(self.hashes[np.minimum(found + (step - 1), last)], wanted) * step
            step //= 2
        return np.minimum(found, end)

    def holds_repeats(self, left: Int64Array, shard: Int64Array, wanted: UInt64Array) -> bool:
        """Return whether any of ``wanted``, found at ``left`` in its ``shard``, is followed by an equal hash."""
        inside = self.starts[shard + 1].astype(np.int64) > left + 1
        return bool(np.any(self.hashes[left[inside] + 1] == wanted[inside]))


def _open(key_part: bytes | memoryview) -> _KeyPart:
    """Verify header and fan-out and return views; reads nothing else.  Raises ValueError."""
    view = memoryview(key_part).cast("B")
    if len(view) < _FAN_OUT_AT:
        raise ValueError(f"record key part: {len(view)} bytes are no header")
    magic, count, group_count, bits = _HEADER.unpack_from(view)
    if magic not in (_MAGIC, _MAGIC_1) or bits > _SHARD_BITS_MAX or group_count > GROUPS_MAX:
        raise ValueError("record key part: not a header of version 1 or 2")
    checks_at = _FAN_OUT_AT + 8 * ((1 << bits) + 1)
    hashes_at = checks_at + 8 * (1 << bits)
    number = np.dtype("<u4") if magic == _MAGIC_1 else _number_type(group_count)
    size = hashes_at + (8 + number.itemsize) * count
    if len(view) != size:
        raise ValueError(f"record key part: {len(view)} bytes instead of {size}")
    (check,) = _CHECK.unpack_from(view, _HEADER.size)
    if zlib.crc32(view[_FAN_OUT_AT:hashes_at], zlib.crc32(view[: _HEADER.size])) != check:
        raise ValueError("record key part: header or fan-out is damaged")
    starts = np.frombuffer(view, np.dtype("<u8"), (1 << bits) + 1, _FAN_OUT_AT)
    if starts[0] != 0 or starts[-1] != count or not bool(np.all(starts[1:] >= starts[:-1])):
        raise ValueError("record key part: the fan-out does not cover the entries")
    checks = np.frombuffer(view, np.dtype("<u8"), 1 << bits, checks_at)
    hashes = np.frombuffer(view, np.dtype("<u8"), count, hashes_at)
    groups = np.frombuffer(view, number, count, hashes_at + 8 * count)
    return _KeyPart(bits, group_count, starts, checks, hashes, groups, np.zeros(1 << bits, np.bool_))


def _in_pieces(runs: Sequence[UInt64Array]) -> tuple[UInt64Array, UIntArray]:
    """Return the hashes of groups, those of each rising, and their groups as :func:`_distinct_pairs` does.

    Hashes with the same upper bits are brought together at a time, in the processor's cache.
    """
    count, number = sum(map(len, runs)), _number_type(len(runs))
    bits = (count // _PIECE_ENTRIES).bit_length()
    bounds = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(_HASH_BITS - bits)
    cuts = np.array([[0, *np.searchsorted(run, bounds), len(run)] for run in runs])
    begins = np.concatenate(([0], np.cumsum(np.diff(cuts).sum(axis=0)))).tolist()  # pieces, if no pair comes twice
    all_hashes, all_groups = np.empty(count, np.uint64), np.empty(count, number)

    def together(place: tuple[int, Int64Array, Int64Array]) -> slice:
        start, starts, stops = place
        piece = np.concatenate([run[a:b] for run, a, b in zip(runs, starts.tolist(), stops.tolist(), strict=True)])
        order = stable_order(piece)
        pairs = _distinct_pairs(piece[order], np.repeat(np.arange(len(runs), dtype=number), stops - starts)[order])
        filled = slice(start, start + len(pairs[0]))
        all_hashes[filled], all_groups[filled] = pairs
        return filled

    filled = side_by_side(together, list(zip(begins, cuts.T, cuts.T[1:], strict=False)), count)
    if sum(piece.stop - piece.start for piece in filled) == count:
        return all_hashes, all_groups
    hashes, groups = (np.concatenate([every[piece] for piece in filled]) for every in (all_hashes, all_groups))
    return hashes, groups


def _encode(hashes: UInt64Array, groups: UIntArray, group_count: int) -> bytes:
    """Return the key part of pairs as :func:`_distinct_pairs` returns them."""
    bits = min(_SHARD_BITS_MAX, max(0, (len(hashes) // _SHARD_ENTRIES).bit_length()))
    bounds = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64((_HASH_BITS - bits) % _HASH_BITS)
    starts = np.concatenate(([0], np.searchsorted(hashes, bounds), [len(hashes)])).astype(np.dtype("<u8"))
    hashes, numbers = hashes.astype(np.dtype("<u8"), copy=False), groups.astype(_number_type(group_count), copy=False)
    at = starts.tolist()
    checks = _checksums(hashes.data, numbers.data, at[:-1], at[1:])
    fan_out = starts.tobytes() + checks.astype(np.dtype("<u8")).tobytes()
    header = _HEADER.pack(_MAGIC, len(hashes), group_count, bits)
    check = _CHECK.pack(zlib.crc32(fan_out, zlib.crc32(header)))
    return b"".join((header, check, fan_out, hashes.data, numbers.data))


def _number_type(groups: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of group numbers below ``groups``."""
    if groups <= 1 << 8:
        return np.dtype("u1")
    return np.dtype("<u2") if groups <= 1 << 16 else np.dtype("<u4")


def _distinct_pairs(hashes: UInt64Array, groups: UIntArray) -> tuple[UInt64Array, UIntArray]:
    """Return each pair of a hash and a group once, by rising group where hashes, which rise, are equal."""
    equal = hashes[1:] == hashes[:-1]
    if bool(equal.any()):
        order = np.lexsort((groups, hashes))
        hashes, groups = hashes[order], groups[order]
        fresh = np.concatenate(([True], (hashes[1:] != hashes[:-1]) | (groups[1:] != groups[:-1])))
        hashes, groups = hashes[fresh], groups[fresh]
    return hashes, groups


def _renumber(key_part: _KeyPart, new: Int64Array) -> tuple[UInt64Array, UInt32Array]:
    """Verified hashes and new group numbers of a key part, without the forgotten groups."""
    if len(new) != key_part.group_count:
        raise ValueError(f"record key part: {key_part.group_count} groups, but new numbers for {len(new)}")
    key_part.verify(np.arange(1 << key_part.bits, dtype=np.int64))
    if key_part.count and int(key_part.groups.max()) >= key_part.group_count:
        raise ValueError(f"record key part: group {key_part.groups.max()} of {key_part.group_count}")
    numbers = new[key_part.groups]
    kept = numbers >= 0
    if bool(kept.all()):
        return key_part.hashes, numbers.astype(np.uint32)
    return key_part.hashes[kept], numbers[kept].astype(np.uint32)


def _spread(starts: npt.NDArray[np.integer], times: npt.NDArray[np.integer]) -> Int64Array:
    """All positions of runs that begin at ``starts`` and are ``times`` long."""
    before = np.repeat(np.cumsum(times) - times, times)
    return np.asarray(np.repeat(starts, times) + np.arange(int(times.sum())) - before, np.int64)


def _shard(hashes: UInt64Array, bits: int) -> Int64Array:
    return (hashes >> np.uint64(_HASH_BITS - bits)).astype(np.int64) if bits else np.zeros(len(hashes), np.int64)


def _distinct(ascending: Int64Array) -> Int64Array:
    fresh = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=fresh[1:])
    return ascending[fresh]


def _checksums(hashes: memoryview, groups: memoryview, starts: Sequence[int], ends: Sequence[int]) -> UInt64Array:
    """Checksums of the shards [start, end): a loop over shards, at most 2^16 of them."""
    digest = mmh3.mmh3_x64_128_digest
    words = [
        digest(groups[start:end], int.from_bytes(digest(hashes[start:end], 0)[:4], "little"))[:8]
        for start, end in zip(starts, ends, strict=True)
    ]
    return np.frombuffer(b"".join(words), np.dtype("<u8"))


def _check_groups(groups: int) -> None:
    if not 0 <= groups <= GROUPS_MAX:
        raise ValueError(f"a record key part numbers up to {GROUPS_MAX} groups, got {groups}")

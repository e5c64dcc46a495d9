"""Key maps: for one segment, which record key stands at which position.

A key map is 80 bits each of the hashes of a segment's record keys, sorted, with their positions
and, where the table has an ordering field, the ordering values.  It answers exactly (up to a
collision of 80 bits: about 1e-9 where each of a billion keys is looked for in a file of a million
rows) what a key index can only guess.

It is cut into shards by the upper bits of the hashes, each with a checksum, so that a look-up of a
few keys verifies, and on a local disk reads, no more than their shards.  Header and starts of the
shards have a CRC, so a search never leaves what was verified.

Bytes, little-endian (see FORMAT.md): ``b"MKM4" | u32 flags | u64 n | u32 b | u32 crc | u64 least |
u32 start[2^b + 1] | u32 check[2^b] | u32 0 | u64 hi[n] | u16 lo[n] | ordering[n] - least if flagged
| position[n]``.  Sorted by (hi, lo), of which the upper bits stand there.  Flags: 1 = has ordering;
bits 8 to 15 and 16 to 23: bytes of an ordering value and of a position, as few as the largest
needs.

``MKM3`` and ``MKM2``, which older writers left, have u64 ``lo``; ``MKM2`` has no ``least``, and 8
and 4 bytes for ordering values and positions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values
from indexes.arrays import byte_rows, one_array
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.errors import Corrupt, Invalid

MAGIC = b"MKM4"
_MAGIC_2, _MAGIC_3 = b"MKM2", b"MKM3"
HAS_ORDERING = 1
LO_BITS = 16
"""So many upper bits of the second word of a hash are kept and compared."""
_WORD_BITS, _WORD_BYTES, _POSITION_BYTES = 64, 8, 4
_HEADER = struct.Struct("<4sIQI")
_CRC = struct.Struct("<I")
_LEAST = struct.Struct("<Q")
_LEAST_AT = _HEADER.size + _CRC.size
_SHARD_ENTRIES = 1024
_SHARD_BITS_MAX = 16
_FEW = 4
"""Where keys lie among this many times as many shards as they are, only the shards of these keys
are verified, else all between the first and the last.
"""

_DECIMAL_DIGITS_MAX = 18
"""Of a decimal whose digits fit a word."""

UInt16Array = npt.NDArray[np.uint16]
UInt32Array = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a stored key map: ``start``: first entry of each, and the end -> int64[2^b +
    1]; ``check``: checksums, uint32[2^b]; ``verified``: which have been compared with them so far,
    bool[2^b].  ``columns``: what the checksums are of, as it is stored. ``path``, ``offset`` name
    the map in errors.
    """

    bits: int
    start: Int64Array
    check: UInt32Array
    verified: npt.NDArray[np.bool_]
    columns: Sequence[npt.NDArray[Any]]
    path: str
    offset: int

    def of(self, hi: UInt64Array) -> Int64Array:
        """Return the shard of each hash -> int64[n]."""
        return shard_of(hi, self.bits)

    def verify(self, numbers: Iterable[int]) -> None:
        """Compare the checksums of some shards that have not been.  Raises Corrupt."""
        for number in numbers:
            if self.verified[number]:
                continue
            start, stop = self.start[number : number + 2].tolist()
            found = _checksum([column[start:stop] for column in self.columns])
            if found != self.check[number]:
                raise Corrupt(
                    "a key map is damaged",
                    path=self.path,
                    offset=self.offset,
                    expected=f"{self.check[number]:08x} for shard {number}",
                    got=f"{found:08x}",
                )
            self.verified[number] = True


@dataclass(frozen=True, slots=True)
class Packed:
    """Unsigned numbers that have as few bytes as the largest needs, above ``least``: ``data``:
    uint8[n, bytes], little-endian.

    Few of them are asked for, so they stay as they are stored.  ``numpy.asarray`` gives all of
    them.
    """

    data: npt.NDArray[np.uint8]
    least: int = 0

    @classmethod
    def of(cls, numbers: npt.NDArray[Any], least: int = 0, width: int | None = None) -> Packed:
        """Return ``numbers``, none of them below ``least``, in few bytes each, or in ``width``
        bytes.  O(n).
        """
        above = numbers.astype("<u8") - np.uint64(least)
        if width is None:
            width = width_of(int(above.max(initial=0)))
        return cls(
            np.ascontiguousarray(above.view(np.uint8).reshape(-1, _WORD_BYTES)[:, :width]), least
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, at: Int64Array) -> UInt64Array:
        """Return the numbers ``at`` -> uint64[len(at)]."""
        return self._words(self.data[at])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return all numbers -> uint64[n].  O(n)."""
        words = self._words(self.data)
        return words if dtype is None else words.astype(dtype)

    def _words(self, rows: npt.NDArray[np.uint8]) -> UInt64Array:
        wide = np.zeros((len(rows), _WORD_BYTES), np.uint8)
        wide[:, : rows.shape[1]] = rows
        words: UInt64Array = wide.view("<u8").reshape(-1)
        words += np.uint64(self.least)
        return words


@dataclass(frozen=True, slots=True)
class KeyMap:
    """Hashes (sorted), positions and ordering values of one segment; arrays or packed, of length n,
    ``ordering`` may be None.

    ``hi``: the first words; ``lo``: the upper LO_BITS of the second.  Of a stored map (``shards``)
    nothing may be believed but the entries that :meth:`find` returned, or all after :meth:`whole`.
    """

    hi: UInt64Array
    lo: UInt16Array
    position: npt.NDArray[np.uint32] | Packed
    ordering: UInt64Array | Packed | None
    shards: Shards | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.position)

    @property
    def hashes(self) -> KeyHashes:
        """The hashes, of which the bits that are not kept are zeros.  O(n)."""
        return KeyHashes(self.hi, self.lo.astype(np.uint64) << np.uint64(_WORD_BITS - LO_BITS))

    def find(self, wanted: KeyHashes) -> Int64Array:
        """Return the entry of each wanted key, or -1 -> int64[m].  O(m log n), faster if ``wanted``
        is sorted.

        Raises Corrupt if a shard that may hold one of the keys is damaged.
        """
        if len(self) == 0 or len(wanted) == 0:
            return np.full(len(wanted), -1, dtype=np.int64)
        if self.shards is None or bool(self.shards.verified.all()):
            return self._exact(wanted, self.hi.searchsorted(wanted.hi))
        shard = self.shards.of(np.array([wanted.hi.min(), wanted.hi.max()])).tolist()
        between = range(shard[0], shard[1] + 1)
        if _FEW * len(wanted) > len(between):
            self.shards.verify(between)
            start, stop = self.shards.start[[shard[0], shard[1] + 1]].tolist()
            at = start + self.hi[start:stop].searchsorted(wanted.hi)
            is_inside = at < stop
        else:
            shard = self.shards.of(wanted.hi).tolist()
            self.shards.verify(shard)
            at, is_inside = np.empty(len(wanted), np.int64), np.empty(len(wanted), np.bool_)
            for i, number in enumerate(shard):
                start, stop = self.shards.start[number : number + 2].tolist()
                at[i] = start + int(self.hi[start:stop].searchsorted(wanted.hi[i]))
                is_inside[i] = at[i] < stop
        return np.where(is_inside, self._exact(wanted, at), -1)

    def _exact(self, wanted: KeyHashes, at: Int64Array) -> Int64Array:
        """Return ``at``, where the first hash that is not smaller stands, for keys that are there,
        else -1.
        """
        n, hi, lo, wanted_lo = len(self), self.hi, self.lo, upper(wanted.lo)
        np.minimum(at, n - 1, out=at)
        same = hi[at] == wanted.hi
        found = same & (lo[at] == wanted_lo)
        # Equal first words with other second words are next to impossible; the loop is for
        # correctness.
        for i in np.flatnonzero(same & ~found).tolist():
            while at[i] + 1 < n and hi[at[i] + 1] == wanted.hi[i] and not found[i]:
                at[i] += 1
                found[i] = lo[at[i]] == wanted_lo[i]
        return np.where(found, at, -1)

    def whole(self) -> KeyMap:
        """Return this map after all of it was verified.  O(n), once.  Raises Corrupt if it is not
        as it was written.
        """
        if self.shards is not None:
            self.shards.verify(np.flatnonzero(~self.shards.verified).tolist())
        return self

    def check(self) -> None:
        """Assert the invariants: strictly increasing hashes, each position once."""
        hi, lo = self.hi, self.lo
        rising = (hi[1:] > hi[:-1]) | ((hi[1:] == hi[:-1]) & (lo[1:] > lo[:-1]))
        assert bool(np.all(rising)), "hashes must rise strictly"
        assert len(np.unique(np.asarray(self.position))) == len(self.position), (
            "positions must be unique"
        )


def _checksum(parts: list[npt.NDArray[Any]]) -> int:
    """Return the checksum of a shard: the first word of MurmurHash3_x64_128 of each array, seeded
    with that of the one before.
    """
    seed = 0
    for part in parts:
        seed = int.from_bytes(mmh3.mmh3_x64_128_digest(part.reshape(-1).data, seed)[:4], "little")
    return seed


def upper(lo: UInt64Array) -> UInt16Array:
    """Return the upper LO_BITS of second words -> uint16[n], a view where they lie one after the
    other.
    """
    return np.ascontiguousarray(lo, "<u8").view("<u2")[3::4]


def build(hashes: KeyHashes, ordering: UInt64Array | None) -> KeyMap:
    """Return the key map of a segment whose n-th row has the n-th of ``hashes`` and of
    ``ordering``.
    """
    order = hashes.kept_order()
    ordering = None if ordering is None else ordering[order]
    return KeyMap(hashes.hi[order], upper(hashes.lo)[order], order.astype(np.uint32), ordering)


def encode(key_map: KeyMap) -> bytes:
    """Return the bytes of ``key_map``."""
    n, hi, lo = (
        len(key_map),
        key_map.hi.astype("<u8", copy=False),
        np.ascontiguousarray(key_map.lo, "<u2"),
    )
    position = Packed.of(np.asarray(key_map.position))
    packed, least = [position], 0
    if key_map.ordering is not None:
        words = np.asarray(key_map.ordering)
        least = int(words.min()) if n else 0
        packed.insert(0, Packed.of(words, least))
    arrays: list[npt.NDArray[Any]] = [hi, lo, *(one.data for one in packed)]
    start = shard_bounds(hi, shard_bits(n))
    told = head(n, [one.data.shape[1] for one in packed], least, start, checksums(arrays, start))
    return b"".join([told, *(array.data for array in arrays)])


def width_of(most: int) -> int:
    """Return how many bytes each of some numbers has, of which ``most`` is the largest.

    >>> width_of(0), width_of(255), width_of(256)
    (1, 1, 2)
    """
    return max(1, (most.bit_length() + 7) // 8)


def shard_bits(rows: int) -> int:
    """Return by how many bits of their hashes ``rows`` entries are cut into shards."""
    return min(_SHARD_BITS_MAX, (rows // _SHARD_ENTRIES).bit_length())


def shard_of(hi: UInt64Array, bits: int) -> Int64Array:
    """Return the shard of each hash, of 2^bits -> int64[n]."""
    if not bits:
        return np.zeros(len(hi), np.int64)
    return (hi >> np.uint64(64 - bits)).astype(np.int64)


def shard_bounds(
    hi: npt.NDArray[Any], bits: int, first: int = 0, count: int | None = None
) -> Int64Array:
    """Return where in ``hi``, which rises, shards begin, and where the last one ends -> int64[count
    + 1]: ``count`` of them from ``first`` on, all others are empty; by default all 2^bits.
    """
    if not bits:
        return np.array([0, len(hi)], np.int64)
    last = first + ((1 << bits) if count is None else count)
    bounds = np.arange(first + 1, last, dtype=np.uint64) << np.uint64((64 - bits) % 64)
    return np.concatenate([[0], np.searchsorted(hi, bounds), [len(hi)]]).astype(np.int64)


def checksums(arrays: list[npt.NDArray[Any]], start: Int64Array) -> list[int]:
    """Return the checksum of each shard of the entries ``arrays``, as they are stored."""
    pairs = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
    return [_checksum([array[first:last] for array in arrays]) for first, last in pairs]


def head_bytes(bits: int) -> int:
    """Return how many bytes stand before the entries, of 2^bits shards."""
    return _LEAST_AT + _LEAST.size + 4 * ((1 << bits) + 1) + 4 * (1 << bits) + 4


def head(
    rows: int, widths: Sequence[int], least: int, start: Int64Array, check: Sequence[int]
) -> bytes:
    """Return what stands before the entries.  ``widths``: bytes of an ordering value, where there
    are any, and of a position; ``start``, ``check``: see :class:`Shards`.
    """
    flags = widths[-1] << 16
    if len(widths) > 1:
        flags |= HAS_ORDERING | widths[0] << 8
    shards = (
        _LEAST.pack(least)
        + start.astype("<u4").tobytes()
        + np.array(check, "<u4").tobytes()
        + bytes(4)
    )
    told = _HEADER.pack(MAGIC, flags, rows, (len(start) - 1).bit_length() - 1)
    return told + _CRC.pack(zlib.crc32(shards, zlib.crc32(told))) + shards


def decode(data: Any, *, path: str, offset: int) -> KeyMap:
    """Return the key map in the buffer ``data`` without copying; ``path`` and ``offset`` name it in
    errors.

    Header and starts are verified, the shards when they are looked into.  Raises Corrupt if the
    bytes are not as they were written.
    """
    view = memoryview(data).cast("B")
    magic = bytes(view[:4])
    if len(view) < _LEAST_AT + _LEAST.size or magic not in (MAGIC, _MAGIC_3, _MAGIC_2):
        raise Corrupt(
            "not a key map", path=path, offset=offset, expected=MAGIC.decode(), got=repr(magic)
        )
    _, flags, n, bits = _HEADER.unpack_from(view)
    least, starts_at, of_ordering, of_position = (
        0,
        _LEAST_AT,
        _WORD_BYTES * (flags & HAS_ORDERING),
        _POSITION_BYTES,
    )
    if magic != _MAGIC_2:
        (least,), starts_at = _LEAST.unpack_from(view, _LEAST_AT), _LEAST_AT + _LEAST.size
        of_ordering, of_position = flags >> 8 & 0xFF, flags >> 16 & 0xFF
    of_lo = _WORD_BYTES
    if magic == MAGIC:
        of_lo = LO_BITS // 8
    widths = [_WORD_BYTES, of_lo, of_ordering, of_position]
    begin = starts_at + 8 * (1 << min(bits, _SHARD_BITS_MAX)) + 8
    expected = begin + n * sum(widths)
    possible = (
        bits <= _SHARD_BITS_MAX and of_ordering <= _WORD_BYTES and of_position <= _POSITION_BYTES
    )
    if not possible or len(view) != expected:
        raise Corrupt(
            "a key map has the wrong length",
            path=path,
            offset=offset,
            expected=str(expected),
            got=str(len(view)),
        )
    if (
        zlib.crc32(view[_LEAST_AT:begin], zlib.crc32(view[: _HEADER.size]))
        != _CRC.unpack_from(view, _HEADER.size)[0]
    ):
        raise Corrupt("the header of a key map is damaged", path=path, offset=offset)
    count = 1 << bits
    start = np.frombuffer(view, "<u4", count + 1, starts_at).astype(np.int64)
    if start[0] != 0 or start[-1] != n or bool((start[1:] < start[:-1]).any()):
        raise Corrupt("the shards of a key map do not cover it", path=path, offset=offset)
    check = np.frombuffer(view, "<u4", count, starts_at + 4 * (count + 1))
    columns = [
        _bytes(view, begin + n * sum(widths[:i]), n, width) for i, width in enumerate(widths)
    ]
    hi, lo, ordering, position = columns
    has_ordering = bool(flags & HAS_ORDERING)
    checked, words_of_ordering = [hi, lo, position], None
    if has_ordering:
        checked, words_of_ordering = columns, Packed(ordering, least)
    shards = Shards(bits, start, check, np.zeros(count, np.bool_), checked, path, offset)
    words = hi.view("<u8").reshape(-1), lo.view("<u2")[:, -1]
    return KeyMap(*words, Packed(position), words_of_ordering, shards)


def _bytes(view: memoryview, at: int, rows: int, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(view, np.uint8, rows * width, at).reshape(rows, width)


def orderable(type: pa.DataType) -> bool:
    """Return whether a column of ``type`` can be an ordering field."""
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_floating(type)
        or pa.types.is_date32(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_string(type)
        or (pa.types.is_decimal128(type) and type.precision <= _DECIMAL_DIGITS_MAX)
    )


def has_whole_words(type: pa.DataType) -> bool:
    """Return whether ordering values of ``type`` are the same if their words are; words of text
    have its first eight bytes.
    """
    return not pa.types.is_string(type)


def _unscaled(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return decimals of up to _DECIMAL_DIGITS_MAX digits, without nulls, as whole numbers of their
    last digit -> int64[n].
    """
    whole = one_array(column)
    if not len(whole):
        return pa.array([], pa.int64())
    words = np.frombuffer(whole.buffers()[1], "<i8", 2 * len(whole), 16 * whole.offset)
    return pa.array(words[::2])


def ordering_words(column: pa.ChunkedArray | pa.Array, *, numbered: bool = True) -> UInt64Array:
    """Return ordering values as unsigned words that compare as the values do -> uint64[n].

    Integers, floats (NaN above all, -0.0 below 0.0: as Hudi's readers compare them when they merge
    logs), dates, timestamps, decimals of one scale, and the first eight bytes of text
    (:func:`has_whole_words`).  Raises Invalid for nulls, naming the first rows if they are
    ``numbered``: if their numbers mean anything to the caller.
    """
    if column.null_count:
        rows = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[:10]
        raise Invalid(
            f"the ordering field is null in {column.null_count} rows"
            + f", first at rows {rows.tolist()}" * numbered,
            hint="fill the ordering field, or create the table without one",
        )
    wide = column
    if not has_whole_words(column.type):
        return byte_rows(column).big_endian_words(0)
    if pa.types.is_date32(column.type):
        wide = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_integer(column.type):
        wide = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        wide = column.cast(pa.float64())
    elif pa.types.is_decimal128(column.type):
        wide = _unscaled(column)
    words = values.words(wide)
    if pa.types.is_floating(wide.type):
        numbers = wide.to_numpy()
        # 0.0 and -0.0 have one word; the one below it is free
        words -= np.signbit(numbers) & (numbers == 0)
    return words

"""Key maps: the record keys of a segment with their positions.

A key map has 80 bits of the hash of each record key, sorted, with positions and, if the table has
an ordering field, ordering values.  It confirms exactly what a key index only proposes, up to a
collision of 80 bits.  A collision has a probability of about 1e-9 if each of a billion keys is
looked up in a file of a million rows.

The upper bits of the hashes cut it into shards, each with a checksum.  So a look-up of a few keys
verifies only their shards, and on a local disk reads no more.  The header and the starts of the
shards have a CRC, so a search never leaves verified bytes.

Bytes, little-endian (see FORMAT.md): ``b"MKM4" | u32 flags | u64 n | u32 b | u32 crc | u64 least |
u32 start[2^b + 1] | u32 check[2^b] | u32 0 | u64 hi[n] | u16 lo[n] | ordering[n] - least if flagged
| position[n]``.  Sorted by (hi, lo); ``lo`` has the upper bits of the second word.  Flags: 1 = has
ordering; bits 8 to 15 and 16 to 23 are the bytes of an ordering value and of a position, as few as
the largest needs.
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
HAS_ORDERING = 1
LO_BITS = 16
"""Number of upper bits of a hash's second word that are stored and compared."""
_WORD_BITS, _WORD_BYTES, _POSITION_BYTES = 64, 8, 4
_HEADER = struct.Struct("<4sIQI")
_CRC = struct.Struct("<I")
_LEAST = struct.Struct("<Q")
_LEAST_AT = _HEADER.size + _CRC.size
_SHARD_ENTRIES = 1024
_SHARD_BITS_MAX = 16
_FEW = 4
"""If a range has at least this many shards per key, each key's shard is verified alone.

Otherwise all shards between the first and the last key are verified.
"""

_DECIMAL_DIGITS_MAX = 18
"""Maximum digits of a decimal whose unscaled value fits a word."""

UInt16Array = npt.NDArray[np.uint16]
UInt32Array = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a stored key map.

    - start: First entry of each shard, and the end, int64[2^b + 1].
    - check: Checksums, uint32[2^b].
    - verified: True for shards whose checksum was compared, bool[2^b].
    - columns: The stored arrays that the checksums cover.
    - path, offset: Position of the map, for errors.
    """

    bits: int
    start: Int64Array
    check: UInt32Array
    verified: npt.NDArray[np.bool_]
    columns: Sequence[npt.NDArray[Any]]
    path: str
    offset: int

    def shard_of(self, hi: UInt64Array) -> Int64Array:
        """Return the shard of each hash -> int64[n]."""
        return shard_of(hi, self.bits)

    def verify(self, numbers: Iterable[int]) -> None:
        """Compare the checksums of shards that are not verified yet.  Raises Corrupt."""
        for number in numbers:
            if self.verified[number]:
                continue
            start, stop = self.start[number : number + 2].tolist()
            checksum = _checksum([column[start:stop] for column in self.columns])
            if checksum != self.check[number]:
                raise Corrupt(
                    "a key map is damaged",
                    path=self.path,
                    offset=self.offset,
                    expected=f"{self.check[number]:08x} for shard {number}",
                    got=f"{checksum:08x}",
                )
            self.verified[number] = True


@dataclass(frozen=True, slots=True)
class Packed:
    """Unsigned numbers as offsets from ``least``, each in as few bytes as the largest needs.

    ``data`` is uint8[n, bytes], little-endian.  Callers need few of the numbers, so these are
    decoded on access.  ``numpy.asarray`` decodes all of them.
    """

    data: npt.NDArray[np.uint8]
    least: int = 0

    @classmethod
    def pack(cls, numbers: npt.NDArray[Any], least: int = 0, width: int | None = None) -> Packed:
        """Pack ``numbers``, which are at least ``least``, in ``width`` bytes or the fewest.
        O(n).
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
    """Sorted hashes, positions and ordering values of a segment: n entries each.

    ``hi`` has the first words, ``lo`` the upper LO_BITS of the second.  ``ordering`` may be None.
    In a stored map (``shards``), only entries returned by :meth:`find` are verified, or all entries
    after :meth:`verify_all`.
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
        """The hashes, with zeros for the bits that are not stored.  O(n)."""
        return KeyHashes(self.hi, self.lo.astype(np.uint64) << np.uint64(_WORD_BITS - LO_BITS))

    def find(self, keys: KeyHashes) -> Int64Array:
        """Return the entry of each wanted key, or -1 -> int64[m].  O(m log n), faster if sorted.

        Raises Corrupt if a shard that may hold a wanted key is damaged.
        """
        if len(self) == 0 or len(keys) == 0:
            return np.full(len(keys), -1, dtype=np.int64)
        if self.shards is None or bool(self.shards.verified.all()):
            return self._exact(keys, self.hi.searchsorted(keys.hi))
        shard = self.shards.shard_of(np.array([keys.hi.min(), keys.hi.max()])).tolist()
        between = range(shard[0], shard[1] + 1)
        if _FEW * len(keys) > len(between):
            self.shards.verify(between)
            start, stop = self.shards.start[[shard[0], shard[1] + 1]].tolist()
            at = start + self.hi[start:stop].searchsorted(keys.hi)
            is_inside = at < stop
        else:
            shard = self.shards.shard_of(keys.hi).tolist()
            self.shards.verify(shard)
            at, is_inside = np.empty(len(keys), np.int64), np.empty(len(keys), np.bool_)
            for i, number in enumerate(shard):
                start, stop = self.shards.start[number : number + 2].tolist()
                at[i] = start + int(self.hi[start:stop].searchsorted(keys.hi[i]))
                is_inside[i] = at[i] < stop
        return np.where(is_inside, self._exact(keys, at), -1)

    def _exact(self, keys: KeyHashes, at: Int64Array) -> Int64Array:
        """Return the entries with exactly the wanted hashes, else -1.

        ``at`` has the first entry whose hash is not smaller.  It is overwritten.
        """
        n, hi, lo, wanted_lo = len(self), self.hi, self.lo, upper(keys.lo)
        np.minimum(at, n - 1, out=at)
        same = hi[at] == keys.hi
        is_match = same & (lo[at] == wanted_lo)
        # Different hashes almost never share a first word; the loop is for
        # correctness.
        for i in np.flatnonzero(same & ~is_match).tolist():
            while at[i] + 1 < n and hi[at[i] + 1] == keys.hi[i] and not is_match[i]:
                at[i] += 1
                is_match[i] = lo[at[i]] == wanted_lo[i]
        return np.where(is_match, at, -1)

    def with_equal(self, keys: Int64Array, entries: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return keys and their entries, with further entries that have the same hashes.

        Args:
            keys: Numbers of keys, int64[h].
            entries: The first entry of each, as :meth:`find` returns them, int64[h].
        """
        stops = np.full(len(entries), len(self))
        if self.shards is not None:  # equal hashes are in one shard, which is verified
            stops = self.shards.start[self.shards.shard_of(self.hi[entries]) + 1]
        all_keys, all_entries = [keys], [entries]
        while len(entries):
            following = np.minimum(entries + 1, len(self) - 1)
            same = (entries + 1 < stops) & (self.hi[following] == self.hi[entries])
            same &= self.lo[following] == self.lo[entries]
            keys, entries, stops = keys[same], following[same], stops[same]
            all_keys.append(keys)
            all_entries.append(entries)
        return np.concatenate(all_keys), np.concatenate(all_entries)

    def verify_all(self) -> KeyMap:
        """Return this map after all shards are verified.  O(n), once.  Raises Corrupt."""
        if self.shards is not None:
            self.shards.verify(np.flatnonzero(~self.shards.verified).tolist())
        return self

    def check(self) -> None:
        """Assert the invariants: strictly ascending hashes and unique positions."""
        hashes = KeyHashes(self.hi, self.lo.astype(np.uint64))
        assert hashes.ascend(), "hashes must be strictly ascending"
        assert len(np.unique(np.asarray(self.position))) == len(self.position), (
            "positions must be unique"
        )


def _checksum(parts: list[npt.NDArray[Any]]) -> int:
    """Return the checksum of a shard.

    It is the first word of MurmurHash3_x64_128 of each array, seeded with that of the array before.
    """
    seed = 0
    for part in parts:
        seed = int.from_bytes(mmh3.mmh3_x64_128_digest(part.reshape(-1).data, seed)[:4], "little")
    return seed


def upper(lo: UInt64Array) -> UInt16Array:
    """Return the upper LO_BITS of second words -> uint16[n], a view if ``lo`` is contiguous."""
    return np.ascontiguousarray(lo, "<u8").view("<u2")[3::4]


def build(hashes: KeyHashes, ordering: UInt64Array | None) -> KeyMap:
    """Return the key map of a segment whose row i has ``hashes[i]`` and ``ordering[i]``."""
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
    position = Packed.pack(np.asarray(key_map.position))
    packed, least = [position], 0
    if key_map.ordering is not None:
        words = np.asarray(key_map.ordering)
        least = int(words.min()) if n else 0
        packed.insert(0, Packed.pack(words, least))
    arrays: list[npt.NDArray[Any]] = [hi, lo, *(column.data for column in packed)]
    start = shard_bounds(hi, shard_bits(n))
    header = head(
        n, [column.data.shape[1] for column in packed], least, start, checksums(arrays, start)
    )
    return b"".join([header, *(array.data for array in arrays)])


def width_of(most: int) -> int:
    """Return the bytes per number if ``most`` is the largest number.

    >>> width_of(0), width_of(255), width_of(256)
    (1, 1, 2)
    """
    return max(1, (most.bit_length() + 7) // 8)


def shard_bits(rows: int) -> int:
    """Return the number of hash bits that cut ``rows`` entries into shards."""
    return min(_SHARD_BITS_MAX, (rows // _SHARD_ENTRIES).bit_length())


def shard_of(hi: UInt64Array, bits: int) -> Int64Array:
    """Return the shard of each hash, from 0 to 2^bits - 1 -> int64[n]."""
    if not bits:
        return np.zeros(len(hi), np.int64)
    return (hi >> np.uint64(64 - bits)).astype(np.int64)


def shard_bounds(
    hi: npt.NDArray[Any], bits: int, first: int = 0, count: int | None = None
) -> Int64Array:
    """Return the first entry of each of ``count`` shards from ``first``, and the end -> int64[count
    + 1].

    ``hi`` is ascending.  Shards outside of the range must be empty.  The default is all 2^bits
    shards.
    """
    if not bits:
        return np.array([0, len(hi)], np.int64)
    last = first + ((1 << bits) if count is None else count)
    bounds = np.arange(first + 1, last, dtype=np.uint64) << np.uint64((64 - bits) % 64)
    return np.concatenate([[0], np.searchsorted(hi, bounds), [len(hi)]]).astype(np.int64)


def checksums(arrays: list[npt.NDArray[Any]], start: Int64Array) -> list[int]:
    """Return the checksum of each shard of the stored ``arrays``."""
    pairs = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
    return [_checksum([array[first:last] for array in arrays]) for first, last in pairs]


def head_bytes(bits: int) -> int:
    """Return the bytes before the entries of a map with 2^bits shards."""
    return _LEAST_AT + _LEAST.size + 4 * ((1 << bits) + 1) + 4 * (1 << bits) + 4


def head(
    rows: int, widths: Sequence[int], least: int, start: Int64Array, check: Sequence[int]
) -> bytes:
    """Return the bytes before the entries.

    ``widths`` are the bytes of an ordering value, if there are any, and of a position.  ``start``
    and ``check`` are as in :class:`Shards`.
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
    header = _HEADER.pack(MAGIC, flags, rows, (len(start) - 1).bit_length() - 1)
    return header + _CRC.pack(zlib.crc32(shards, zlib.crc32(header))) + shards


def decode(data: Any, *, path: str, offset: int) -> KeyMap:
    """Return the key map in the buffer ``data`` without a copy.

    Header and starts are verified now, shards when they are searched.  ``path`` and ``offset`` are
    for errors.  Raises Corrupt for damaged bytes.
    """
    view = memoryview(data).cast("B")
    magic = bytes(view[:4])
    if len(view) < _LEAST_AT + _LEAST.size or magic != MAGIC:
        raise Corrupt(
            "not a key map", path=path, offset=offset, expected=MAGIC.decode(), got=repr(magic)
        )
    _, flags, n, bits = _HEADER.unpack_from(view)
    (least,) = _LEAST.unpack_from(view, _LEAST_AT)
    ordering_bytes, position_bytes = flags >> 8 & 0xFF, flags >> 16 & 0xFF
    widths = [_WORD_BYTES, LO_BITS // 8, ordering_bytes, position_bytes]
    begin = head_bytes(min(bits, _SHARD_BITS_MAX))
    expected = begin + n * sum(widths)
    possible = (
        bits <= _SHARD_BITS_MAX
        and ordering_bytes <= _WORD_BYTES
        and position_bytes <= _POSITION_BYTES
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
    count, starts_at = 1 << bits, _LEAST_AT + _LEAST.size
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
    words = hi.view("<u8").reshape(-1), lo.view("<u2").reshape(-1)
    return KeyMap(*words, Packed(position), words_of_ordering, shards)


def _bytes(view: memoryview, at: int, rows: int, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(view, np.uint8, rows * width, at).reshape(rows, width)


def orderable(type: pa.DataType) -> bool:
    """Return True if a column of ``type`` can be an ordering field."""
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_floating(type)
        or pa.types.is_date32(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_string(type)
        or (pa.types.is_decimal128(type) and type.precision <= _DECIMAL_DIGITS_MAX)
    )


def has_whole_words(type: pa.DataType) -> bool:
    """Return True if ordering values of ``type`` are equal whenever their words are.

    Text is not: its words have only the first eight bytes.
    """
    return not pa.types.is_string(type)


def words_decide(schema: pa.Schema, ordering: Sequence[str]) -> bool:
    """Return True if rows can be compared by :func:`words_of` alone."""
    return len(ordering) < 2 and all(has_whole_words(schema.field(name).type) for name in ordering)


def words_of(
    table: pa.Table, ordering: Sequence[str], *, numbered: bool = True
) -> UInt64Array | None:
    """Return the words of the first ordering field -> uint64[n], None without ordering fields.

    Raises Invalid as :func:`ordering_words`, for all ordering fields.
    """
    if not ordering:
        return None
    for name in ordering[1:]:
        _refuse_nulls(table[name], numbered=numbered)
    return ordering_words(table[ordering[0]], numbered=numbered)


def _refuse_nulls(column: pa.ChunkedArray | pa.Array, *, numbered: bool) -> None:
    if column.null_count:
        rows = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[:10]
        raise Invalid(
            f"the ordering field is null in {column.null_count} rows"
            + f", first at rows {rows.tolist()}" * numbered,
            hint="fill the ordering field, or create the table without one",
        )


def _unscaled(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the unscaled values of decimals with up to _DECIMAL_DIGITS_MAX digits -> int64[n].

    ``column`` has no nulls.
    """
    whole = one_array(column)
    if not len(whole):
        return pa.array([], pa.int64())
    words = np.frombuffer(whole.buffers()[1], "<i8", 2 * len(whole), 16 * whole.offset)
    return pa.array(words[::2])


def ordering_words(column: pa.ChunkedArray | pa.Array, *, numbered: bool = True) -> UInt64Array:
    """Return ordering values as unsigned words that sort like the values -> uint64[n].

    Supports integers, floats, dates, timestamps, decimals of one scale, and the first eight bytes
    of text (:func:`has_whole_words`).  NaN sorts above all floats and -0.0 below 0.0, as in Hudi's
    log merging.  Raises Invalid for nulls; the message has the first null rows if ``numbered``,
    that is, if row numbers mean something to the caller.
    """
    _refuse_nulls(column, numbered=numbered)
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
        # 0.0 and -0.0 share a word, and the word below it is unused
        words -= np.signbit(numbers) & (numbers == 0)
    return words

"""Hudi's two Bloom filters in the footer of a base file, bit for bit.

The footer key ``org.apache.hudi.bloomfilter`` contains base64 text, and
``hoodie_bloom_filter_type_code`` contains ``SIMPLE`` or ``DYNAMIC_V0``. The formats are those of
Hadoop's ``BloomFilter`` and ``DynamicBloomFilter``. All numbers are big-endian int32.

=============  =====================================================================================
SIMPLE         -1 (version), k (hashes), byte 1 (Murmur), m (bits), ceil(m / 8) bytes, least bit
               first
DYNAMIC_V0     -1, k, byte 1, m, keys per row, keys in the last row, rows, then the rows, each as
               SIMPLE
=============  =====================================================================================

A dynamic filter adds a row when the last row is full, until rows * keys per row reach
``max_entries``. The first key after that goes to row 0, and the following keys to rows 0, 1, 2 ...
in turn. All of them count as keys of the last row. A key may be contained if any row contains it.

The hash is Hadoop's variant of MurmurHash2, seeded with the previous hash. It takes the tail from
the end of the key, as signed bytes.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import ByteRows, byte_rows, spans
from indexes.base import BoolArray, Int64Array

UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]

SIMPLE = "SIMPLE"
"""Type code of a filter of fixed size."""
DYNAMIC_V0 = "DYNAMIC_V0"
"""Type code of a filter that grows by rows."""

_FILTER = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iibiiii")
_VERSION = -1
_MURMUR = 1
_HASHES_MAX = 1000
"""Hudi never writes more hash functions. A larger number would keep a reader busy."""
_INT_MAX = 2**31 - 1
_M = np.uint32(0x5BD1E995)
_PIECE_KEYS = 16384
_BYTES_MAX = 1 << 25
"""Bits stored as one byte each, enough for some three million keys."""
_WORD = struct.Struct("<I")
_SINGLE_KEYS_MAX = 8
"""Up to this many keys are hashed one by one. That takes 20 to 60 µs per key, numpy some 500 µs for
all of them. In numpy a word of all keys costs as much as eight words of a single key.
"""
_EXTRA_WORDS_MAX = 16
"""Keys that exceed the others by more words than this are hashed one by one."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The rows of a filter. ``rows``: uint8[rows, ceil(bits / 8)]."""

    bits: int
    hashes: int
    rows: UInt8Array


def sizing(entries: int, fpp: float) -> tuple[int, int]:
    """Return (bits, hash functions) that Hudi uses for ``entries`` keys and a false-positive
    probability of ``fpp``.

    Raises ValueError for entries < 1, fpp outside (0, 1), or more bits than a Java int can count.

    >>> sizing(60_000, 1e-9)  # Hudi's defaults
    (2587966, 30)
    """
    if entries < 1 or not 0.0 < fpp < 1.0:
        raise ValueError(f"a filter needs entries >= 1 and 0 < fpp < 1, got {entries} and {fpp}")
    bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    if bits > _INT_MAX:
        raise ValueError(f"a filter of {bits} bits exceeds Hudi's limit of {_INT_MAX} bits")
    return bits, math.ceil(math.log(2) * bits / entries)


class FilterBuilder:
    """Builder of a filter from batches of keys. Not thread-safe.

    >>> builder = FilterBuilder(SIMPLE, 2, 100, 1e-9)
    >>> for key in ("id_1", "id_2"):
    ...     builder.add(pa.array([key]))
    >>> builder.text()[:20]
    '/////wAAAB4BAAAQ2gAA'
    """

    def __init__(
        self, kind: str, keys: int, entries: int, fpp: float, max_entries: int = 0
    ) -> None:
        """Create an empty filter.

        Args:
            kind: SIMPLE or DYNAMIC_V0.
            keys: Total number of keys to add, in insertion order.
            entries: Number of keys that the filter, or each row, is sized for.
            fpp: False-positive probability.
            max_entries: Limits the number of rows of DYNAMIC_V0.
        """
        self._is_dynamic = kind == DYNAMIC_V0
        self._entries, self._max_entries = entries, max_entries
        self._bits, self._hashes = sizing(entries, fpp)
        self._rows, self._last = (
            _row_counts(keys, entries, max_entries) if self._is_dynamic else (1, 0)
        )
        self._matrix = _Bits(self._rows, self._bits)
        self._added = 0

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Append keys: string[n]. O(n k).

        Works in batches, because the positions of a key take 240 bytes.
        """
        rows = byte_rows(keys)
        for span in spans(len(rows), _PIECE_KEYS):
            piece = rows.rows(span)
            row: Int64Array | np.int64 = np.int64(0)
            if self._is_dynamic:
                row = _row_numbers(
                    self._added + np.arange(len(piece)), self._entries, self._max_entries
                )
            self._matrix.set(_positions(piece, self._bits, self._hashes), row)
            self._added += len(piece)

    def text(self) -> str:
        """Return the base64 text of the filter."""
        head = b""
        if self._is_dynamic:
            fields = self._hashes, _MURMUR, self._bits, self._entries, self._last, self._rows
            head = _DYNAMIC.pack(_VERSION, *fields)
        row_head = _FILTER.pack(_VERSION, self._hashes, _MURMUR, self._bits)
        rows = (row_head + row.tobytes() for row in self._matrix.pack())
        return base64.b64encode(head + b"".join(rows)).decode("ascii")


def may_contain(text: str | bytes, type_code: str, keys: pa.Array | pa.ChunkedArray) -> BoolArray:
    """Return True for each of m keys that may be in the filter -> bool[m]. O(m k + filter).

    Raises ValueError for an unknown type code or a malformed filter.

    Args:
        text: Base64 text of the footer.
        type_code: SIMPLE or DYNAMIC_V0.
        keys: string[m].

    >>> builder = FilterBuilder(SIMPLE, 2, entries=100, fpp=1e-9)
    >>> builder.add(pa.array(["id_1", "id_2"]))
    >>> may_contain(builder.text(), "SIMPLE", pa.array(["id_1", "id_3"])).tolist()
    [True, False]
    """
    matrix = _decode(text, type_code)
    rows, answer = byte_rows(keys), np.zeros(len(keys), np.bool_)
    for block in spans(len(rows), _PIECE_KEYS):
        positions = _positions(rows.rows(block), matrix.bits, matrix.hashes)
        for line in matrix.rows:
            answer[block] |= (
                (line[positions >> 3] >> (positions & 7).astype(np.uint8)) & 1 != 0
            ).all(axis=0)
    return answer


def _row_counts(keys: int, per_row: int, max_entries: int) -> tuple[int, int]:
    """Number of rows, and the key count that Hudi writes for the last used row."""
    rows = min(_rows_max(per_row, max_entries), max(1, -(-keys // per_row)))
    return rows, keys - per_row * (rows - 1)


def _rows_max(per_row: int, max_entries: int) -> int:
    return max(1, -(-max_entries // per_row))


def _row_numbers(number: Int64Array, per_row: int, max_entries: int) -> Int64Array:
    """Row of each key by its insertion ``number``."""
    rows_max = _rows_max(per_row, max_entries)
    over = number - rows_max * per_row
    return np.where(over < 0, number // per_row, np.maximum(over - 1, 0) % rows_max)


def _positions(rows: ByteRows, bits: int, hashes: int) -> Int64Array:
    """Bit positions of each key -> int64[hashes, n]. Each hash seeds the next."""
    out = np.empty((hashes, len(rows)), np.int64)
    count = rows.lengths >> 2
    order = np.argsort(-count, kind="stable")
    long_count = _count_long_keys(count[order])
    for at in order[:long_count].tolist():
        key = rows.data[rows.starts[at] :][: rows.lengths[at]].tobytes()
        out[:, at] = _key_positions(key, bits, hashes)
    order = order[long_count:]
    if not len(order):
        return out
    rows = rows.rows(order)
    lengths, words, tails = rows.lengths.astype(np.uint32), _words(rows), _tails(rows)
    seed = np.zeros(len(rows), np.uint32)
    for number in range(hashes):
        seed = _murmur(seed, lengths, words, tails)
        out[number, order] = np.abs(np.fmod(seed.view(np.int32).astype(np.int64), bits))
    return out


def _count_long_keys(word_counts: Int64Array) -> int:
    """Return the number of longest keys to hash one by one.

    ``word_counts``: Words of each key, descending.
    """
    if len(word_counts) <= _SINGLE_KEYS_MAX:
        return len(word_counts)
    longest = word_counts[:_SINGLE_KEYS_MAX] - word_counts[_SINGLE_KEYS_MAX]
    return int(np.count_nonzero(longest > _EXTRA_WORDS_MAX))


def _key_positions(key: bytes, bits: int, hashes: int) -> list[int]:
    """Bit positions of a single key, without numpy."""
    factor, low_half = int(_M), 0xFFFFFFFF
    words, tail_length, tail = [], len(key) & 3, 0
    for (word,) in _WORD.iter_unpack(key[: len(key) - tail_length]):
        word = word * factor & low_half
        words.append((word ^ word >> 24) * factor & low_half)
    for back in range(1, tail_length + 1):
        byte = key[-back]
        tail ^= (byte - (byte >> 7 << 8)) << 8 * (back - 1) & low_half
    state, positions = 0, []
    for _ in range(hashes):
        state ^= len(key)
        for word in words:
            state = (state * factor & low_half) ^ word
        if tail_length:
            state = (state ^ tail) * factor & low_half
        state = (state ^ state >> 13) * factor & low_half
        state ^= state >> 15
        positions.append(abs(state - (state >> 31 << 32)) % bits)
    return positions


def _mix(words: npt.NDArray[Any]) -> UInt32Array:
    """Return the low halves of words, mixed as the hash requires -> uint32[n]."""
    word = words.astype(np.uint32)
    word *= _M
    word ^= word >> np.uint32(24)
    word *= _M
    return word


def _words(rows: ByteRows) -> list[UInt32Array]:
    """The i-th mixed word of all keys with that many words, sorted by descending number
    of words.
    """
    count = rows.lengths >> 2
    out = []
    for number in range(int(count.max(initial=0))):
        live = int(np.searchsorted(-count, -number, "left"))
        out.append(_mix(rows.rows(slice(0, live)).whole_words(4 * number)))
    return out


def _tails(rows: ByteRows) -> tuple[BoolArray, UInt32Array]:
    """Keys with a tail of 1 to 3 bytes, and the tail: sign-extended bytes in Hadoop's order."""
    tail_length = rows.lengths & 3
    tail = np.zeros(len(rows), np.uint32)
    for back, shift in ((3, 16), (2, 8), (1, 0)):
        byte = rows.data[np.maximum(rows.starts + rows.lengths - back, 0)].view(np.int8)
        signed = byte.astype(np.int32).view(np.uint32) << np.uint32(shift)
        tail ^= np.where(tail_length >= back, signed, np.uint32(0))
    return tail_length > 0, tail


def _murmur(
    seed: UInt32Array,
    lengths: UInt32Array,
    words: list[UInt32Array],
    tails: tuple[BoolArray, UInt32Array],
) -> UInt32Array:
    state = seed ^ lengths
    for word in words:
        head = state[: len(word)]
        head *= _M
        head ^= word
    has_tail, tail = tails
    state = np.where(has_tail, (state ^ tail) * _M, state)
    state ^= state >> np.uint32(13)
    state *= _M
    state ^= state >> np.uint32(15)
    return state


class _Bits:
    """A bit matrix. Bits take a byte each while they are set, which is fast, or are packed if there
    are too many.
    """

    def __init__(self, rows: int, bits: int) -> None:
        self._bits, self._stride = bits, -(-bits // 8)
        self._is_packed = rows * bits > _BYTES_MAX
        shape, kind = (
            ((rows, self._stride), np.uint8) if self._is_packed else ((rows, bits), np.bool_)
        )
        self._matrix: npt.NDArray[Any] = np.zeros(shape, kind)

    def set(self, positions: Int64Array, row: Int64Array | np.int64) -> None:
        """Set ``positions``: int64[hashes, n], in the row of each of n keys, or in a single row."""
        flat = self._matrix.reshape(-1)
        if self._is_packed:
            np.bitwise_or.at(
                flat,
                self._stride * row + (positions >> 3),
                np.left_shift(1, positions & 7).astype(np.uint8),
            )
        else:
            flat[positions + self._bits * row] = True

    def pack(self) -> UInt8Array:
        """Return the rows -> uint8[rows, ceil(bits / 8)]."""
        if self._is_packed:
            return self._matrix
        return np.packbits(self._matrix, axis=1, bitorder="little")


def _decode(text: str | bytes, type_code: str) -> _Matrix:
    """Decode the filter in ``text``, checking every number before use. Raises ValueError."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Hudi Bloom filter: not base64 ({error})") from None
    if type_code == SIMPLE:
        return _decode_rows(data, 0, 1)
    if type_code != DYNAMIC_V0:
        raise ValueError(
            f"Hudi Bloom filter: unknown type code {type_code!r}; known: {SIMPLE}, {DYNAMIC_V0}"
        )
    if len(data) < _DYNAMIC.size:
        raise ValueError(f"Hudi Bloom filter: {len(data)} bytes are too few for a header")
    version, hashes, kind, bits, _, _, rows = _DYNAMIC.unpack_from(data)
    matrix = _decode_rows(data, _DYNAMIC.size, rows)
    if (version, kind) != (_VERSION, _MURMUR) or (matrix.bits, matrix.hashes) != (bits, hashes):
        raise ValueError("Hudi Bloom filter: the header does not match the rows")
    return matrix


def _decode_rows(data: bytes, at: int, rows: int) -> _Matrix:
    """Decode ``rows`` equally sized SIMPLE filters from byte ``at`` to the end."""
    if rows < 1 or len(data) < at + _FILTER.size:
        raise ValueError(f"Hudi Bloom filter: {rows} rows do not fit {len(data) - at} bytes")
    head = data[at : at + _FILTER.size]
    version, hashes, kind, bits = _FILTER.unpack(head)
    if version != _VERSION or kind != _MURMUR or not 0 < hashes <= _HASHES_MAX or bits < 1:
        raise ValueError(
            f"Hudi Bloom filter: unsupported version {version}, hash {kind}, {hashes} hashes or"
            f" {bits} bits"
        )
    size = _FILTER.size + (bits + 7) // 8
    if len(data) - at != rows * size:
        raise ValueError(
            f"Hudi Bloom filter: {len(data) - at} bytes instead of {rows} rows of {size}"
        )
    lines = np.frombuffer(data, np.uint8, rows * size, at).reshape(rows, size)
    if not bool(np.all(lines[:, : _FILTER.size] == np.frombuffer(head, np.uint8))):
        raise ValueError("Hudi Bloom filter: the rows have different headers")
    return _Matrix(bits, hashes, lines[:, _FILTER.size :])

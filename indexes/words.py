"""Strings of an Arrow column as machine words, so that numpy can work on all rows at once.

Hashing and binary search both want "the i-th word of every string".  A string column is one buffer and a list of
offsets; a view of that buffer with a stride of one byte turns the question into one gather.  The copy of the buffer is
padded, so that a word which starts inside may end outside; the bytes after the end of a string are masked to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.buffers import one_array

UInt8Array = npt.NDArray[np.uint8]
UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

_WORD_BYTES = 8
_KEEP_LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class ByteRows:
    """n byte strings in one buffer.

    ``data``: uint8, at least eight bytes longer than the last string; ``starts``, ``lengths``: int64[n].
    """

    data: UInt8Array
    starts: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, which: slice | Int64Array) -> ByteRows:
        """Return the strings at ``which``; the buffer is shared.  O(result)."""
        return ByteRows(self.data, self.starts[which], self.lengths[which])

    def whole_words(self, offset: int | Int64Array) -> UInt64Array:
        """Return the eight bytes at ``offset`` of every string, little-endian -> uint64[n].

        The caller promises that ``offset`` lies inside or at the end of each string; bytes after the end are garbage.
        """
        view: UInt64Array = np.ndarray(
            shape=(len(self.data) - _WORD_BYTES + 1,), dtype=np.dtype("<u8"), buffer=self.data, strides=(1,)
        )
        words: UInt64Array = view[self.starts + offset]
        return words

    def words(self, offset: int | Int64Array) -> UInt64Array:
        """Return the eight bytes at any ``offset`` of every string, little-endian, zero after its end -> uint64[n]."""
        left = np.clip(self.lengths - offset, 0, _WORD_BYTES)
        words = self.whole_words(np.minimum(self.lengths, offset))
        words &= _KEEP_LOW_BYTES[left]
        return words

    def big_endian_words(self, offset: int) -> UInt64Array:
        """Return the words at ``offset`` as numbers that sort like the bytes -> uint64[n].

        >>> [hex(word) for word in byte_rows(pa.array(["ab", "b"])).big_endian_words(0).tolist()]
        ['0x6162000000000000', '0x6200000000000000']
        """
        return self.words(offset).byteswap()


def byte_rows(column: pa.Array | pa.ChunkedArray) -> ByteRows:
    """Return the strings of ``column``: string or binary of any width [n].  Nulls become empty strings.

    Raises ValueError for another type.  O(bytes): one copy of the buffer.
    """
    array = large_binary(column)
    offsets_buffer, data_buffer = array.buffers()[1:]
    if len(array) == 0 or offsets_buffer is None:
        return ByteRows(np.zeros(_WORD_BYTES, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + _WORD_BYTES, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_valid()), lengths, 0)
    return ByteRows(data, offsets[:-1] - first, lengths)


def large_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as one array of type large_binary; ValueError if it holds neither strings nor binary."""
    array = one_array(column)
    kind = array.type
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    also = (pa.types.is_fixed_size_binary, pa.types.is_string_view, pa.types.is_binary_view)
    if not any(test(kind) for test in known + also):
        raise ValueError(f"expected strings or binary, got {kind}; cast the column to string first")
    return array.cast(pa.large_binary())

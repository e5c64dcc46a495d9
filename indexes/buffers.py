"""Arrow columns as numpy arrays over the same memory, and strings as machine words.

``to_numpy`` does this too, but pyarrow imports pandas for it where that is installed, which takes
longer than a plan.

Hashing and binary search want the i-th word of every string.  A string column is one buffer and a
list of offsets: a view of the buffer with a stride of one byte makes that one gather.  The copy of
the buffer is padded, so that a word may end after its string; the bytes there are masked to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.sorting import stable_order

UInt8Array = npt.NDArray[np.uint8]
UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

_WORD_BYTES = 8
_KEEP_LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


def numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return integers or floats [n] without null as numpy has them; no copy if they are one chunk.

    >>> numbers(pa.array([3, 4], pa.int32())).tolist()
    [3, 4]
    """
    values = one_array(values)
    assert not values.null_count, "numpy has no null"
    dtype = np.dtype(values.type.to_pandas_dtype())
    if not len(values):
        return np.empty(0, dtype)
    return np.frombuffer(
        values.buffers()[1], dtype, count=len(values), offset=values.offset * dtype.itemsize
    )


def flags(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return booleans [n] without null as numpy has them, a byte each.  O(n).

    >>> flags(pa.array([True, False])).tolist()
    [True, False]
    """
    values = one_array(values)
    assert not values.null_count, "numpy has no null"
    if not len(values):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(values.buffers()[1], np.uint8)
    first = values.offset // 8
    last = -(-(values.offset + len(values)) // 8)
    found = np.unpackbits(bits[first:last], bitorder="little")[values.offset - 8 * first :][
        : len(values)
    ]
    return found.view(np.bool_)


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; no copy if it is one chunk."""
    if isinstance(values, pa.Array):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)


def taken(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return the rows of ``table`` at positions ``rows``, a row of nulls for each -1.

    Arrow joins all chunks of a column before it takes some rows, so its own function refuses more
    than 2 GiB of texts in a column, and then as many in what is taken; here they come in several
    chunks.  Raises pa.ArrowInvalid for so many in one row.

    >>> taken(pa.table({"a": pa.chunked_array([[1, 2], [3]])}), np.array([2, -1, 0]))[
    ...     "a"
    ... ].to_pylist()
    [3, None, 1]
    """
    try:
        return table.take(_indices(rows))
    except pa.ArrowInvalid:
        return taken_by_chunk(table, rows)


def taken_by_chunk(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return the same as :func:`taken`, first of each chunk by itself; nothing but the rows that
    are taken is joined.
    """
    try:
        return _taken_by_chunk(table, rows)
    except pa.ArrowInvalid:
        if len(rows) < 2:
            raise
    half = len(rows) // 2
    return pa.concat_tables(
        [taken_by_chunk(table, rows[:half]), taken_by_chunk(table, rows[half:])]
    )


def _taken_by_chunk(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    order = stable_order(rows)
    rising, first = rows[order], 0
    nowhere = int(np.searchsorted(rising, 0))
    parts = [table.schema.empty_table().take(pa.nulls(nowhere, pa.int64()))]
    for batch in table.to_batches():
        start, stop = np.searchsorted(rising, [first, first + len(batch)])
        parts.append(pa.Table.from_batches([batch.take(pa.array(rising[start:stop] - first))]))
        first += len(batch)
    found = pa.concat_tables(parts)
    if bool(np.all(np.diff(order) == 1)):
        return found
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return found.take(pa.array(back))


def _indices(rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
    nowhere = rows < 0
    return pa.array(rows, mask=nowhere) if nowhere.any() else pa.array(rows)


def column(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers [n] as an Arrow array over the same memory; null where not ``valid``.

    >>> column(np.array([3, 4]), np.array([True, False])).to_pylist()
    [3, None]
    """
    values = np.ascontiguousarray(values)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)]
    )


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return booleans [n] as an Arrow array.  O(n)."""
    return pa.Array.from_buffers(
        pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
    )


def distinct_numbers(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the different values in order -> int64[d].  O(n log n).

    Where most differ this takes a seventeenth of the time of ``np.unique``, which hashes them;
    where few do, that is faster.

    >>> distinct_numbers(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def distinct_texts(values: npt.NDArray[np.object_]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct ones of texts, object[n], as they come first, and which of them each is
    -> int64[n].  O(n).

    >>> found, which = distinct_texts(np.array(["b", "a", "b"], object))
    >>> found, which.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class ByteRows:
    """n byte strings in one buffer.

    ``data``: uint8, at least eight bytes longer than the last string; ``starts``, ``lengths``:
    int64[n].
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

        The caller promises that ``offset`` lies inside or at the end of each string; bytes after
        the end are garbage.
        """
        view: UInt64Array = np.ndarray(
            shape=(len(self.data) - _WORD_BYTES + 1,),
            dtype=np.dtype("<u8"),
            buffer=self.data,
            strides=(1,),
        )
        words: UInt64Array = view[self.starts + offset]
        return words

    def words(self, offset: int | Int64Array) -> UInt64Array:
        """Return the eight bytes at any ``offset`` of every string, little-endian, zero after its
        end -> uint64[n].
        """
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
    """Return the strings of ``column``: string or binary of any width [n].  Nulls become empty
    strings.

    Raises ValueError for another type.  O(bytes): one copy of the buffer.
    """
    array = large_binary(column)
    offsets_buffer, data_buffer = array.buffers()[1:]
    if len(array) == 0 or offsets_buffer is None:
        return ByteRows(
            np.zeros(_WORD_BYTES, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
        )
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
    """Return ``column`` as one array of type large_binary; ValueError if it holds neither strings
    nor binary.
    """
    array = one_array(column)
    kind = array.type
    known = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    also = (pa.types.is_fixed_size_binary, pa.types.is_string_view, pa.types.is_binary_view)
    if not any(test(kind) for test in known + also):
        raise ValueError(f"expected strings or binary, got {kind}; cast the column to string first")
    return array.cast(pa.large_binary())

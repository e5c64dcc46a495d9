"""Arrow columns as numpy arrays, sorting, gathering, and work on several threads.

pyarrow's ``to_numpy`` also returns views, but it imports pandas if that is installed. The import
takes longer than a plan.

Hashing and binary search need the i-th word of every string. A string column is a buffer and a
list of offsets. A view of the buffer with a stride of one byte makes this a single gather. The copy
of the buffer is padded, so that a word may extend beyond its string. The extra bytes are masked to
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

S = TypeVar("S")
T = TypeVar("T")

MANY_ROWS = 1 << 18
"""Threads do not pay for fewer rows. Hashing 131,072 keys takes 9.7 ms on two threads and 10.0 ms
on one; 262,144 keys take 19 and 23 ms.
"""


class StartTask(Protocol):
    """Starts a function and returns a callable that waits for its result or raises its error."""

    def __call__(self, function: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def task_starter(threads: int) -> Iterator[StartTask]:
    """Yield a function that starts work on a pool of ``threads``.

    With zero threads, the work runs when its result is requested. All work is finished when the
    context exits.

    >>> with task_starter(2) as begin:
    ...     waits = [begin(lambda: 1), begin(lambda: 2)]
    ...     [wait() for wait in waits]
    [1, 2]
    """

    def later(function: Callable[[], T], /) -> Callable[[], T]:
        return function

    if not threads:
        yield later
        return
    with ThreadPoolExecutor(threads) as pool:

        def begin(function: Callable[[], T], /) -> Callable[[], T]:
            return pool.submit(function).result

        yield begin


def map_parallel(function: Callable[[S], T], pieces: Sequence[S], rows: int) -> list[T]:
    """Map ``function`` over ``pieces``, on several threads if the pieces have many rows in total.

    Results are in the order of ``pieces``. The number of threads is ``pyarrow.cpu_count()``, which
    is 1 in a Spark worker.

    >>> map_parallel(len, ["a", "bc"], rows=3)
    [1, 2]
    """
    threads = min(len(pieces), pa.cpu_count())
    if threads < 2 or rows < MANY_ROWS:
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))


def spans(rows: int, size: int) -> list[slice]:
    """Split ``rows`` into slices of ``size`` rows. The last slice may be shorter.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def in_batches(items: Iterable[S], size_of: Callable[[S], int], size_max: int) -> Iterator[list[S]]:
    """Yield consecutive ``items`` in batches of at most ``size_max`` in total. A larger item is a
    batch of its own.

    >>> list(in_batches([3, 1, 2, 9, 1], abs, size_max=4))
    [[3, 1], [2], [9], [1]]
    """
    batch: list[S] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and total + size > size_max:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def run_starts(lengths: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the start of each of n consecutive runs -> int64[n].

    >>> run_starts(np.array([2, 0, 3])).tolist()
    [0, 2, 2]
    """
    return np.asarray(np.cumsum(lengths, dtype=np.int64) - lengths)


def expand_runs(
    starts: npt.NDArray[np.integer[Any]], lengths: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.int64]:
    """Return the positions of all runs, each from its start on -> int64[sum of lengths].

    >>> expand_runs(np.array([7, 3]), np.array([2, 1])).tolist()
    [7, 8, 3]
    """
    before = np.repeat(starts - run_starts(lengths), lengths)
    return np.asarray(before + np.arange(len(before)), np.int64)


_ARGSORT_MAX = 256
"""For fewer numbers, numpy's argsort is faster."""
_PIECE = 1 << 15
"""Numbers per pass."""
_WORD_BITS = 64
_PARTS_MAX = 8
"""Each part is a pass over all hashes."""


MANY_VALUES = 1000
"""From this many texts on, check the order before computing min/max. If they are sorted, that takes
a seventh of the time. For fewer texts, min/max is faster.
"""
_SORTED_PIECE_ROWS = 1 << 16
_FIRST_CHECK = 64
"""Values to check first, before all values are checked."""


def stable_order(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the stable permutation that sorts n integers -> int64[n]. O(n log n).

    Each number's distance from the minimum is packed above its position into a 64-bit word. Sorting
    the words is faster than an argsort: 5 M random words take 69 ms instead of 574 ms (AVX-512 and
    AVX2), and 80,000 take 0.5 ms instead of 5 ms. If a distance does not fit, as for hashes, its
    lowest bits are dropped and the few resulting ties are sorted again. For input of up to six
    ascending runs, numpy's stable sort would be faster.

    >>> stable_order(np.array([5, -1, 5, 2])).tolist()
    [1, 3, 0, 2]
    """
    if len(numbers) < _ARGSORT_MAX or numbers.dtype.itemsize <= 2:  # numpy uses radix sort
        return np.argsort(numbers, kind="stable").astype(np.int64, copy=False)
    if _is_ascending(numbers):
        return np.arange(len(numbers))
    minimum = numbers.min()
    position_bits = (len(numbers) - 1).bit_length()
    dropped_bits = max(
        0, (int(numbers.max()) - int(minimum)).bit_length() + position_bits - _WORD_BITS
    )
    words = numbers.astype(np.uint64)  # a copy; negative numbers and distances wrap
    for start in range(0, len(words), _PIECE):
        # piecewise, to stay in the CPU cache and save memory
        piece = words[start : start + _PIECE]
        piece -= minimum.astype(np.uint64)
        piece >>= np.uint64(dropped_bits)
        piece <<= np.uint64(position_bits)
        piece |= np.arange(start, start + len(piece), dtype=np.uint64)
    words.sort()
    ties = _find_ties(words, position_bits) if dropped_bits else None
    words &= np.uint64((1 << position_bits) - 1)
    order = words.view(np.int64)
    if ties is not None:
        positions = order[ties]
        order[ties] = positions[np.argsort(numbers[positions], kind="stable")]
    return order


def row_ranks(columns: Sequence[npt.NDArray[np.integer[Any]]]) -> npt.NDArray[np.integer[Any]]:
    """Return numbers with the same order as the rows of ``columns``, at least one, where the first
    column counts most -> integer[n]. O(n log n).

    >>> row_ranks([np.array([2, 1, 2]), np.array([5, 9, 3])]).tolist()
    [2, 0, 1]
    """
    if len(columns) == 1:
        return columns[0]
    order = np.lexsort(columns[::-1])
    rises = np.zeros(len(order), np.bool_)
    for column in columns:
        rises[1:] |= column[order][1:] != column[order][:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(rises)
    return ranks


def has_duplicates(hashes: npt.NDArray[np.uint64]) -> bool:
    """Return True if any of n uniformly distributed hashes occurs twice. O(n log n).

    >>> (
    ...     has_duplicates(np.array([3, 1, 2], np.uint64)),
    ...     has_duplicates(np.array([3, 1, 3], np.uint64)),
    ... )
    (False, True)
    """
    bits = (min(pa.cpu_count(), _PARTS_MAX) - 1).bit_length() if len(hashes) >= MANY_ROWS else 0

    def twice(upper: int) -> bool:
        part = (
            hashes
            if not bits
            else hashes[hashes >> np.uint64(_WORD_BITS - bits) == np.uint64(upper)]
        )
        part = np.sort(part)
        return bool((part[1:] == part[:-1]).any())

    return any(map_parallel(twice, range(1 << bits), len(hashes)))


def _find_ties(words: npt.NDArray[np.uint64], position_bits: int) -> npt.NDArray[np.int64] | None:
    """Return the ascending ``words`` with the same upper bits as a neighbor -> int64[m],
    or None.
    """
    ties = np.zeros(len(words), np.bool_)
    for start in range(0, len(words), _PIECE):
        piece = words[start : start + _PIECE + 1] >> np.uint64(position_bits)
        equal = piece[1:] == piece[:-1]
        ties[start : start + len(equal)] |= equal
        ties[start + 1 : start + 1 + len(equal)] |= equal
    if ties.any():
        return np.flatnonzero(ties)
    return None


def _is_ascending(numbers: npt.NDArray[np.integer[Any]]) -> bool:
    """Return True if no number is below its predecessor."""
    pieces = (numbers[start : start + _PIECE + 1] for start in range(0, len(numbers), _PIECE))
    return all(bool((piece[1:] >= piece[:-1]).all()) for piece in pieces)


def is_sorted(values: pa.Array, *, strictly: bool = False) -> bool:
    """Return True if the values ascend, or ``strictly`` ascend, without nulls.

    ``values``: Any type that Arrow compares, without NaN.

    >>> (
    ...     is_sorted(pa.array(["a", "b", "b"])),
    ...     is_sorted(pa.array(["a", None])),
    ...     is_sorted(pa.array(["b", "a"])),
    ... )
    (True, False, False)
    >>> is_sorted(pa.array(["a", "b", "b"]), strictly=True)
    False
    """
    compare = pc.less if strictly else pc.less_equal

    def rises(piece: slice) -> bool:
        part = values.slice(piece.start, piece.stop + 1 - piece.start)
        return bool(
            pc.all(
                compare(part.slice(0, max(0, len(part) - 1)), part.slice(1)), min_count=0
            ).as_py()
        )

    if values.null_count or not rises(slice(0, _FIRST_CHECK)):  # unsorted input mostly fails soon
        return False
    return all(map_parallel(rises, spans(len(values), _SORTED_PIECE_ROWS), len(values)))


def count_below(values: pa.Array, bound: Any) -> int:
    """Return the number of non-null ``values`` below ``bound``, a scalar of their type. O(n).

    >>> count_below(pa.array(["a", "b", "c"]), "c")
    2
    """
    return int(pc.sum(pc.less(values, bound), min_count=0).as_py())


UInt8Array = npt.NDArray[np.uint8]
UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

_WORD_BYTES = 8
_KEEP_LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


def numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return integers or floats [n] without nulls as a numpy array. No copy for a single chunk.

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
    """Return booleans [n] without nulls as a numpy array. O(n).

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
    unpacked = np.unpackbits(bits[first:last], bitorder="little")[values.offset - 8 * first :][
        : len(values)
    ]
    return unpacked.view(np.bool_)


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array. No copy for a single chunk."""
    if isinstance(values, pa.Array):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    if values.num_chunks:
        return pa.concat_arrays(values.chunks)
    return pa.nulls(0, values.type)


def take_rows(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return the rows of ``table`` at positions ``rows``. A position of -1 gives a row of nulls.

    Arrow's ``take`` concatenates the chunks of a column first, so it fails for more than 2 GiB of
    text in a column or in its result. This function then takes from each chunk and returns several
    chunks. Raises pa.ArrowInvalid if a single row is too large.

    >>> take_rows(pa.table({"a": pa.chunked_array([[1, 2], [3]])}), np.array([2, -1, 0]))[
    ...     "a"
    ... ].to_pylist()
    [3, None, 1]
    """
    try:
        return table.take(_take_indices(rows))
    except pa.ArrowInvalid:
        return take_rows_by_chunk(table, rows)


def take_rows_by_chunk(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Same result as :func:`take_rows`, chunk by chunk. Concatenates only the selected rows."""
    try:
        return _take_rows_by_chunk(table, rows)
    except pa.ArrowInvalid:
        if len(rows) < 2:
            raise
    half = len(rows) // 2
    return pa.concat_tables(
        [take_rows_by_chunk(table, rows[:half]), take_rows_by_chunk(table, rows[half:])]
    )


def _take_rows_by_chunk(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    order = stable_order(rows)
    rising, first = rows[order], 0
    missing = int(np.searchsorted(rising, 0))
    parts = [table.schema.empty_table().take(pa.nulls(missing, pa.int64()))]
    for batch in table.to_batches():
        start, stop = np.searchsorted(rising, [first, first + len(batch)])
        parts.append(pa.Table.from_batches([batch.take(pa.array(rising[start:stop] - first))]))
        first += len(batch)
    rows_by_position = pa.concat_tables(parts)
    if bool(np.all(np.diff(order) == 1)):
        return rows_by_position
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return rows_by_position.take(pa.array(inverse))


def _take_indices(rows: npt.NDArray[np.integer[Any]]) -> pa.Array:
    missing = rows < 0
    if missing.any():
        return pa.array(rows, mask=missing)
    return pa.array(rows)


def column(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers [n] as an Arrow array that shares their memory, null where not ``valid``.

    >>> column(np.array([3, 4]), np.array([True, False])).to_pylist()
    [3, None]
    """
    values = np.ascontiguousarray(values)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)]
    )


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return booleans [n] as an Arrow array. O(n)."""
    return pa.Array.from_buffers(
        pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
    )


def distinct_numbers(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sorted distinct values -> int64[d]. O(n log n).

    If most values differ, this takes a seventeenth of the time of ``np.unique``, which hashes them.
    If few differ, ``np.unique`` is faster.

    >>> distinct_numbers(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def distinct_texts(values: npt.NDArray[np.object_]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct texts of object[n] in order of appearance, and the number of each ->
    int64[n].

    O(n).

    >>> texts, which = distinct_texts(np.array(["b", "a", "b"], object))
    >>> texts, which.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class ByteRows:
    """n byte strings in a shared buffer.

    Attributes:
        data: uint8, at least eight bytes longer than the last string.
        starts, lengths: int64[n].
    """

    data: UInt8Array
    starts: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, which: slice | Int64Array) -> ByteRows:
        """Return the strings at ``which``. The buffer is shared. O(result)."""
        return ByteRows(self.data, self.starts[which], self.lengths[which])

    def whole_words(self, offset: int | Int64Array) -> UInt64Array:
        """Return the eight bytes at ``offset`` of every string, little-endian -> uint64[n].

        ``offset`` must be inside or at the end of each string. Bytes after the end are undefined.
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
        """Return the eight bytes at any ``offset`` of every string, little-endian -> uint64[n].

        Bytes after the end are zero.
        """
        remaining = np.clip(self.lengths - offset, 0, _WORD_BYTES)
        words = self.whole_words(np.minimum(self.lengths, offset))
        words &= _KEEP_LOW_BYTES[remaining]
        return words

    def big_endian_words(self, offset: int) -> UInt64Array:
        """Return the words at ``offset`` as numbers that sort like the bytes -> uint64[n].

        >>> [hex(word) for word in byte_rows(pa.array(["ab", "b"])).big_endian_words(0).tolist()]
        ['0x6162000000000000', '0x6200000000000000']
        """
        return self.words(offset).byteswap()


def byte_rows(column: pa.Array | pa.ChunkedArray) -> ByteRows:
    """Return the strings of ``column``: string or binary of any width [n]. Nulls become empty
    strings.

    O(bytes): copies the buffer once. Raises ValueError for another type.
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
    """Return ``column`` as a large_binary array. Raises ValueError unless it holds strings or
    binary.
    """
    array = one_array(column)
    kind = array.type
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    more_tests = (pa.types.is_fixed_size_binary, pa.types.is_string_view, pa.types.is_binary_view)
    if not any(test(kind) for test in tests + more_tests):
        raise ValueError(f"expected strings or binary, got {kind}; cast the column to string first")
    return array.cast(pa.large_binary())

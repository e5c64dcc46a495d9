"""Arrow columns as numpy arrays: views of their memory, order, rows by position, and functions over
pieces of them on several threads.

``to_numpy`` makes views, too, but pyarrow imports pandas for it where that is installed, which
takes longer than a plan.

Hashing and binary search want the i-th word of every string.  A string column is one buffer and a
list of offsets: a view of the buffer with a stride of one byte makes that one gather.  The copy of
the buffer is padded, so that a word may end after its string; the bytes there are masked to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
"""Of fewer rows threads take as long to begin as they save: hashes of 131,072 keys take 9.7 ms on
two threads and 10.0 on one, of 262,144 19 and 23.
"""


class Begin(Protocol):
    """Begins a function, and returns what waits for its result or raises its error."""

    def __call__(self, function: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def begun_on(threads: int) -> Iterator[Begin]:
    """Give what begins a function on one of so many threads; without any, a function begins when
    somebody waits for it.

    All have ended when the context ends.

    >>> with begun_on(2) as begin:
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


def side_by_side(function: Callable[[S], T], pieces: Sequence[S], rows: int) -> list[T]:
    """Return what ``function`` makes of each of ``pieces``, in their order; they have so many
    ``rows`` together.

    As many run at a time as Arrow has threads (``pyarrow.cpu_count``; one in a worker of Spark),
    all in this one if there are few rows.

    >>> side_by_side(len, ["a", "bc"], rows=3)
    [1, 2]
    """
    threads = min(len(pieces), pa.cpu_count())
    if threads < 2 or rows < MANY_ROWS:
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))


def spans(rows: int, size: int) -> list[slice]:
    """Return slices of ``size`` rows, the last one perhaps of fewer, that are all of ``rows``.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


_FEW = 256
"""Numbers that numpy's argsort has in order sooner."""
_PIECE = 1 << 15
"""Numbers that are looked at at a time."""
_WORD_BITS = 64
_PARTS_MAX = 8
"""Each part costs a look at all hashes."""


MANY_VALUES = 1000
"""For the bounds of so many texts it pays to ask for their order first: these take a seventh of the
time then.  Fewer have their bounds sooner.
"""
_RISING_PIECE_ROWS = 1 << 16
_LOOK = 64
"""Values at which an order is looked for before all are."""


def stable_order(numbers: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the permutation that puts n integers in order, equal ones as they came -> int64[n].
    O(n log n).

    The distance of each number from the smallest stands above its position in a word of 64 bits,
    and numpy sorts words, not positions by what they stand for: 5 M random words take 69 ms instead
    of 574 (AVX-512 and AVX2; 80,000 take 0.5 instead of 5).  What does not fit loses its lowest
    bits, as hashes do; those that are equal without them, few of hashes, are put in order once
    more.  (Up to six runs that rise already numpy's stable sort merges sooner.)

    >>> stable_order(np.array([5, -1, 5, 2])).tolist()
    [1, 3, 0, 2]
    """
    if len(numbers) < _FEW or numbers.dtype.itemsize <= 2:  # short numbers are sorted by digits
        return np.argsort(numbers, kind="stable").astype(np.int64, copy=False)
    if _rises(numbers):
        return np.arange(len(numbers))
    low = numbers.min()
    position_bits = (len(numbers) - 1).bit_length()
    lost = max(0, (int(numbers.max()) - int(low)).bit_length() + position_bits - _WORD_BITS)
    words = numbers.astype(np.uint64)  # a copy; negative ones wrap, and so do their distances
    for start in range(0, len(words), _PIECE):
        # in the processor's cache, and without further memory of this size
        piece = words[start : start + _PIECE]
        piece -= low.astype(np.uint64)
        piece >>= np.uint64(lost)
        piece <<= np.uint64(position_bits)
        piece |= np.arange(start, start + len(piece), dtype=np.uint64)
    words.sort()
    tied = _tied(words, position_bits) if lost else None
    words &= np.uint64((1 << position_bits) - 1)
    order = words.view(np.int64)
    if tied is not None:
        some = order[tied]
        order[tied] = some[np.argsort(numbers[some], kind="stable")]
    return order


def repeats(hashes: npt.NDArray[np.uint64]) -> bool:
    """Return whether one of n hashes, of which any bits tell as much as others, occurs twice.  O(n
    log n).

    >>> repeats(np.array([3, 1, 2], np.uint64)), repeats(np.array([3, 1, 3], np.uint64))
    (False, True)
    """
    bits = (min(pa.cpu_count(), _PARTS_MAX) - 1).bit_length() if len(hashes) >= MANY_ROWS else 0

    def twice(upper: int) -> bool:
        some = (
            hashes
            if not bits
            else hashes[hashes >> np.uint64(_WORD_BITS - bits) == np.uint64(upper)]
        )
        some = np.sort(some)
        return bool((some[1:] == some[:-1]).any())

    return any(side_by_side(twice, range(1 << bits), len(hashes)))


def _tied(words: npt.NDArray[np.uint64], position_bits: int) -> npt.NDArray[np.int64] | None:
    """Return which of the rising ``words`` say nothing but their positions of the order beside
    their neighbours -> int64[m], None for none.
    """
    tied = np.zeros(len(words), np.bool_)
    for start in range(0, len(words), _PIECE):
        piece = words[start : start + _PIECE + 1] >> np.uint64(position_bits)
        same = piece[1:] == piece[:-1]
        tied[start : start + len(same)] |= same
        tied[start + 1 : start + 1 + len(same)] |= same
    if tied.any():
        return np.flatnonzero(tied)
    return None


def _rises(numbers: npt.NDArray[np.integer[Any]]) -> bool:
    """Return whether no number is below the one before."""
    pieces = (numbers[start : start + _PIECE + 1] for start in range(0, len(numbers), _PIECE))
    return all(bool((piece[1:] >= piece[:-1]).all()) for piece in pieces)


def is_rising(values: pa.Array, *, strictly: bool = False) -> bool:
    """Return whether no value is below the one before, or ``strictly`` each above it, and none is
    null.

    ``values``: of a type that Arrow compares, without NaN.

    >>> (
    ...     is_rising(pa.array(["a", "b", "b"])),
    ...     is_rising(pa.array(["a", None])),
    ...     is_rising(pa.array(["b", "a"])),
    ... )
    (True, False, False)
    >>> is_rising(pa.array(["a", "b", "b"]), strictly=True)
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

    if values.null_count or not rises(slice(0, _LOOK)):  # what is in no order mostly shows it soon
        return False
    return all(side_by_side(rises, spans(len(values), _RISING_PIECE_ROWS), len(values)))


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
    if values.num_chunks:
        return pa.concat_arrays(values.chunks)
    return pa.nulls(0, values.type)


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
    if nowhere.any():
        return pa.array(rows, mask=nowhere)
    return pa.array(rows)


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

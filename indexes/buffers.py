"""Arrow columns as numpy arrays over the same memory.

``to_numpy`` does this too, but pyarrow imports pandas for it where that is installed, which takes longer than a plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.sorting import stable_order


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
    return np.frombuffer(values.buffers()[1], dtype, count=len(values), offset=values.offset * dtype.itemsize)


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
    found = np.unpackbits(bits[first:last], bitorder="little")[values.offset - 8 * first :][: len(values)]
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

    Arrow joins all chunks of a column before it takes some rows, so its own function refuses more than 2 GiB of texts in a column, and then
    as many in what is taken; here they come in several chunks.  Raises pa.ArrowInvalid for so many in one row.

    >>> taken(pa.table({"a": pa.chunked_array([[1, 2], [3]])}), np.array([2, -1, 0]))["a"].to_pylist()
    [3, None, 1]
    """
    try:
        return table.take(_indices(rows))
    except pa.ArrowInvalid:
        return taken_by_chunk(table, rows)


def taken_by_chunk(table: pa.Table, rows: npt.NDArray[np.integer[Any]]) -> pa.Table:
    """Return the same as :func:`taken`, first of each chunk by itself; nothing but the rows that are taken is joined."""
    try:
        return _taken_by_chunk(table, rows)
    except pa.ArrowInvalid:
        if len(rows) < 2:
            raise
    half = len(rows) // 2
    return pa.concat_tables([taken_by_chunk(table, rows[:half]), taken_by_chunk(table, rows[half:])])


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
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return booleans [n] as an Arrow array.  O(n)."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def distinct_numbers(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the different values in order -> int64[d].  O(n log n).

    Where most differ this takes a seventeenth of the time of ``np.unique``, which hashes them; where few do, that is faster.

    >>> distinct_numbers(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def distinct_texts(values: npt.NDArray[np.object_]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct ones of texts, object[n], as they come first, and which of them each is -> int64[n].  O(n).

    >>> found, which = distinct_texts(np.array(["b", "a", "b"], object))
    >>> found, which.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    encoded = pa.array(values, pa.string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

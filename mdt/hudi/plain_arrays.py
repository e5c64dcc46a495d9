"""Conversion of a table's column to one plain Arrow array."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as one array of its value type: chunks joined, dictionaries decoded.

    >>> plain(pa.chunked_array([["a"], ["b"]]).dictionary_encode()).to_pylist()
    ['a', 'b']
    """
    chunks = column.chunks or [pa.array([], type=column.type)]
    values = chunks[0]
    if len(chunks) > 1:
        values = pa.concat_arrays(chunks)
    if pa.types.is_dictionary(values.type):
        return pc.cast(values, values.type.value_type)
    return values

"""Conversion of a table's column to one plain Arrow array."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import one_array


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as one array of its value type: chunks joined, dictionaries decoded.

    >>> plain(pa.chunked_array([["a"], ["b"]]).dictionary_encode()).to_pylist()
    ['a', 'b']
    """
    values = one_array(column)
    if pa.types.is_dictionary(values.type):
        return pc.cast(values, values.type.value_type)
    return values

"""One plain Arrow array from a table's column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def plain(column: pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as one array of its value type: chunks joined, a dictionary decoded."""
    chunks = column.chunks or [pa.array([], type=column.type)]
    values = chunks[0]
    if len(chunks) > 1:
        values = pa.concat_arrays(chunks)
    if pa.types.is_dictionary(values.type):
        return pc.cast(values, values.type.value_type)
    return values

"""Late conversion of decimals: columns are decoded as stored bytes, and only selected rows become
decimals.

A file stores a decimal as big-endian two's complement in as few bytes as its precision needs
(https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#decimal). parquet-cpp returns
these bytes in half the time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.session import memo

_ARROW_BYTES = 16


@memo(64)
def as_stored(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with each 128-bit decimal as the fixed_size_binary that the file stores.

    >>> as_stored(pa.schema({"fare": pa.decimal128(9, 2)})).field("fare").type
    FixedSizeBinaryType(fixed_size_binary[4])
    """
    return pa.schema([f.with_type(_stored(f.type)) for f in schema])


def _stored(type: pa.DataType) -> pa.DataType:
    if not pa.types.is_decimal128(type):
        return type
    bits = (10**type.precision - 1).bit_length() + 1
    return pa.binary(-(-bits // 8))


def as_decimals(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column read with :func:`as_stored` back to its decimal ``type``.

    A column that has this type is returned unchanged.
    """
    if column.type == type:
        return column
    return pa.chunked_array([_decimals(chunk, type) for chunk in column.chunks], type)


def _decimals(stored: pa.FixedSizeBinaryArray, type: pa.DataType) -> pa.Array:
    width = stored.type.byte_width
    first = stored.offset * width
    data = stored.buffers()[1].slice(first, len(stored) * width)
    highest_first = np.frombuffer(data, np.uint8).reshape(len(stored), width)
    lowest_first = np.empty((len(stored), _ARROW_BYTES), np.uint8)
    lowest_first[:, :width] = highest_first[:, ::-1]
    lowest_first[:, width:] = np.where(highest_first[:, :1] & 0x80, 0xFF, 0)
    decimals = pa.Array.from_buffers(type, len(stored), [None, pa.py_buffer(lowest_first)])
    if not stored.null_count:
        return decimals
    return pc.if_else(stored.is_valid(), decimals, pa.scalar(None, type))

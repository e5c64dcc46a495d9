"""Decimals as floating-point numbers: the nearest ones.

Arrow multiplies by a power of ten, which no float is exactly, so that its 0.3 is
0.30000000000000004: of decimals with two digits behind the point one of eight becomes a neighbour
of the right double (seen with 26.0.1).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_EXACT_DIGITS = 15
"""Whole numbers of so many digits are doubles, and so are powers of ten up to the 22nd: their
quotient is rounded once.
"""
_EXACT_SCALE = 22


def as_floating(values: Any, type: pa.DataType) -> Any:
    """Return decimals (an array, a chunked array or a scalar) as the nearest numbers of a floating
    ``type``; others as Arrow casts them, rounded.

    >>> import decimal
    >>> three_tenths = pa.array([decimal.Decimal("0.3"), None])
    >>> (
    ...     as_floating(three_tenths, pa.float64()).to_pylist(),
    ...     three_tenths.cast(pa.float64()).to_pylist(),
    ... )
    ([0.3, None], [0.30000000000000004, None])
    """
    if not pa.types.is_decimal(values.type):
        return pc.cast(values, type, safe=False)
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([as_floating(chunk, type) for chunk in values.chunks], type)
    if isinstance(values, pa.Array) and type == pa.float64() and _is_quotient(values.type):
        whole = pa.decimal128(values.type.precision, 0)
        counted = pa.Array.from_buffers(
            whole, len(values), values.buffers(), -1, values.offset
        ).cast(pa.int64())
        return pc.divide(counted.cast(type), 10.0**values.type.scale)
    return pc.cast(pc.cast(values, pa.string()), type)


def _is_quotient(type: pa.DataType) -> bool:
    return (
        pa.types.is_decimal128(type)
        and type.precision <= _EXACT_DIGITS
        and 0 <= type.scale <= _EXACT_SCALE
    )

"""Correctly rounded conversion of decimals to floating point.

Arrow multiplies by a power of ten that has no exact float, so its 0.3 becomes 0.30000000000000004.
With two digits after the point, one decimal in eight is converted to a neighbor of the correct
double (seen with pyarrow 26.0.1).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_EXACT_DIGITS = 15
"""Integers of up to 15 digits and powers of ten up to 10^22 are exact doubles, so their quotient is
rounded only once.
"""
_EXACT_SCALE = 22


def as_floating(values: Any, type: pa.DataType) -> Any:
    """Convert decimals to the nearest values of a floating ``type``.

    ``values``: An array, a chunked array or a scalar. Values that are not decimals are cast by
    Arrow, with rounding.

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
        integer_type = pa.decimal128(values.type.precision, 0)
        unscaled = pa.Array.from_buffers(
            integer_type, len(values), values.buffers(), -1, values.offset
        ).cast(pa.int64())
        return pc.divide(unscaled.cast(type), 10.0**values.type.scale)
    return pc.cast(pc.cast(values, pa.string()), type)


def _is_quotient(type: pa.DataType) -> bool:
    return (
        pa.types.is_decimal128(type)
        and type.precision <= _EXACT_DIGITS
        and 0 <= type.scale <= _EXACT_SCALE
    )

"""Conversion of rows to Python values, including times outside the range of ``datetime``.

``datetime`` covers the years 1 to 9999 and ``timedelta`` a billion days. Arrow and Hudi's files
have larger ranges, so values beyond them become numpy scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_UNFIT = (ValueError, OverflowError, pa.ArrowException)
"""Errors that pyarrow raises for values that Python cannot represent."""


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts, as ``to_pylist`` does.

    Dates and timestamps outside the years 1 to 9999 become ``numpy.datetime64`` (in UTC if the
    column has a time zone), and durations that are too long for ``timedelta`` become
    ``numpy.timedelta64``. This includes values inside structs, lists and maps.

    >>> far = pa.array([0, 253402300800], pa.timestamp("s"))
    >>> rows_of(pa.table({"at": far}))
    [{'at': datetime.datetime(1970, 1, 1, 0, 0)}, {'at': np.datetime64('10000-01-01T00:00:00')}]
    """
    try:
        dicts: list[dict[str, Any]] = rows.to_pylist()
    except _UNFIT:
        columns = [_values(rows.column(i)) for i in range(rows.num_columns)]
        return [
            dict(zip(rows.schema.names, values, strict=True))
            for values in zip(*columns, strict=True)
        ]
    return dicts


def _values(column: pa.Array | pa.ChunkedArray) -> Sequence[Any]:
    try:
        items: list[Any] = column.to_pylist()
    except _UNFIT:
        return [_value(scalar) for scalar in column]
    return items


def _value(scalar: pa.Scalar) -> Any:
    """Return a scalar as a Python value, or as a numpy value if Python cannot represent it.

    Raises the error of pyarrow for invalid values, such as text that is not UTF-8.
    """
    kinds, type = pa.types, scalar.type
    try:
        return scalar.as_py()
    except _UNFIT:
        if kinds.is_timestamp(type):
            return np.datetime64(scalar.value, type.unit)
        if kinds.is_date(type):
            return np.datetime64(scalar.value, "D" if kinds.is_date32(type) else "ms")
        if kinds.is_duration(type):
            return np.timedelta64(scalar.value, type.unit)
        if kinds.is_struct(type):
            return {field.name: _value(scalar[i]) for i, field in enumerate(type)}
        if kinds.is_map(type):
            entries = scalar.values
            return [
                (_value(key), _value(item))
                for key, item in zip(entries.field(0), entries.field(1), strict=True)
            ]
        if hasattr(scalar, "values"):
            return [_value(element) for element in scalar.values]
        raise

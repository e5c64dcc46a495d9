"""Rows as values of Python, also where Python has none: moments and durations outside its range are
those of numpy.

``datetime`` ends at the years 1 and 9999, ``timedelta`` at a billion days; Arrow and Hudi's files
go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_UNFIT = (ValueError, OverflowError, pa.ArrowException)
"""What pyarrow raises where a value does not fit, as in years that Python lacks."""


def rows_of(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts, as ``to_pylist`` does.

    A date or timestamp outside the years 1 to 9999 is a ``numpy.datetime64`` (in UTC where the
    column has a zone), a duration that ``timedelta`` cannot hold a ``numpy.timedelta64``; inside
    structs, lists and maps, too.

    >>> far = pa.array([0, 253402300800], pa.timestamp("s"))
    >>> rows_of(pa.table({"at": far}))
    [{'at': datetime.datetime(1970, 1, 1, 0, 0)}, {'at': np.datetime64('10000-01-01T00:00:00')}]
    """
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except _UNFIT:
        columns = [_values(rows.column(i)) for i in range(rows.num_columns)]
        return [
            dict(zip(rows.schema.names, values, strict=True))
            for values in zip(*columns, strict=True)
        ]
    return found


def _values(column: pa.Array | pa.ChunkedArray) -> Sequence[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except _UNFIT:
        return [_value(scalar) for scalar in column]
    return found


def _value(scalar: pa.Scalar) -> Any:
    """Return a value of Python or, of what Python lacks, of numpy.  Raises what pyarrow does for
    values that are none, such as text that is not UTF-8.
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
            return [_value(one) for one in scalar.values]
        raise

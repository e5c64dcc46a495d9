"""Conversion of users' values (Python, NumPy, pandas, Arrow) to the plain values of predicates.

They are the parameters of SQL text (``"id = :id"``) and the values of list filters. A value never
becomes part of the text, so it cannot inject SQL.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from mdt.errors import Invalid
from mdt.limits import LITERAL_DIGITS_MAX, LITERALS_MAX

_PLAIN = frozenset((type(None), bool, int, float, str, bytes, date, datetime))
_NAME = re.compile(r"\w+")
_INTEGER_BITS_MAX = int(LITERAL_DIGITS_MAX / math.log10(2))
_TYPES_HINT = (
    "use None, bool, int, float, Decimal, str, bytes, UUID, date, datetime, or their equivalents in"
    " NumPy, pandas and Arrow"
)


class Parameters:
    """The values of ``:name`` in an SQL text, and the record of which were used.

    hint: The advice if the text does not allow parameters.
    """

    def __init__(self, params: Mapping[str, object] | None, *, hint: str = "") -> None:
        self._hint = hint
        if params is not None and not isinstance(params, Mapping):
            raise Invalid(
                f"params must be a dict, not a {_kind(params)}",
                hint="pass a dict, e.g. params={'id': 'x'} for \"id = :id\"",
            )
        self._values = {} if params is None else dict(params)
        wrong = [name for name in self._values if not isinstance(name, str)]
        if wrong:
            raise Invalid(
                f"the name of a parameter must be text, not a {_kind(wrong[0])}",
                hint="write names as text, without the colon",
            )
        wrong = [name for name in self._values if not _NAME.fullmatch(name)]
        if wrong:
            raise Invalid(
                f"{wrong[0]!a} cannot be the name of a parameter",
                hint="use letters, digits and underscores, as in :id_2",
            )
        self._unused = set(self._values)

    def value(self, name: str) -> object:
        """Return a value, as a tuple if it is a list. Raises Invalid for an unknown name.

        >>> Parameters({"ids": {"a"}, "since": np.int64(5)}).value("ids")
        ('a',)
        >>> Parameters({"since": 5}).value("sinse")
        Traceback (most recent call last):
            ...
        mdt.errors.Invalid: the parameter :sinse has no value
          hint: did you mean :since?
        """
        if name not in self._values:
            matches = difflib.get_close_matches(name, self._values, n=1)
            hint = (
                f"did you mean :{matches[0]}?"
                if matches
                else self._hint or f"pass params={{{name!r}: …}}"
            )
            raise Invalid(f"the parameter :{name} has no value", hint=hint)
        self._unused.discard(name)
        raw = self._values[name]
        try:
            if is_list(raw):
                return tuple(native_values(raw))
            return native(raw)
        except ValueError as error:
            raise Invalid(
                f"the parameter :{name} cannot be used: {error}", hint=_TYPES_HINT
            ) from None

    def require_all_used(self) -> None:
        """Raise Invalid if the text does not use a parameter, which indicates a misspelled name."""
        if self._unused:
            names = ", ".join(f":{name}" for name in sorted(self._unused))
            raise Invalid(
                f"the filter does not use {names}",
                hint="write parameters as :name, outside of quotes",
            )


def is_list(value: object) -> bool:
    """Return True if ``value`` is a list of values, for IN."""
    if isinstance(value, (str, bytes, bytearray, memoryview, np.generic)):
        return False
    if isinstance(value, (list, tuple, AbstractSet)):
        return True
    return (
        getattr(value, "ndim", 0) != 0
        or isinstance(value, (pa.Array, pa.ChunkedArray))
        or _is_series(value)
    )


def native_values(value: Any) -> list[Any]:
    """Return the plain values of a list, set or one-dimensional array. Raises ValueError for values
    of unsupported types.
    """
    source = _arrow(value) if _is_series(value) else value
    items: Collection[Any]
    if isinstance(source, np.ndarray):
        items = _numpy_items(source)
    elif isinstance(source, (pa.Array, pa.ChunkedArray)):
        items = _from_arrow(source, "to_pylist")
    else:
        items = source
    if len(items) > LITERALS_MAX:
        raise ValueError(f"{len(items)} values are above the limit of {LITERALS_MAX}; use a join")
    classes = set(map(type, items))
    if classes == {str} and "".join(items).isascii():
        return list(items)
    if classes == {int} and max(max(items), -min(items)).bit_length() <= _INTEGER_BITS_MAX:
        return list(items)
    return [native(item) for item in items]


def native(value: Any) -> Any:
    """Return a value as None, bool, int, float, Decimal, str, bytes, date, datetime or UUID,
    without changing its meaning.

    NaT and NA become None, and NaN stays a float. Raises ValueError for other types, and for digits
    below the microsecond.

    >>> native(np.float32(0.5)), native(pa.scalar("a")), native(np.datetime64("2024-02-29"))
    (0.5, 'a', datetime.date(2024, 2, 29))
    """
    kind = value.__class__
    if kind in _PLAIN:
        return _checked(value)
    if isinstance(value, Decimal):
        if value.is_nan():
            return math.nan
        return value
    if isinstance(value, UUID):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return native(value[()])
    if isinstance(value, np.generic):
        return _numpy_value(value)
    if isinstance(value, pa.Scalar):
        return native(_from_arrow(value, "as_py"))
    if kind.__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, datetime):
        return _datetime(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return _checked(plain(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    raise ValueError(f"a value of type {_kind(value)} cannot be compared with a column")


def _checked(value: Any) -> Any:
    if value.__class__ is int and value.bit_length() > _INTEGER_BITS_MAX:
        raise ValueError(
            f"the integer has {value.bit_length()} bits, and the limit is {LITERAL_DIGITS_MAX}"
            " digits"
        )
    if value.__class__ is str and not value.isascii():
        _require_text(value)
    return value


def _require_text(value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{value[error.start]!a} at character {error.start} is a lone surrogate"
        ) from None


def _datetime(value: datetime) -> datetime:
    """Convert a subclass of datetime, such as pandas' Timestamp, to datetime."""
    if getattr(value, "nanosecond", 0):
        raise ValueError(f"{value} has digits below the microsecond")
    return datetime.combine(value.date(), value.timetz())


def _numpy_value(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return _numpy_items(value.reshape(1))[0]
    if isinstance(value, (np.timedelta64, np.complexfloating, np.void, np.object_)):
        raise ValueError(f"a value of type {_kind(value)} cannot be compared with a column")  # noqa: TRY004
    plain = value.item()
    if isinstance(plain, np.generic):  # a long double
        if float(plain) != plain and not np.isnan(plain):
            raise ValueError("the long double has more digits than a float; convert it to float")
        plain = float(plain)
    return native(plain)


def _numpy_items(values: np.ndarray[Any, Any]) -> list[Any]:
    if values.ndim != 1:
        raise ValueError(f"an array of {values.ndim} dimensions is not a list of values")
    if values.dtype.kind not in "biufSUMO":
        raise ValueError(f"an array of {values.dtype} cannot be compared with a column")
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        return list(values)
    if values.dtype.kind != "M":
        return list(values.tolist())
    if np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "D"):
        return [_in_calendar(day) for day in values.astype("M8[D]").tolist()]
    micros = values.astype("M8[us]")
    if not np.array_equal(micros.astype(values.dtype), values, equal_nan=True):
        raise ValueError("a datetime64 has digits below the microsecond, or is out of range")
    return [_in_calendar(moment) for moment in micros.tolist()]


def _in_calendar(value: Any) -> Any:
    if isinstance(value, int):  # NumPy's result for years outside of Python's range
        raise ValueError("a datetime64 is outside the years 1 to 9999")  # noqa: TRY004 - its value is wrong
    return value


def _from_arrow(data: Any, method: str) -> Any:
    """Call ``method`` of an Arrow scalar or array. Nanoseconds are converted first, because Python
    lacks them.
    """
    type = data.type
    try:
        if pa.types.is_timestamp(type) and type.unit == "ns":
            data = data.cast(pa.timestamp("us", type.tz))
        return getattr(data, method)()
    except (pa.ArrowException, ValueError, OverflowError, LookupError) as error:
        raise ValueError(f"a value of Arrow type {type} is out of range: {error}") from None


def _is_series(value: object) -> bool:
    """Return True for a column of another library, such as a polars Series."""
    return not isinstance(value, (pa.Array, pa.ChunkedArray, pa.Table, np.ndarray)) and any(
        hasattr(value, name)
        for name in ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_array__", "__array__")
    )


def _arrow(value: Any) -> Any:
    if not any(
        hasattr(value, name)
        for name in ("__arrow_c_stream__", "__arrow_c_array__", "__arrow_array__")
    ):
        return np.asarray(value)
    try:
        if hasattr(value, "__arrow_c_stream__"):
            return pa.chunked_array(value)
        return pa.array(value, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"a {_kind(value)} is not a list of values: {error}") from None


def _kind(value: object) -> str:
    kind = value.__class__
    if kind.__module__ == "builtins":
        return kind.__name__
    return f"{kind.__module__}.{kind.__name__}"

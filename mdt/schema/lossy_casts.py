"""Detection of Python values that pyarrow would truncate, e.g. 1.5 converted to an integer.

``pa.array`` refuses values of another kind. But it silently drops fractions of numbers, times of
dates, and unknown fields of dicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.schema.nested import is_list

_Test = Callable[[Any], bool]
_INFINITE_FROM = {16: 65520.0, 32: float((2 - 2**-24) * 2.0**127)}
"""Bits of a float type -> the smallest number that is rounded to infinity."""
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


TRUNCATED = "the conversion would change it"
"""Reason given for a truncated value."""


def exact_array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Convert Python values to an array.

    Raises ValueError, TypeError or OverflowError if a value has the wrong type or would be
    truncated.

    >>> exact_array([2.0], pa.int64()).to_pylist()
    [2]
    """
    array = pa.array(values, type)
    cut = first_truncated(values, type)
    if cut is not None:
        raise ValueError(TRUNCATED)
    return array


def first_truncated(values: Iterable[Any], type: pa.DataType) -> int | None:
    """Return the position of the first value that an array of ``type`` would truncate, or None.
    O(n).

    Values of another kind are ignored, because pyarrow refuses them.

    >>> (
    ...     first_truncated([1, 2.0, 2.5], pa.int64()),
    ...     first_truncated([{"a": 1}, {"b": 2}], pa.struct({"a": pa.int8()})),
    ... )
    (2, 1)
    """
    test = _test_of(type)
    if test is None:
        return None
    if not isinstance(values, Sequence):
        values = list(values)
    if set(map(_class, values)) <= _exact_classes(type):
        return None
    return next(
        (row for row, value in enumerate(values) if value is not None and test(value)), None
    )


_class: Callable[[Any], type] = type
_NO_CLASS: frozenset[type] = frozenset([_class(None)])
_WHOLE_NUMBERS = _NO_CLASS | {int}
_WHOLE_DOUBLES = _NO_CLASS | {int, float}


def _exact_classes(type: pa.DataType) -> frozenset[type]:
    """Return classes whose values are never truncated when converted to ``type``."""
    if pa.types.is_integer(type):
        return _WHOLE_NUMBERS
    if pa.types.is_float64(type):
        return _WHOLE_DOUBLES
    return _NO_CLASS


def _test_of(type: pa.DataType) -> _Test | None:
    """Return a predicate that is true for values this type would truncate.

    Returns None if the type never truncates. The predicate is not called for None.
    """
    kinds = pa.types
    if is_list(type) and (inner := _test_of(type.value_type)) is not None:
        return lambda values: _any(inner, values)
    if kinds.is_map(type) and (item := _test_of(type.item_type)) is not None:
        return lambda pairs: _any(item, _items_of(pairs))
    if kinds.is_struct(type):
        return _struct_test(type)
    if kinds.is_integer(type):
        return _is_no_integer
    if kinds.is_floating(type):
        return _float_test(type)
    if kinds.is_temporal(type):
        return _time_test(type)
    return None


def _any(test: _Test, values: Any) -> bool:
    if _class(values) is not list and not isinstance(values, Iterable):
        return False
    for value in values:  # a plain loop: a generator expression would double the cost
        if value is not None and test(value):
            return True
    return False


def _items_of(pairs: Any) -> list[Any]:
    if isinstance(pairs, Mapping):
        return list(pairs.values())
    if not isinstance(pairs, Iterable):
        return []
    return [pair[1] for pair in pairs if isinstance(pair, Sequence) and len(pair) > 1]


def _struct_test(type: pa.DataType) -> _Test:
    names = [field.name for field in type]
    allowed = frozenset(names)
    tests = {field.name: test for field in type if (test := _test_of(field.type)) is not None}

    def is_cut(value: Any) -> bool:
        if _class(value) is not dict and not isinstance(value, Mapping):
            try:  # a tuple of values, or a list of (name, value) pairs
                if isinstance(value, tuple):
                    value = zip(names, value, strict=False)
                value = dict(value)
            except (TypeError, ValueError):
                return False
        if not allowed.issuperset(value):
            return True
        for name, test in tests.items():
            item = value.get(name)
            if item is not None and test(item):
                return True
        return False

    return is_cut


def _is_no_integer(value: Any) -> bool:
    return _class(value) is not int and (isinstance(value, bool | np.bool_) or _has_fraction(value))


def _has_fraction(value: Any) -> bool:
    if not isinstance(value, float | np.floating | Decimal | Fraction):
        return False
    try:
        return bool(int(value) != value)
    except (ValueError, OverflowError):  # NaN and infinities
        return True


def _float_test(type: pa.DataType) -> _Test:
    beyond = _INFINITE_FROM.get(type.bit_width, math.inf)

    def is_cut(value: Any) -> bool:
        if isinstance(value, float | np.floating):
            return beyond <= abs(float(value)) < math.inf
        return isinstance(value, bool | np.bool_)

    return is_cut


def _time_test(type: pa.DataType) -> _Test:
    """Return the test for dates, times, durations and timestamps, which may be given as numbers."""
    if pa.types.is_date(type):
        return lambda value: (
            _has_fraction(value) or (isinstance(value, datetime) and not _is_midnight(value))
        )
    unit = type.unit
    if pa.types.is_time(type):
        return lambda value: (
            _has_fraction(value)
            or (
                isinstance(value, time)
                and (value.tzinfo is not None or value.microsecond % _UNIT_US[unit] != 0)
            )
        )
    if pa.types.is_duration(type):
        return lambda value: (
            _has_fraction(value)
            or (isinstance(value, timedelta) and value.microseconds % _UNIT_US[unit] != 0)
            or (unit != "ns" and getattr(value, "nanoseconds", 0) != 0)  # of pandas
        )
    has_zone = type.tz is not None
    return lambda value: (
        _has_fraction(value)
        or (
            isinstance(value, datetime)
            and ((value.tzinfo is not None) != has_zone or value.microsecond % _UNIT_US[unit] != 0)
        )
        or (unit != "ns" and getattr(value, "nanosecond", 0) != 0)  # of pandas
    )


def zone_advice(type: pa.TimestampType) -> str:
    """Return advice for a time without a time zone if ``type`` has one, or the reverse.

    >>> zone_advice(pa.timestamp("us", "UTC"))
    'add a time zone, e.g. tzinfo=datetime.timezone.utc'
    """
    if type.tz is None:
        return "remove the time zone, e.g. time.replace(tzinfo=None)"
    return "add a time zone, e.g. tzinfo=datetime.timezone.utc"


def zone_hint(value: object, type: pa.DataType) -> str:
    """Return a hint if ``value`` is a datetime that differs from ``type`` in having a time zone,
    else "".

    >>> zone_hint(datetime(2024, 1, 31), pa.timestamp("us"))
    ''
    """
    if not isinstance(value, datetime) or not pa.types.is_timestamp(type):
        return ""
    if (value.tzinfo is None) == (type.tz is None):
        return ""
    return zone_advice(type)


def _is_midnight(value: datetime) -> bool:
    """Return True if a datetime has no time of day. NaT of pandas, a datetime, returns False."""
    return value == value and value.tzinfo is None and value.time() == time()  # noqa: PLR0124

"""SQL dates, timestamps and intervals with Spark's semantics. The time zone is UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid
from mdt.filters import literals
from mdt.filters.arithmetic import Datum, is_text

TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of all timestamps here."""
_MONTHS_MAX = 12 * 290_000
"""The range of 64-bit timestamps on both sides of 1970."""
_MONTHS = {"year": 12, "month": 1}
_MICROSECONDS = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_TRUNCATED = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}
"""Maps Spark's names of units to Arrow's."""
_NUMBER = re.compile(r"([+-]?)(\d{1,18})(?:\.(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of months or of microseconds. Spark does not mix year and day intervals.

    is_days: True if a date plus the interval is a date.
    """

    months: int = 0
    microseconds: int = 0
    is_days: bool = True

    def negated(self) -> Interval:
        """Return the negative interval."""
        return Interval(-self.months, -self.microseconds, self.is_days)


def interval(parts: list[tuple[str, str]]) -> Interval:
    """Return the interval of (number, unit) pairs. Raises ValueError for other pairs.

    >>> interval([("1", "day"), ("2", "hours")])
    Interval(months=0, microseconds=93600000000, is_days=False)
    """
    months = microseconds = 0
    units = [unit.lower().removesuffix("s") for _, unit in parts]
    for (number, unit_name), unit in zip(parts, units, strict=True):
        match = _NUMBER.fullmatch(number.strip())
        if match is None or (match[3] and unit != "second"):
            raise ValueError(f"{number!r} is not a number of {unit_name}")
        count = int(match[1] + match[2])
        if unit in _MONTHS:
            months += count * _MONTHS[unit]
        elif unit in _MICROSECONDS:
            microseconds += count * _MICROSECONDS[unit]
            microseconds += int(match[1] + (match[3] or "0").ljust(6, "0"))
        else:
            raise ValueError(f"{unit_name!r} is not a unit of time")
    if len({unit in _MONTHS for unit in units}) > 1:
        raise ValueError("an interval cannot combine years or months with days or times")
    if max(abs(months), abs(microseconds)) >= 1 << 62:
        raise ValueError("the interval is too long")
    return Interval(months, microseconds, set(units) <= {"year", "month", "week", "day"})


def add_interval(moment: Datum, by: Interval) -> Datum:
    """Add an interval to dates or timestamps. Adding months keeps the day or uses the last day of
    the month.

    >>> from datetime import date
    >>> add_interval(pa.scalar(date(2024, 1, 31)), Interval(months=1)).as_py()
    datetime.date(2024, 2, 29)
    """
    if pa.types.is_null(moment.type):
        return moment
    if pa.types.is_date(moment.type) and by.is_days:
        days = by.microseconds // _MICROSECONDS["day"]
        if not by.months:
            return date_add(moment, pa.scalar(days, pa.int64()))
        return _in_numpy(moment.cast(pa.date32()), lambda dates: _months_later(dates, by.months))
    micros = moments(moment)
    if by.months:
        return _in_numpy(micros, lambda times: _months_later(times, by.months))
    return pc.add_checked(micros, pa.scalar(by.microseconds, pa.duration("us")))


def _in_numpy(datum: Datum, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Datum:
    """Apply a NumPy function to dates or timestamps. Null stays null."""
    if isinstance(datum, pa.Scalar):
        return _in_numpy(pa.array([datum.as_py()], datum.type), function)[0]
    if isinstance(datum, pa.ChunkedArray):
        return pa.chunked_array([_in_numpy(chunk, function) for chunk in datum.chunks], datum.type)
    result = function(datum.to_numpy(zero_copy_only=False))
    type = pa.timestamp("us")
    if pa.types.is_date(datum.type):
        type = pa.date32()
    return pa.array(result, type).cast(datum.type)


def _months_later(moments: npt.NDArray[Any], months: int) -> npt.NDArray[Any]:
    """Add months to dates or timestamps [n]. The day is limited to the last day of the month."""
    month = moments.astype("M8[M]")
    valid = month[~np.isnat(month)].astype(np.int64)
    if len(valid) and max(abs(int(valid.min())), abs(int(valid.max()))) + abs(months) > _MONTHS_MAX:
        raise Invalid("a date plus an interval is out of range")
    later = month + np.timedelta64(months, "M")
    first = later.astype("M8[D]")
    last = (later + np.timedelta64(1, "M")).astype("M8[D]") - first - np.timedelta64(1, "D")
    day = moments.astype("M8[D]")
    shifted_days = first + np.minimum(day - month.astype("M8[D]"), last)
    if moments.dtype == np.dtype("M8[D]"):
        return shifted_days
    return shifted_days.astype(moments.dtype) + (moments - day)


def moments(datum: Datum) -> Datum:
    """Return dates, or timestamps of any unit, as UTC timestamps. Raises Invalid for other
    types.
    """
    if pa.types.is_timestamp(datum.type):
        if datum.type.tz is None:
            return pc.assume_timezone(datum.cast(pa.timestamp("us"), safe=False), "UTC")
        return datum.cast(TIMESTAMP, safe=False)
    if pa.types.is_date(datum.type):
        return pc.assume_timezone(datum.cast(pa.timestamp("us")), "UTC")
    if pa.types.is_null(datum.type):
        return datum.cast(TIMESTAMP)
    raise Invalid(
        f"{datum.type} is not a date or timestamp", hint="parse text with to_timestamp(x)"
    )


def dates(datum: Datum) -> Datum:
    """Return dates, or the dates of timestamps, as date32. Raises Invalid for other types."""
    if pa.types.is_date(datum.type) or pa.types.is_null(datum.type):
        return datum.cast(pa.date32())
    return pc.floor_temporal(moments(datum), unit="day").cast(pa.date32())


def part(unit: str) -> Callable[[Datum], Datum]:
    """Return the SQL function for a part of a date or timestamp, e.g. its year, as int32."""
    kernel = getattr(pc, unit)
    return lambda datum: pc.cast(kernel(moments(datum)), pa.int32())


def date_add(date: Datum, days: Datum) -> Datum:
    """Add days to dates."""
    _require_whole("date_add", days)
    since_1970 = pc.cast(pc.cast(dates(date), pa.int32()), pa.int64())
    number = pc.add_checked(since_1970, pc.cast(days, pa.int64()))
    return pc.cast(pc.cast(number, pa.int32()), pa.date32())


def date_sub(date: Datum, days: Datum) -> Datum:
    """Subtract days from dates."""
    _require_whole("date_sub", days)
    return date_add(date, pc.negate_checked(pc.cast(days, pa.int64())))


def _require_whole(name: str, number: Datum) -> None:
    if not (pa.types.is_integer(number.type) or pa.types.is_null(number.type)):
        raise Invalid(f"{name} takes whole numbers of days, not {number.type}")


def date_trunc(unit: Datum, moment: Datum) -> Datum:
    """Truncate timestamps to a unit that is the same for all rows. Weeks begin on Monday."""
    name = unit.as_py() if isinstance(unit, pa.Scalar) else None
    arrow_unit = _TRUNCATED.get(str(name).lower())
    if arrow_unit is None:
        raise Invalid(
            f"date_trunc does not support the unit {name!r}", hint=f"use {', '.join(_TRUNCATED)}"
        )
    return pc.floor_temporal(moments(moment), unit=arrow_unit, week_starts_monday=True)


def to_date(datum: Datum) -> Datum:
    """Parse texts such as 2024-02-29 as dates, or truncate timestamps to dates."""
    if is_text(datum.type):
        return _read(datum, "date", pa.date32())
    return dates(datum)


def to_timestamp(datum: Datum) -> Datum:
    """Parse texts such as ``2024-02-29 12:00:00`` as timestamps, or convert dates."""
    if is_text(datum.type):
        return _read(datum, "timestamp", TIMESTAMP)
    return moments(datum)


def _read(texts: Datum, target: str, type: pa.DataType) -> Datum:
    """Parse texts as Spark's cast does, each distinct text once."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(_value(texts.as_py(), target), type)
    coded = texts.cast(pa.string()).dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks()
    values = [_value(text, target) for text in coded.dictionary.to_pylist()]
    return pa.array(values, type).take(coded.indices)


def _value(text: str | None, target: str) -> Any:
    try:
        return literals.cast(text, target)
    except ValueError as error:
        raise Invalid(str(error), hint="exclude such rows with case when … then … end") from None

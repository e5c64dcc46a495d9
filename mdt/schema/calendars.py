"""Days of the calendar that Spark used up to 2.4, and uses on demand: Julian before 1582-10-15, and
the times of old zones.

Files with such days say so in their footers, by which Spark makes days of our calendar of them.
pyarrow does not look there, but hands the footer's words on as metadata of the schema.  Files of
our tables have days of one calendar, and say that; so this is about data that somebody brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid

_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_ONE_CALENDAR, _ONE_CALENDAR_96 = b"3.0.0", b"3.1.0"
"""The versions of Spark since which dates and times, and those of 96 bits, are in one calendar;
compared as texts, as Spark compares them.
"""
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1)
"""From these on both calendars say the same."""


def _is_old(told: Mapping[bytes, bytes] | None, *, has_96_bits: bool) -> bool:
    """Return whether a footer, or a schema, says that days and times are those of the old calendar.

    >>> (
    ...     _is_old({b"org.apache.spark.version": b"2.4.8"}, has_96_bits=False),
    ...     _is_old(None, has_96_bits=True),
    ... )
    (True, False)
    """
    if not told:
        return False
    first = _ONE_CALENDAR
    if has_96_bits:
        first = _ONE_CALENDAR_96
    return any(key in told for key in _LEGACY) or told.get(_VERSION, first) < first


def require_one_calendar(
    data: pa.Table | pa.RecordBatch, told: Mapping[bytes, bytes] | None = None
) -> None:
    """Raise Invalid for data with days or times that the old calendar counts otherwise; ``told``:
    what the file of the data says, None: what their schema does.
    """
    if told is None:
        told = data.schema.metadata
    if not told:
        return
    for field, column in zip(data.schema, data.columns, strict=True):
        if _is_old(told, has_96_bits=field.type == pa.timestamp("ns")) and _has_old(column):
            raise Invalid(
                f"column {field.name!r} has days or times of the Julian calendar, which Spark wrote"
                " before version 3 or in the mode LEGACY",
                hint=(
                    "read the file with Spark and write that DataFrame; if its values are right as"
                    " they are, data.replace_schema_metadata()"
                ),
            )


def _has_old(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether some value may mean another day in the old calendar; inside of other values
    none is looked at, and each may.
    """
    kind = column.type
    if pa.types.is_nested(kind):
        return _holds_days(kind)
    if pa.types.is_timestamp(kind):
        plain, first = column.cast(pa.timestamp(kind.unit)), pa.scalar(_FIRST_TIME)
    elif pa.types.is_date(kind):
        plain, first = column, pa.scalar(_FIRST_DAY)
    else:
        return False
    return bool(pc.any(pc.less(plain, first.cast(plain.type))).as_py())


def _holds_days(kind: pa.DataType) -> bool:
    inside = [kind.field(number).type for number in range(kind.num_fields)]
    return any(
        pa.types.is_date(one) or pa.types.is_timestamp(one) or _holds_days(one) for one in inside
    )

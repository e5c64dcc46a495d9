"""Partition paths made from a time: what Hudi's ``TimestampBasedKeyGenerator`` makes of one
partition column.

The column is a timestamp, a date, or whole numbers of a unit since 1970; the path is its text in a
pattern of Java and a time zone, such as ``yyyy/MM/dd``, whose slashes are levels of directories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid

UNITS = {"s": "UNIX_TIMESTAMP", "ms": "EPOCHMILLISECONDS", "us": "EPOCHMICROSECONDS"}
"""Units of whole numbers, with Hudi's words for ``hoodie.keygen.timebased.timestamp.type``."""
_TOKENS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_FINEST = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute", "ss": "second"}
_PATTERN = re.compile("(yyyy|MM|dd|HH|mm|ss)|[-_./]")


@dataclass(frozen=True, slots=True)
class TimePath:
    """``pattern``: of Java: yyyy, MM, dd, HH, mm, ss, and ``-_./`` between them.  ``unit``: of
    numbers, one of UNITS.  ``zone``: of the text.
    """

    pattern: str
    unit: str
    zone: str

    def check(self, column: pa.Field) -> None:
        """Raise Invalid if no path can be made of ``column``, or not one for each moment."""
        found = _PATTERN.sub("", self.pattern)
        if (
            found
            or "yyyy" not in self.pattern
            or {"", ".", ".."}.intersection(self.pattern.split("/"))
        ):
            raise Invalid(
                f"{self.pattern!r} makes no partition path of a time",
                hint="write it like 'yyyy-MM-dd' or 'yyyy/MM/dd/HH'",
            )
        self.texts(pa.array([], column.type))
        self.texts(pa.array([0], pa.int64()))  # only a value shows whether there is such a zone

    def texts(self, column: pa.Array) -> pa.DictionaryArray:
        """Return the path of each value -> dictionary of string[n]; null for null.  Raises Invalid
        for a type that is no time.
        """
        kinds = pa.types
        if kinds.is_integer(column.type):
            column = column.cast(pa.int64()).cast(pa.timestamp(self.unit))
        elif kinds.is_date32(column.type):
            column = column.cast(pa.timestamp("s"))
        elif not kinds.is_timestamp(column.type):
            raise Invalid(
                f"a column of type {column.type} gives no partition path of a time",
                hint="partition by a timestamp, a date, or whole numbers since 1970",
            )
        if column.type.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond").cast(
                pa.timestamp("us", column.type.tz)
            )
        try:
            moments = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(
                pa.timestamp(column.type.unit, self.zone)
            )
            # Digits of the clock, which some moments share: an hour that comes twice, a day that
            # has no midnight.
            begins = pc.floor_temporal(
                pc.local_timestamp(moments), unit=self._finest()
            ).dictionary_encode()
        except pa.ArrowException as error:
            raise Invalid(
                f"no partition path of a time in {self.zone!r}: {error}",
                hint="name a zone such as UTC",
            ) from error
        seconds = begins.dictionary.cast(pa.timestamp("s"))
        texts = pc.strftime(seconds, _PATTERN.sub(_as_strftime, self.pattern))
        return pa.DictionaryArray.from_arrays(begins.indices, texts.cast(pa.string()))

    def _finest(self) -> str:
        return [unit for token, unit in _FINEST.items() if token in self.pattern][-1]


def _as_strftime(match: re.Match[str]) -> str:
    return _TOKENS.get(match[0], match[0])

"""Time-based partition paths, as Hudi's ``TimestampBasedKeyGenerator`` creates them.

The partition column is a timestamp, a date, or an integer count of a time unit since 1970. The path
is the time formatted with a Java pattern in a time zone. Slashes in the pattern create directory
levels, e.g. ``yyyy/MM/dd``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid

UNITS = {"s": "UNIX_TIMESTAMP", "ms": "EPOCHMILLISECONDS", "us": "EPOCHMICROSECONDS"}
"""Integer time units and Hudi's values of ``hoodie.keygen.timebased.timestamp.type``."""
_TOKENS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_FINEST = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute", "ss": "second"}
_PATTERN = re.compile("(yyyy|MM|dd|HH|mm|ss)|[-_./]")


@dataclass(frozen=True, slots=True)
class TimePath:
    """A pattern for partition paths.

    Attributes:
        pattern: Java pattern of yyyy, MM, dd, HH, mm and ss, separated by any of ``-_./``.
        unit: Unit of integer columns, one of UNITS.
        zone: Time zone of the formatted text.
        null_is_first: A null counts as one unit since 1970, as in Hudi. Otherwise it has Hive's
            path of a null.

    >>> TimePath("yyyy/MM", "ms", "UTC").texts(pa.array([0])).to_pylist()
    ['1970/01']
    """

    pattern: str
    unit: str
    zone: str
    null_is_first: bool = False

    def check(self, column: pa.Field) -> None:
        """Raise Invalid if the pattern, the time zone or the type of ``column`` is not usable."""
        remainder = _PATTERN.sub("", self.pattern)
        if (
            remainder
            or "yyyy" not in self.pattern
            or {"", ".", ".."}.intersection(self.pattern.split("/"))
        ):
            raise Invalid(
                f"{self.pattern!r} is not a pattern for time-based partition paths",
                hint="use a pattern such as 'yyyy-MM-dd' or 'yyyy/MM/dd/HH'",
            )
        self.texts(pa.array([], column.type))
        self.texts(pa.array([0], pa.int64()))  # an empty array does not reveal an unknown time zone

    def texts(self, column: pa.Array) -> pa.DictionaryArray:
        """Return the partition path of each of n values (dictionary of string[n]).

        It is null for null, unless :attr:`null_is_first`.

        Raises Invalid if the type is not a time.
        """
        kinds = pa.types
        if kinds.is_integer(column.type):
            if self.null_is_first:
                column = pc.fill_null(column, 1)
            column = column.cast(pa.int64()).cast(pa.timestamp(self.unit))
        elif kinds.is_date32(column.type):
            column = column.cast(pa.timestamp("s"))
        elif not kinds.is_timestamp(column.type):
            raise Invalid(
                f"time-based partition paths cannot be made of a column of type {column.type}",
                hint="partition by a timestamp, a date, or integers since 1970",
            )
        if column.type.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond").cast(
                pa.timestamp("us", column.type.tz)
            )
        try:
            moments = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(
                pa.timestamp(column.type.unit, self.zone)
            )
            # Group by local clock time, not by instant: local times repeat or are skipped when
            # clocks change.
            *_, finest = (unit for token, unit in _FINEST.items() if token in self.pattern)
            local = pc.local_timestamp(moments)
            begins = pc.floor_temporal(local, unit=finest).dictionary_encode()
        except pa.ArrowException as error:
            raise Invalid(
                f"partition paths cannot be made in the time zone {self.zone!r}: {error}",
                hint="use a time zone such as 'UTC'",
            ) from error
        seconds = begins.dictionary.cast(pa.timestamp("s"))
        texts = pc.strftime(seconds, _PATTERN.sub(_as_strftime, self.pattern))
        return pa.DictionaryArray.from_arrays(begins.indices, texts.cast(pa.string()))


def _as_strftime(match: re.Match[str]) -> str:
    return _TOKENS.get(match[0], match[0])

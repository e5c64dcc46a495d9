"""Time-based partition paths, as Hudi's ``TimestampBasedKeyGenerator`` creates them.

The partition column is a timestamp, a date, an integer count of a time unit since 1970, or a text
with a time. The path is the time formatted with a Java pattern in a time zone. Slashes in the
pattern create directory levels, e.g. ``yyyy/MM/dd``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid

UNITS = {"s": "UNIX_TIMESTAMP", "ms": "EPOCHMILLISECONDS", "us": "EPOCHMICROSECONDS"}
"""Integer time units and Hudi's values of ``hoodie.keygen.timebased.timestamp.type``."""
TEXT = "DATE_STRING"
"""Hudi's value for texts."""
_TOKENS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_FINEST = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour", "mm": "minute", "ss": "second"}
_PATTERN = re.compile("(yyyy|MM|dd|HH|mm|ss)|[-_./]")
_INPUT = re.compile(r"(yyyy|MM|dd|HH|mm|ss|SSS|ZZ?)|'([^']+)'|([-_./: ])")
_DIGITS = {"yyyy": "", "MM": "01", "dd": "01", "HH": "00", "mm": "00", "ss": "00"}
"""Fields of a time, and their digits where a text lacks them."""
_REPEATED = re.compile(r"(MM|dd|HH|mm|ss|yyyy)\1")
"""Longer fields have other texts in Java: MMMM is the name of a month."""
_HOURS, _MINUTES = "[+-](?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_OFFSETS = {"Z": f"{_HOURS}{_MINUTES}|Z", "ZZ": f"{_HOURS}:{_MINUTES}|Z"}
"""Regular expressions of offsets from UTC."""


@dataclass(frozen=True, slots=True)
class TimePath:
    """A pattern for partition paths.

    Attributes:
        pattern: Java pattern of yyyy, MM, dd, HH, mm and ss, separated by any of ``-_./``.
        unit: Unit of integer columns, one of UNITS.
        zone: Time zone of the formatted text.
        null_is_first: A null counts as the first moment of 1970, as in Hudi. Otherwise it has
            Hive's path of a null.
        input: Java pattern of the texts in a text column, of yyyy, MM, dd, HH, mm, ss, SSS, Z
            (an offset such as +0100), ZZ (+01:00), ``-_./:``, spaces, and other text in quotes.
            Each has its full number of digits. Texts without an offset are times in ``zone``.
            With an empty ``zone``, the path has the time of the text, whatever its offset.

    >>> TimePath("yyyy/MM", "ms", "UTC").texts(pa.array([0])).to_pylist()
    ['1970/01']
    """

    pattern: str
    unit: str
    zone: str
    null_is_first: bool = False
    input: str = ""

    def check(self, column: pa.Field) -> None:
        """Raise Invalid if a pattern, the time zone or the type of ``column`` is not usable."""
        self.check_patterns(column)
        if repeated := _REPEATED.search(self.pattern):
            raise Invalid(
                f"{self.pattern!r} is not a pattern for time-based partition paths: it has"
                f" {repeated[0]!r}",
                hint="use each field once between separators, such as in 'yyyy-MM-dd'",
            )
        if not (self.input or self.zone):
            raise Invalid("partition paths of times need a time zone", hint="such as 'UTC'")
        self.texts(pa.array([], column.type))
        self._local(pa.array([0], pa.timestamp("s", "UTC")))  # raises for an unknown time zone

    def check_patterns(self, column: pa.Field) -> None:
        """Raise Invalid if a pattern is not usable for ``column``. Needs no data of time zones."""
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
        if not self.input:
            return
        names = [match[1] for match in _INPUT.finditer(self.input) if match[1]]
        names = ["Z" if name in _OFFSETS else name for name in names]
        is_known = not _INPUT.sub("", self.input)
        if not is_known or len(set(names)) < len(names) or "yyyy" not in names:
            raise Invalid(
                f"{self.input!r} is not a pattern of times in texts",
                hint="use one such as 'yyyy-MM-dd' or \"yyyy-MM-dd'T'HH:mm:ss.SSSZ\"",
            )
        if not _is_text(column.type):
            raise Invalid(f"{self.input!r} is a pattern of texts, not of {column.type}")

    @property
    def has_offset(self) -> bool:
        """True if texts have an offset from UTC."""
        return any(match[1] in _OFFSETS for match in _INPUT.finditer(self.input))

    def texts(self, column: pa.Array) -> pa.DictionaryArray:
        """Return the partition path of each of n values (dictionary of string[n]).

        It is null for null, unless :attr:`null_is_first`.

        Raises Invalid if the type is not a time, or for a text that has not the pattern.
        """
        kinds = pa.types
        if _is_text(column.type) and self.input:
            local = self._times_of(column)
        elif kinds.is_integer(column.type):
            local = self._local(column.cast(pa.int64()).cast(pa.timestamp(self.unit)))
        elif kinds.is_date32(column.type):
            local = self._local(column.cast(pa.timestamp("s")))
        elif kinds.is_timestamp(column.type):
            local = self._local(column)
        else:
            raise Invalid(
                f"time-based partition paths cannot be made of a column of type {column.type}",
                hint="partition by a timestamp, a date, integers since 1970, or a text with"
                " mdt.partition.time.input",
            )
        if self.null_is_first and local.null_count:
            local = local.fill_null(pa.scalar(self._first(), local.type))
        # Group by local clock time, not by instant: local times repeat or are skipped when clocks
        # change.
        *_, finest = (unit for token, unit in _FINEST.items() if token in self.pattern)
        begins = pc.floor_temporal(local, unit=finest).dictionary_encode()
        seconds = begins.dictionary.cast(pa.timestamp("s"))
        texts = pc.strftime(seconds, _PATTERN.sub(_as_strftime, self.pattern))
        return pa.DictionaryArray.from_arrays(begins.indices, texts.cast(pa.string()))

    def _first(self) -> datetime:
        """Return the local time that a null counts as: the first moment of 1970, as a text with
        :attr:`input` has it.
        """
        first: datetime = self._local(pa.array([0], pa.timestamp("s")))[0].as_py()
        if not self.input:
            return first
        names = {match[1] for match in _INPUT.finditer(self.input)}
        lacking = {name: int(text) for name, text in _DIGITS.items() if name not in names}
        units: dict[str, Any] = {_FINEST[name]: number for name, number in lacking.items()}
        return first.replace(**units)

    def _local(self, column: pa.Array) -> pa.Array:
        """Return the local times of timestamps in the time zone.

        Raises Invalid for an unknown time zone.
        """
        if column.type.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond").cast(
                pa.timestamp("us", column.type.tz)
            )
        try:
            moments = column.cast(pa.timestamp(column.type.unit, "UTC"))
            return pc.local_timestamp(
                moments.cast(pa.timestamp(column.type.unit, self.zone or "UTC"))
            )
        except pa.ArrowException as error:
            raise Invalid(
                f"partition paths cannot be made in the time zone {self.zone!r}: {error}",
                hint="use a time zone such as 'UTC'",
            ) from error

    def _times_of(self, texts: pa.Array) -> pa.Array:
        """Return the local times in texts -> timestamp("s")[n]. Raises Invalid for other texts."""
        encoded = texts.cast(pa.string()).dictionary_encode()
        distinct = encoded.dictionary
        found = pc.extract_regex(distinct, self._expression())
        if found.null_count:
            raise self._not_a_time(distinct.filter(found.is_null())[0].as_py())
        digits = [_digits(found, name, missing) for name, missing in _DIGITS.items()]
        day = pc.binary_join_element_wise(*digits[:3], "-")
        iso = pc.binary_join_element_wise(day, pc.binary_join_element_wise(*digits[3:], ":"), " ")
        try:
            local = iso.cast(pa.timestamp("s"))
        except pa.ArrowInvalid:
            valid = [_is_time(text) for text in iso.to_pylist()]
            raise self._not_a_time(distinct[valid.index(False)].as_py()) from None
        if self.has_offset and self.zone:
            seconds = pa.array(map(_offset_seconds, pc.struct_field(found, "offset").to_pylist()))
            local = self._local(pc.subtract(local, seconds.cast(pa.duration("s"))))
        return local.take(encoded.indices)

    def _expression(self) -> str:
        """Return the regular expression of the texts, with a group for each field."""

        def converted(match: re.Match[str]) -> str:
            name, quoted, other = match.groups()
            if name in _OFFSETS:
                return f"(?P<offset>{_OFFSETS[name]})"
            if name:
                return f"(?P<{name}>[0-9]{{{len(name)}}})"
            return re.escape(quoted or other)

        return f"^{_INPUT.sub(converted, self.input)}$"

    def _not_a_time(self, text: str) -> Invalid:
        return Invalid(
            f"{text[:100]!r} in a partition column is no time of the form {self.input!r}",
            hint="Hudi's key generator makes the partition path of it",
        )


def _is_text(type: pa.DataType) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def _digits(found: pa.StructArray, name: str, missing: str) -> pa.Array | pa.Scalar:
    """Return the digits of a field in texts, or ``missing`` if the texts lack it."""
    if found.type.get_field_index(name) < 0:
        return pa.scalar(missing)
    return pc.struct_field(found, name)


def _is_time(text: str) -> bool:
    """Return True if Arrow takes a text in the form of ISO 8601 for a time."""
    try:
        pa.scalar(text).cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        return False
    return True


def _offset_seconds(text: str) -> int:
    """Return the seconds of an offset from UTC.

    >>> _offset_seconds("-01:30"), _offset_seconds("+0200"), _offset_seconds("Z")
    (-5400, 7200, 0)
    """
    if text == "Z":
        return 0
    seconds = 3600 * int(text[1:3]) + 60 * int(text[-2:])
    return -seconds if text[0] == "-" else seconds


def _as_strftime(match: re.Match[str]) -> str:
    return _TOKENS.get(match[0], match[0])

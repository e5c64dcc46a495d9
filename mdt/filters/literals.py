"""SQL literals with Spark's ANSI semantics: numbers with suffixes, typed literals, casts.

A literal becomes a Python value: None, bool, int, float, Decimal, str, bytes, date or datetime.
Literals that Spark refuses (``cast(300 as tinyint)``, ``'five'`` as a number) raise ValueError.
docs/filters/literals.md lists the intended differences from Spark.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from indexes import values
from mdt.limits import LITERAL_DIGITS_MAX

Value = None | bool | int | float | Decimal | str | bytes | date | datetime
"""A literal."""
NUMBERS = (int, float, Decimal)
"""Types of literals with a sign. bool, a subclass of int, is not among them."""

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SUFFIXES = {"Y": "tinyint", "S": "smallint", "L": "bigint", "F": "float", "D": "double"}
_NUMBER = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([bB][dD]|[lLsSyYfFdD])?")
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]+")
_FLOAT_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOAT_WORDS = {
    sign + word: -size if sign == "-" else size
    for word, size in (("inf", math.inf), ("infinity", math.inf))
    for sign in ("", "+", "-")
} | {"nan": math.nan}
_BOOLEAN_WORDS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DAY = r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_DATE = re.compile(_DAY + r"(?P<rest>[ T].*)?)?)?", re.DOTALL)
_SECOND = r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?)?"
_CLOCK = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})" + _SECOND
_ZONE = r"(?P<zone>Z|UTC|GMT|(?P<ahead>[+-])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-9]{2}))?)"
_TIMESTAMP = re.compile(rf"{_DAY}(?:[ T]{_CLOCK}\s*{_ZONE}?)?)?)?")
_LARGEST = {"float": float(np.finfo(np.float32).max), "double": float(np.finfo(np.float64).max)}
_EXACT = Context(prec=2 * LITERAL_DIGITS_MAX + 100)
"""Decimal arithmetic without rounding for any literal. The default context has 28 digits."""


class NoSuchCast(Exception):
    """A cast that mdt does not support. Spark may support it."""


def number(text: str, negative: bool = False) -> int | float | Decimal:
    """Return a numeric literal with Spark's type: 5, 5L, 1.5 (decimal), 1.5e0 (double), 1.5D, 0.1F,
    1BD.

    >>> [number(text) for text in ("5", "1.5", "1.5e0", "0.1F", "5Y")]
    [5, Decimal('1.5'), 1.5, 0.10000000149011612, 5]
    """
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > LITERAL_DIGITS_MAX:
        raise ValueError(
            f"the number has {len(text)} characters, and the limit is {LITERAL_DIGITS_MAX}"
        )
    digits, suffix = ("-" if negative else "") + match[1], (match[2] or "").upper()
    if suffix in ("L", "S", "Y"):
        return _integer(digits, _SUFFIXES[suffix])
    if suffix in ("F", "D"):
        return _in_range(digits, _SUFFIXES[suffix])
    if not suffix and digits.lstrip("-").isdigit():
        return int(digits)
    if suffix or "e" not in digits.lower():
        return _decimal(digits)
    return _in_range(digits, "double")


def suffix_type(text: str) -> str:
    """Return the type that the suffix of a number names, or "".

    >>> suffix_type("5L"), suffix_type("1.5")
    ('bigint', '')
    """
    return _SUFFIXES.get(text[-1].upper(), "")


def negate(value: float | Decimal) -> float | Decimal:
    """Return the exact negation of a number."""
    if isinstance(value, Decimal):
        return value.copy_negate()
    return -value


def typed_literal(name: str, text: str) -> Value:
    r"""Return the value of DATE '…', TIMESTAMP '…' or X'…'. Raises NoSuchCast for other names.

    >>> typed_literal("date", "2024-02-29"), typed_literal("x", "0aff")
    (datetime.date(2024, 2, 29), b'\n\xff')
    """
    if name == "x":
        if not re.fullmatch("[0-9a-fA-F]*", text):
            raise ValueError(f"{text!r} has characters that are not hexadecimal digits")
        return bytes.fromhex("0" * (len(text) % 2) + text)
    if name in ("date", "timestamp", "timestamp_ltz", "timestamp_ntz"):
        return cast(text, name)
    raise NoSuchCast


def cast(value: Value, target: str, precision: int = 10, scale: int = 0) -> Value:
    """Return ``cast(value as target)``. ``precision`` and ``scale`` apply to decimals.

    target: Spark's primary name of a type, e.g. "int".

    Null stays null. Raises ValueError where Spark's cast fails, NoSuchCast for unsupported types.

    >>> cast("12", "int"), cast(1.9, "int"), cast(None, "date")
    (12, 1, None)
    >>> cast(300, "tinyint")
    Traceback (most recent call last):
        ...
    ValueError: 300 is outside the range of tinyint
    """
    if value is None:
        return None
    if target in _INTEGER_BITS:
        return _integer(value, target)
    if target in ("float", "double"):
        return _floating(value, target)
    if target == "decimal":
        return _round(_decimal(value), precision, scale)
    convert = _CASTS.get((target, value.__class__))
    if convert is None:
        raise NoSuchCast
    return convert(value)


def converted_for(value: Any, type: pa.DataType) -> Any:
    """Return a literal for comparison with a column of ``type``. Text is parsed as that type.

    Other literals are unchanged, and compared exactly. Raises ValueError for text that does not
    parse.

    >>> converted_for("2024-02-29", pa.date32()), converted_for("7", pa.int64())
    (datetime.date(2024, 2, 29), 7)
    """
    if isinstance(value, UUID):
        if values.kind_of(type) == "binary":
            return value.bytes
        return str(value)
    if not isinstance(value, str):
        return value
    read = _READERS.get(values.kind_of(type) or "string")
    if read is None:
        return value
    return read(value)


def all_converted_for(items: tuple[Any, ...], type: pa.DataType) -> tuple[Any, ...]:
    """Return :func:`converted_for` of each literal in a list."""
    unchanged = {*NUMBERS, bool, None.__class__}
    if (values.kind_of(type) or "string") == "string":
        unchanged.add(str)
    if unchanged.issuperset(map(builtins.type, items)):
        return items
    return tuple(converted_for(item, type) for item in items)


def read_date(text: str) -> date:
    """Parse ``2024``, ``2024-2`` or ``2024-02-29``. Text after a space or T is ignored, as in
    Spark.
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{_excerpt(text)} is not a date; write it as 2024-01-31")
    return _date(match, text)


def read_timestamp(text: str) -> datetime:
    """Parse ``2024-02-29 12:00:00.5+01:00`` and shorter forms. The result is naive without a zone.

    >>> str(read_timestamp("2024-02-29 12:00:00.5+01:00")), str(read_timestamp("2024-02"))
    ('2024-02-29 12:00:00.500000+01:00', '2024-02-01 00:00:00')
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        hint = "write it as 2024-01-31 12:00:00.123456+01:00, with an offset instead of a zone name"
        raise ValueError(f"{_excerpt(text)} is not a timestamp; {hint}")
    day, fraction = _date(match, text), match["fraction"] or ""
    if len(fraction) > 6:
        raise ValueError(f"{_excerpt(text)} has digits below the microsecond; write at most six")
    try:
        hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
        clock = time(hour, minute, second, int(fraction.ljust(6, "0")), _zone(match))
        return datetime.combine(day, clock)
    except ValueError as error:
        raise ValueError(f"{_excerpt(text)} is not a timestamp: {error}") from None


def _date(match: re.Match[str], text: str) -> date:
    try:
        return date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError as error:
        raise ValueError(f"{_excerpt(text)} is not a date: {error}") from None


def _zone(match: re.Match[str]) -> timezone | None:
    if match["ahead"] is None:
        if match["zone"] is None:
            return None
        return UTC
    offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"] or 0))
    if match["ahead"] == "-":
        offset = -offset
    return timezone(offset)


def _day_alone(text: str) -> date:
    """Return the date to compare with a date column. A time of day raises ValueError, where Spark
    would ignore it.
    """
    match = _DATE.fullmatch(text.strip())
    if match is not None and match["rest"] and match["rest"].strip():
        raise ValueError(
            f"{_excerpt(text)} has a time of day, but the column has dates; write DATE"
            f" '{text.strip()[: match.start('rest')]}', or TIMESTAMP '…' to compare with midnight"
        )
    return read_date(text)


def _integer(value: Value, type: str) -> int:
    """Convert a value to an integer ``type``, truncating fractions."""
    if isinstance(value, str):
        if not _INTEGER_TEXT.fullmatch(value.strip()):
            raise ValueError(f"{_excerpt(value)} is not a whole number")
        value = _decimal(value.strip())
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a whole number")
        value = int(_bounded(Decimal(value)).to_integral_value(ROUND_DOWN))
    if not isinstance(value, int):
        raise NoSuchCast
    top = 1 << (_INTEGER_BITS[type] - 1)
    if not -top <= value < top:
        raise ValueError(f"{value} is outside the range of {type}")
    return int(value)


def _in_range(digits: str, type: str) -> float:
    """Return the value of a floating-point literal. As in Spark, a literal above the largest value
    is refused even if it rounds to it.
    """
    if abs(_decimal(digits)) > _LARGEST[type]:
        raise ValueError(f"{_excerpt(digits)} is outside the range of {type}")
    return _floating(digits, type)


def _floating(value: Value, type: str) -> float:
    """Convert a value to a double, or to float32 as a double. It is rounded once, and to infinity
    if too large.
    """
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _FLOAT_WORDS:
            return _FLOAT_WORDS[word]
        if not _FLOAT_TEXT.fullmatch(word):
            raise ValueError(f"{_excerpt(value)} is not a number")
        value = _decimal(word)
    if not isinstance(value, (int, float, Decimal)):
        raise NoSuchCast
    try:
        double = float(value)
    except OverflowError:
        double = math.inf if value > 0 else -math.inf
    if type == "float":
        return _float32(double, value)
    return double


def _float32(double: float, exact: float | Decimal) -> float:
    """Return the float32 nearest to ``exact``, given its nearest double."""
    with np.errstate(over="ignore"):
        nearest = np.float32(double)
        near = float(nearest)  # NumPy compares a float32 and a double as float32
        if near == double or not math.isfinite(near):
            return near
        away = math.copysign(math.inf, double - near)
        neighbor = float(np.nextafter(nearest, np.float32(away)))
    low, high = sorted((near, neighbor))
    if (low + high) / 2 == double and exact != double:  # a tie only after the first rounding
        if exact > double:
            return high
        return low
    return near


def _decimal(value: Value) -> Decimal:
    if isinstance(value, str):
        if not _FLOAT_TEXT.fullmatch(value.strip()):
            raise ValueError(f"{_excerpt(value)} is not a number")
        if len(value) > LITERAL_DIGITS_MAX:
            raise ValueError(
                f"the number has {len(value)} characters, and the limit is {LITERAL_DIGITS_MAX}"
            )
        exponent = value.strip().lower().partition("e")[2].lstrip("+-0")
        if len(exponent) > len(str(LITERAL_DIGITS_MAX)):
            # Decimal fails on exponents with many digits
            raise ValueError(
                f"the number has the exponent {exponent}, and the limit is {LITERAL_DIGITS_MAX}"
            )
        return _bounded(Decimal(value.strip()))
    if isinstance(value, (int, Decimal)):
        return Decimal(value)
    raise NoSuchCast


def _bounded(value: Decimal) -> Decimal:
    """Return ``value`` unless its exponent is so large that an integer would have billions of
    digits.
    """
    if value and abs(value.adjusted()) > LITERAL_DIGITS_MAX:
        raise ValueError(
            f"the number has the exponent {value.adjusted()}, and the limit is {LITERAL_DIGITS_MAX}"
        )
    return value


def _round(value: Decimal, precision: int, scale: int) -> Decimal:
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise ValueError(
            f"decimal({precision},{scale}) is not a type: the precision is 1 to 38, and the scale 0"
            " to the precision"
        )
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    if rounded and rounded.adjusted() >= precision - scale:
        raise ValueError(f"{value} is outside the range of decimal({precision},{scale})")
    return rounded


def _boolean(text: str) -> bool:
    value = _BOOLEAN_WORDS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{_excerpt(text)} is neither true nor false")
    return value


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def _excerpt(text: str) -> str:
    if len(text) > 60:
        text = text[:60] + "…"
    return repr(text)


_CASTS: dict[tuple[str, type], Callable[[Any], Value]] = {
    ("boolean", str): _boolean,
    ("boolean", bool): bool,
    ("boolean", int): bool,
    ("string", str): str,
    ("string", int): str,
    ("string", bool): lambda flag: str(flag).lower(),
    ("binary", str): str.encode,
    ("binary", bytes): bytes,
    ("date", str): read_date,
    ("date", date): lambda day: day,
    ("date", datetime): lambda moment: moment.date(),
    **{
        (name, source): convert
        for name in ("timestamp", "timestamp_ltz", "timestamp_ntz")
        for source, convert in (
            (str, read_timestamp),
            (date, _midnight),
            (datetime, lambda moment: moment),
        )
    },
}
"""Maps (type, class of the value) to conversions."""

_READERS: dict[str, Callable[[str], Value]] = {
    "int": lambda text: _integer(text, "bigint"),
    "float": lambda text: _floating(text, "double"),
    "decimal": _decimal,
    "bool": _boolean,
    "binary": str.encode,
    "date": _day_alone,
    "timestamp": read_timestamp,
}
"""Maps kinds of columns to parsers of text compared with them."""

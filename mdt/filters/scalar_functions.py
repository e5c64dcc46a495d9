"""SQL functions on Arrow values, with Spark's semantics.

``upper`` and ``lower`` map single letters, so ß stays ß where Spark's ``upper`` returns SS. Regular
expressions are RE2's, without look-around and back-references.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.decimals import as_floating
from indexes.like import like_test, parse_like
from mdt.arguments import nearest
from mdt.errors import Invalid
from mdt.filters import arithmetic, dates, literals
from mdt.filters.arithmetic import Datum, is_number, is_text
from mdt.filters.comparison_kernels import compare
from mdt.limits import LIKE_CHARACTERS_MAX, LIKE_WILDCARDS_MAX

MANY = 100
"""Maximum arguments of variadic functions."""
CASTS: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
"""Target types of casts, besides decimals."""
_WIDE = Context(prec=400)
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Function:
    """A function with ``least`` to ``most`` arguments, computed on Arrow values by ``kernel``."""

    least: int
    most: int
    kernel: Callable[..., Datum]


def cast(data: Datum, target: pa.DataType) -> Datum:
    """Convert values to another type, as Spark in ANSI mode.

    Raises Invalid, ``pa.ArrowException`` or OverflowError for values out of range, and Invalid for
    unsupported pairs of types, e.g. timestamps and numbers.
    """
    source_type = data.type
    if pa.types.is_null(source_type) or source_type == target:
        return pc.cast(data, target)
    if is_text(source_type):
        if pa.types.is_string(target):
            return data
        return _from_text(data, target)
    if not is_number(source_type) and not pa.types.is_boolean(source_type):
        raise Invalid(
            f"a cast from {source_type} to {target} is not supported",
            hint="use to_date, to_timestamp or year",
        )
    if pa.types.is_boolean(source_type):
        if pa.types.is_string(target):
            return pc.cast(data, target)
        data = pc.cast(data, pa.int32())
    if pa.types.is_floating(target):
        return as_floating(data, target)
    if pa.types.is_string(target):
        return _as_text(data)
    if pa.types.is_integer(target):
        return pc.cast(_truncate(data), target)
    # Decimals are rounded. A double becomes the decimal of its shortest text, as in Spark.
    step = Decimal(1).scaleb(-target.scale)
    return _in_python(
        lambda value: _decimal(value).quantize(step, ROUND_HALF_UP, _WIDE), target, data
    )


def _decimal(number: float | Decimal) -> Decimal:
    if isinstance(number, Decimal):
        return number
    return Decimal(repr(number))


def _truncate(number: Datum) -> Datum:
    """Truncate numbers to integers."""
    if not pa.types.is_decimal(number.type):
        if pa.types.is_floating(number.type):
            return pc.trunc(number)
        return number
    whole = pa.decimal128(number.type.precision, 0)
    return _in_python(lambda value: value.to_integral_value(ROUND_DOWN), whole, number)


def _as_text(number: Datum) -> Datum:
    if pa.types.is_floating(number.type):
        raise Invalid("a cast of floating-point numbers to text is not supported")
    if pa.types.is_decimal(number.type):
        return _in_python(lambda value: format(value, "f"), pa.string(), number)
    return pc.cast(number, pa.string())


def _from_text(texts: Datum, target: pa.DataType) -> Datum:
    """Parse texts as numbers, with Spark's rules for literals."""
    name, sizes = "decimal", list[int]()
    if pa.types.is_decimal(target):
        sizes = [target.precision, target.scale]
    else:
        name = next(name for name, type in CASTS.items() if type == target)

    def value(text: str) -> Any:
        try:
            return literals.cast(text, name, *sizes)
        except ValueError as error:
            raise Invalid(str(error)) from None

    return _in_python(value, target, texts)


def _with_null_type(
    kernel: Callable[[Datum], Datum], type: pa.DataType
) -> Callable[[Datum], Datum]:
    """Return a kernel of one argument that treats an untyped null as a null of ``type``."""

    def function(argument: Datum) -> Datum:
        if pa.types.is_null(argument.type):
            argument = pc.cast(argument, type)
        return kernel(argument)

    return function


def _in_python(function: Callable[..., Any], type: pa.DataType, *data: Datum) -> Datum:
    """Apply a Python function to each row. The result is null if an argument is null."""

    def value(*row: Any) -> Any:
        if None in row:
            return None
        return function(*row)

    if all(isinstance(datum, pa.Scalar) for datum in data):
        return pa.scalar(value(*(datum.as_py() for datum in data)), type)
    rows = next(len(datum) for datum in data if not isinstance(datum, pa.Scalar))
    columns = [
        [datum.as_py()] * rows if isinstance(datum, pa.Scalar) else datum.to_pylist()
        for datum in data
    ]
    return pa.array(map(value, *columns), type)


def _require_text(name: str, *data: Datum) -> None:
    for datum in data:
        if not is_text(datum.type) and not pa.types.is_null(datum.type):
            raise Invalid(f"{name} takes text, not {datum.type}")


def _require_number(name: str, data: Datum) -> None:
    if not is_number(data.type) and not pa.types.is_null(data.type):
        raise Invalid(f"{name} takes numbers, not {data.type}")


def _require_whole(name: str, data: Datum) -> None:
    if not pa.types.is_integer(data.type) and not pa.types.is_null(data.type):
        raise Invalid(f"{name} takes a whole number here, not {data.type}")


# Texts


def substr(text: Datum, position: Datum, length: Datum | None = None) -> Datum:
    """Return a substring. ``position`` starts at 1, or counts from the end if negative.

    >>> [substr(pa.scalar("Spark"), pa.scalar(at), pa.scalar(2)).as_py() for at in (1, 0, -2, -9)]
    ['Sp', 'Sp', 'rk', '']
    """
    _require_text("substr", text)
    numbers = [position] if length is None else [position, length]
    for number in numbers:
        _require_whole("substr", number)
    return _in_python(_substring, pa.string(), text, *numbers)


def _substring(text: str, position: int, length: int = _INT64) -> str:
    start = max(position - 1, 0)
    if position < 0:
        start = len(text) + position
    return text[max(start, 0) : max(start + length, 0)]


def replace(text: Datum, search: Datum, replacement: Datum | None = None) -> Datum:
    """Replace every ``search`` in a text, by default with nothing."""
    by = pa.scalar("") if replacement is None else replacement
    _require_text("replace", text, search, by)

    def replaced(value: str, old: str, new: str) -> str:
        if not old:
            return value
        arithmetic.require_short(len(value) + value.count(old) * max(len(new) - len(old), 0))
        return value.replace(old, new)

    return _in_python(replaced, pa.string(), text, search, by)


def _pattern(name: str, pattern: Datum) -> str | None:
    """Return a pattern. It must be the same for all rows."""
    _require_text(name, pattern)
    if not isinstance(pattern, pa.Scalar):
        raise Invalid(f"the pattern of {name} must be a constant, not a column")
    text = pattern.as_py()
    if text is not None and len(text) > LIKE_CHARACTERS_MAX:
        raise Invalid(
            f"the pattern has {len(text):,} characters, and the limit is {LIKE_CHARACTERS_MAX:,}"
        )
    if text is None:
        return None
    return str(text)


def regexp_like(text: Datum, pattern: Datum) -> Datum:
    """Return True if a part of the text matches an RE2 regular expression."""
    regex = _pattern("regexp_like", pattern)
    _require_text("regexp_like", text)
    if regex is None or pa.types.is_null(text.type):
        return pa.scalar(None, pa.bool_())
    try:
        pc.match_substring_regex(pa.scalar(""), pattern=regex)
        return pc.match_substring_regex(text, pattern=regex)
    except pa.ArrowInvalid as error:
        raise Invalid(f"{regex!r} is not an RE2 regular expression: {error}") from None


def like(text: Datum, pattern: Datum) -> Datum:
    """Return True if the text matches a LIKE pattern."""
    text_pattern = _pattern("like", pattern)
    _require_text("like", text)
    if text_pattern is None or pa.types.is_null(text.type):
        return pa.scalar(None, pa.bool_())
    parts = parse_like(text_pattern)
    if sum(not part for part in parts) > LIKE_WILDCARDS_MAX:
        raise Invalid(f"the pattern has more than {LIKE_WILDCARDS_MAX} wildcards")
    return like_test(parts)(text)


def ilike(text: Datum, pattern: Datum) -> Datum:
    """Return True if the text matches a LIKE pattern, ignoring case."""
    _require_text("ilike", text, pattern)
    small = _with_null_type(pc.utf8_lower, pa.string())
    return like(small(text), small(pattern))


# Numbers


def round_half_up(number: Datum, digits: Datum | None = None) -> Datum:
    """Round numbers half away from zero.

    A double is rounded as the decimal of its shortest text, as in Spark: 2.675 becomes 2.68.
    """
    _require_number("round", number)
    places = 0
    if digits is not None:
        _require_whole("round", digits)
        if not isinstance(digits, pa.Scalar) or digits.as_py() is None:
            raise Invalid("the number of digits of round must be a constant")
        places = digits.as_py()
    if abs(places) > 38:
        raise Invalid("round takes at most 38 digits")
    if pa.types.is_decimal(number.type):
        step = Decimal(1).scaleb(-min(places, number.type.scale))
        return _in_python(
            lambda value: value.quantize(step, ROUND_HALF_UP, _WIDE),
            _wider(number.type),
            number,
        )
    if pa.types.is_integer(number.type) and places >= 0:
        return number
    step = Decimal(1).scaleb(-places)

    def round_float(value: float) -> float:
        if not math.isfinite(value):
            return value
        decimal = Decimal(repr(value)).quantize(step, ROUND_HALF_UP, _WIDE)
        return type(value)(decimal)

    if pa.types.is_float32(number.type):
        return _in_python(
            lambda value: round_float(float(str(np.float32(value)))), number.type, number
        )
    return _in_python(round_float, number.type, number)


def _wider(type: pa.DataType) -> pa.DataType:
    """Return a decimal type with one more digit, because 9.9 rounds to 10."""
    return pa.decimal128(min(38, type.precision + 1), type.scale)


def _whole(name: str, kernel: Callable[[Datum], Datum]) -> Callable[[Datum], Datum]:
    """Return floor or ceil. Doubles become bigint."""

    def function(number: Datum) -> Datum:
        _require_number(name, number)
        if pa.types.is_integer(number.type) or pa.types.is_null(number.type):
            return number
        if pa.types.is_decimal(number.type):
            way = ROUND_FLOOR if kernel is pc.floor else ROUND_CEILING
            return _in_python(
                lambda value: value.to_integral_value(way), _wider(number.type), number
            )

        def as_integer(value: float) -> int:
            if math.isnan(value):
                return 0
            if not -_INT64 <= value < _INT64:
                raise Invalid(f"{name} of {value} does not fit into 64 bits")
            return int(value)

        return _in_python(as_integer, pa.int64(), kernel(number))

    return function


def _of_doubles(name: str, kernel: Callable[..., Datum]) -> Callable[..., Datum]:
    def function(*numbers: Datum) -> Datum:
        for number in numbers:
            _require_number(name, number)
        return kernel(*(as_floating(number, pa.float64()) for number in numbers))

    return function


def _power(base: Datum, exponent: Datum) -> Datum:
    """Return base ** exponent as in Java: NaN for 1 ** NaN and for ±1 ** ±infinity."""
    result = pc.power(base, exponent)
    is_special = pc.and_(pc.equal(pc.abs(base), 1.0), pc.invert(pc.is_finite(exponent)))
    return pc.if_else(is_special, math.nan, result)


def _sign(number: Datum) -> Datum:
    """Return -1, 0 or 1 as a double. NaN and minus zero are unchanged."""
    return pc.if_else(pc.or_(pc.is_nan(number), pc.equal(number, 0.0)), number, pc.sign(number))


def _extreme(op: str) -> Callable[..., Datum]:
    """Return greatest or least. Nulls are ignored, and NaN is the greatest value."""

    def better(a: Datum, b: Datum) -> Datum:
        return pc.if_else(pc.or_(pc.is_null(a), pc.fill_null(compare(op, b, a), False)), b, a)

    return lambda *data: reduce(better, arithmetic.with_common_types(*data))


def nullif(value: Datum, excluded: Datum) -> Datum:
    """Return ``value``, or null if it equals ``excluded``."""
    same = pc.fill_null(compare("=", value, excluded), False)
    return pc.if_else(same, pa.scalar(None, value.type), value)


def _trim(text: Datum) -> Datum:
    return pc.utf8_trim(text, " ")


def names_hint(name: str, more_names: Iterable[str] = ()) -> str:
    """Return a hint with the functions similar to ``name``, or with all functions.

    more_names: Functions that this module does not have.

    >>> names_hint("lenght")
    'did you mean length?'
    """
    if _ON_LISTS.match(name):
        return (
            "functions of lists and maps are not built in: define one with mdt.function, or filter"
            " the Arrow or Spark result"
        )
    names = sorted({*FUNCTIONS, *_PARSER_FUNCTIONS, *more_names}.difference(_OPERATORS))
    return nearest(name, names) or f"functions are {', '.join(names)}"


_PARSER_FUNCTIONS = ("cast", "coalesce", "current_date", "current_timestamp", "if")
_OPERATORS = ("like", "negative")
_ON_LISTS = re.compile("arrays?_|list_|map_|cardinality$|element_at$|size$")
"""Functions of lists and maps in Spark and duckdb."""
_PARTS = ("year", "month", "day", "hour", "minute", "second")
TIME_FUNCTIONS = frozenset(
    (*_PARTS, "date_trunc", "date_add", "date_sub", "to_date", "to_timestamp")
)
"""Functions of dates and timestamps."""
FUNCTIONS: Mapping[str, Function] = {
    "negative": Function(1, 1, arithmetic.negate),
    "nullif": Function(2, 2, nullif),
    "concat": Function(1, MANY, arithmetic.concatenate),
    "lower": Function(1, 1, _with_null_type(pc.utf8_lower, pa.string())),
    "upper": Function(1, 1, _with_null_type(pc.utf8_upper, pa.string())),
    "trim": Function(1, 1, _with_null_type(_trim, pa.string())),
    "length": Function(1, 1, _with_null_type(pc.utf8_length, pa.string())),
    "substr": Function(2, 3, substr),
    "substring": Function(2, 3, substr),
    "replace": Function(2, 3, replace),
    "regexp_like": Function(2, 2, regexp_like),
    "like": Function(2, 2, like),
    "ilike": Function(2, 2, ilike),
    "abs": Function(1, 1, _with_null_type(pc.abs_checked, pa.int32())),
    "round": Function(1, 2, round_half_up),
    "floor": Function(1, 1, _whole("floor", pc.floor)),
    "ceil": Function(1, 1, _whole("ceil", pc.ceil)),
    "ceiling": Function(1, 1, _whole("ceiling", pc.ceil)),
    "sign": Function(1, 1, _of_doubles("sign", _sign)),
    "signum": Function(1, 1, _of_doubles("signum", _sign)),
    "sqrt": Function(1, 1, _of_doubles("sqrt", pc.sqrt)),
    "power": Function(2, 2, _of_doubles("power", _power)),
    "pow": Function(2, 2, _of_doubles("pow", _power)),
    "greatest": Function(2, MANY, _extreme(">")),
    "least": Function(2, MANY, _extreme("<")),
    "date_trunc": Function(2, 2, dates.date_trunc),
    "date_add": Function(2, 2, dates.date_add),
    "date_sub": Function(2, 2, dates.date_sub),
    "to_date": Function(1, 1, dates.to_date),
    "to_timestamp": Function(1, 1, dates.to_timestamp),
    **{name: Function(1, 1, dates.part(name)) for name in _PARTS},
}
"""Maps lower-case SQL names to functions."""

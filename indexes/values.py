"""A total order and a sortable encoding for all scalar types.

All indexes and predicates compare values through this module, so they always agree. The order:

- NaN is above everything, including ``+inf``. All NaN are equal, and ``-0.0`` equals ``0.0``, as in
  Spark.
- Integers, decimals and booleans (False < True) are ordered by value, strings by their UTF-8 bytes,
  binary by its bytes.
- Dates are ordered by day, timestamps by UTC microseconds. A timestamp without time zone counts as
  UTC.

A *key* is the encoding of a value: bytes that compare (memcmp) like the values. Its width depends
on the kind, not on the width of the type. A widened column (int32 to int64, float to double)
therefore retains its keys:

========================  ==========================================================================
integers, dates           8 bytes: int64, big-endian, sign bit flipped
timestamps                8 bytes: int64 microseconds, encoded like integers; saturated if a coarser
                          unit overflows
floats                    8 bytes: float64, big-endian; sign bit flipped if positive, all bits
                          flipped if negative
decimals                  16 bytes (decimal128) or 32 (decimal256): unscaled value, big-endian, sign
                          bit flipped
booleans                  1 byte
strings, binary           their bytes
========================  ==========================================================================

A literal need not be a value of the column's type, as in ``int_column < 1.5``. It is represented by
its *place*: the largest value of the type that is not above it, and on which side of that value it
lies.
"""

from __future__ import annotations

import builtins
import math
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import one_array

Kind = Literal["bool", "int", "float", "decimal", "date", "timestamp", "string", "binary"]
"""Comparison kind of a type."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_TYPES: dict[Kind, list[pa.DataType]] = {
    "bool": [pa.bool_()],
    "int": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
    "float": [pa.float32(), pa.float64()],
    "decimal": [pa.decimal128(1), pa.decimal256(1)],
    "date": [pa.date32()],
    "timestamp": [pa.timestamp("us")],
    "string": [pa.string(), pa.large_string()],
    "binary": [pa.binary(), pa.large_binary(), pa.binary(1)],
}
_KINDS = {type.id: kind for kind, types in _TYPES.items() for type in types}
"""Arrow type ID -> comparison kind."""
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SUB_MICROSECOND = re.compile(r"[.,]\d{7}")
_SIGN_BIT = np.uint64(1 << 63)
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)
_DECIMAL_DIGITS_MAX = 400
"""Far above decimal256 (76) and float64 (308). Decimals beyond it are handled as huge or tiny."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a literal among the values of a type.

    So ``v < literal`` means ``v <= value`` if tie > 0, else ``v < value``. And ``v <= literal``
    means ``v < value`` if tie < 0, else ``v <= value``.

    Attributes:
        value: A value of the type, in a form that ``pa.scalar(value, type)`` accepts.
        tie: 0 if the literal equals the value, 1 if it lies just above it (below the next value),
            -1 if just below it (above the previous value).
    """

    value: object
    tie: int


@dataclass(frozen=True, slots=True)
class Key:
    """Position of a literal among keys. ``tie`` is as in :class:`Place`."""

    data: bytes
    tie: int


def kind_of(type: pa.DataType) -> Kind | None:
    """Return the comparison kind of ``type``, or None if it has no order.

    A dictionary type has the kind of its values.
    """
    type = plain_type(type)
    kind = _KINDS.get(type.id)
    if kind == "timestamp" and type.unit not in _MICROS_PER_UNIT:
        return None
    return kind


def supports(type: pa.DataType) -> bool:
    """Return True if values of ``type`` have an order and keys. O(1)."""
    return kind_of(type) is not None


def key_width(type: pa.DataType) -> int | None:
    """Return the key length of ``type`` in bytes, or None for strings and binary.

    Raises ValueError for a type without order.

    >>> key_width(pa.int8()), key_width(pa.decimal128(9, 2)), key_width(pa.string())
    (8, 16, None)
    """
    kind = _require_kind(type)
    if kind == "decimal":
        return int(plain_type(type).byte_width)
    if kind in ("string", "binary"):
        return None
    if kind == "bool":
        return 1
    return 8


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type. Other types are returned unchanged."""
    if pa.types.is_dictionary(type):
        return type.value_type
    return type


def int_range(type: pa.DataType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer type."""
    if pa.types.is_signed_integer(type):
        return (-(1 << (type.bit_width - 1)), (1 << (type.bit_width - 1)) - 1)
    return (0, (1 << type.bit_width) - 1)


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ``values`` as a single array without dictionary encoding."""
    values = one_array(values)
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values


def encode(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the keys of n values -> binary[n]. Nulls stay null.

    Raises ValueError for a type without order.

    >>> small, large = encode(pa.array([-1, 3])).to_pylist()
    >>> small < large, len(large)
    (True, 8)
    >>> encode(pa.array(["Oslo", None])).to_pylist()
    [b'Oslo', None]
    >>> encode(pa.array([0.0])) == encode(pa.array([-0.0]))
    True
    """
    kind = _require_kind(values.type)
    values = plain(values)
    if kind in ("string", "binary"):
        return values.cast(pa.binary())
    if kind == "bool":
        bits = np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.uint8)
        return _fixed_width(bits, 1, values)
    if kind == "decimal":
        return _fixed_width(_decimal_words(values), values.type.byte_width, values)
    return _fixed_width(words(values).astype(">u8"), 8, values)


def words(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return the keys of n numbers, dates or timestamps as numbers -> uint64[n].

    They are the big-endian value of the bytes from :func:`encode`. The word of a null is undefined.
    """
    numbers = plain(values)
    if kind_of(values.type) == "float":
        return _float_words(numbers)
    return _int_words(numbers)


def encode_one(value: pa.Scalar) -> bytes:
    """Return the key of a non-null scalar. An Arrow array of length 1 would cost fifty times as
    much.

    >>> (
    ...     encode_one(pa.scalar(7)) == encode(pa.array([7])).to_pylist()[0],
    ...     encode_one(pa.scalar("Oslo")),
    ... )
    (True, b'Oslo')
    """
    kind = _require_kind(value.type)
    if kind in ("string", "binary"):
        return bytes(value.as_buffer())
    if kind in ("int", "float"):
        return _encode_one(value.as_py(), kind, value.type)
    return bytes(encode(pa.array([value], value.type))[0].as_py())


def place(value: object, type: pa.DataType) -> Place:
    """Return the position of the literal ``value`` among the values of ``type``.

    Allowed literals: bool for booleans; int, float and Decimal for all numbers; str for strings;
    bytes for binary; date, datetime and ISO 8601 text for dates and timestamps (UTC if naive). A
    dictionary type counts as its value type.

    Numbers are compared exactly, with one convention between binary and decimal numbers. A float
    literal for a decimal column means its shortest decimal text, and a Decimal for a float column
    means the nearest double. So ``x = 0.1`` has the same meaning whether the parser returns 0.1 as
    a float or a Decimal.

    Raises ValueError for a literal of another kind, or an invalid date.

    >>> place(2.5, pa.int64())  # v < 2.5 is v <= 2, since 2.5 lies above
    Place(value=2, tie=1)
    >>> place(300, pa.int8()).tie
    1
    >>> place("2024-02-29", pa.date32()).value
    19782
    >>> place("five", pa.int64())
    Traceback (most recent call last):
        ...
    ValueError: a literal of Python type str cannot be compared with values of int64
    """
    kind = _require_kind(type)
    type = plain_type(type)
    floor, tie = _locate(value, kind, type)
    if kind == "int":
        return Place(*_clamp(floor, tie, *int_range(type)))
    if kind == "float" and pa.types.is_float32(type):
        return Place(*_narrow_to_float32(floor, tie))
    if kind == "timestamp":
        units, remainder = divmod(floor, _MICROS_PER_UNIT[type.unit])
        return Place(units, int(remainder > 0) or tie)
    if kind == "decimal":
        return Place(_decimal(floor, type.scale), tie)
    return Place(floor, tie)


def compare_key(value: object, type: pa.DataType) -> Key:
    """Return the position of the literal ``value`` among the keys of ``type``.

    Literals and errors are as in :func:`place`.
    """
    kind = _require_kind(type)
    type = plain_type(type)
    floor, tie = _locate(value, kind, type)
    return Key(_encode_one(floor, kind, type), tie)


def encode_scalar(value: object, type: pa.DataType) -> bytes | None:
    """Return the key of a literal, or None if no value equals it, e.g. 1.5 for integers.

    >>> (
    ...     encode_scalar(3, pa.int8()) == encode(pa.array([3])).to_pylist()[0],
    ...     encode_scalar(1.5, pa.int8()),
    ... )
    (True, None)
    """
    key = compare_key(value, type)
    if key.tie == 0:
        return key.data
    return None


def decode(key: bytes, type: pa.DataType) -> object:
    """Decode a key to bool, int, float, Decimal, date, datetime, str or bytes. For explanations.

    Timestamps are aware (UTC) if the type has a time zone. Dates and timestamps outside of Python's
    years 1 to 9999 are returned as int. A string cut inside a character ends in U+FFFD. Raises
    ValueError for a key of the wrong length.

    >>> decode(encode_scalar(-7, pa.int16()), pa.int16()), decode(b"Oslo", pa.string())
    (-7, 'Oslo')
    """
    kind = _require_kind(type)
    type = plain_type(type)
    if kind == "binary":
        return key
    if kind == "string":
        return key.decode("utf-8", errors="replace")
    width = key_width(type) or 0
    if len(key) != width:
        raise ValueError(f"a key of type {type} must have {width} bytes, got {len(key)}")
    if kind == "bool":
        return key != b"\0"
    bits = int.from_bytes(key, "big")
    if kind == "float":
        return _float_of_bits(bits)
    number = bits - (1 << (8 * width - 1))
    if kind == "decimal":
        return _decimal(number, type.scale)
    return _calendar(number, kind, type)


def float_words(values: pa.Array) -> pa.Array:
    """Return the keys of n floats as numbers in the same order -> uint64[n]. Nulls stay null."""
    values = plain(values)
    if not values.null_count:
        return pa.array(_float_words(values))
    return pa.array(_float_words(values), mask=np.asarray(values.is_null()))


def truncate_down(key: bytes, limit: int) -> bytes:
    """Return a prefix of at most ``limit`` bytes, which is not larger than ``key``.

    It may end inside a UTF-8 character.
    """
    return key[:limit]


def truncate_up(key: bytes, limit: int, utf8: bool) -> bytes | None:
    r"""Return at most ``limit`` bytes that are not smaller than ``key``, or None if there are none.

    ``utf8``: Increment the last character instead of the last byte, so that the result is valid
    UTF-8, which sorts by code point. A key that is not valid UTF-8 is handled as bytes. Both
    results are correct for byte order.

    >>> (
    ...     truncate_down(b"abcd", 2),
    ...     truncate_up(b"abcd", 2, utf8=True),
    ...     truncate_up(b"ab", 2, utf8=True),
    ... )
    (b'ab', b'ac', b'ab')
    >>> truncate_up(b"\xff\xff\xff", 2, utf8=False) is None
    True
    """
    if len(key) <= limit:
        return key
    if utf8:
        try:
            return _successor_text(key.decode("utf-8"), limit)
        except UnicodeDecodeError:
            pass
    return successor(key[:limit])


def successor(prefix: bytes) -> bytes | None:
    r"""Return the smallest bytes above everything that starts with ``prefix``, or None if there are
    none.

    >>> successor(b"ab"), successor(b"a\xff"), successor(b"\xff")
    (b'ac', b'b', None)
    """
    stripped = prefix.rstrip(b"\xff")
    if stripped:
        return stripped[:-1] + bytes([stripped[-1] + 1])
    return None


def _successor_text(text: str, limit: int) -> bytes | None:
    """Return valid UTF-8 above every text that starts with the first ``limit`` bytes of ``text``.

    The result has at most ``limit`` bytes. None if there is no such text.
    """
    prefix = text.encode("utf-8")[:limit].decode("utf-8", errors="ignore")
    while prefix:
        code_point = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if 0xD800 <= code_point < 0xE000:  # skip surrogates
            code_point = 0xE000
        if code_point <= sys.maxunicode:
            raised = (prefix + chr(code_point)).encode("utf-8")
            if len(raised) <= limit:
                return raised
    return None


def _require_kind(type: pa.DataType) -> Kind:
    kind = kind_of(type)
    if kind is None:
        raise ValueError(f"values of type {type} cannot be compared; use a scalar column")
    return kind


def _fixed_width(words: npt.NDArray[Any], width: int, values: pa.Array) -> pa.Array:
    """Return binary[n] from n * ``width`` bytes, null where ``values`` is null."""
    n = len(values)
    if n * width > 2**31 - 1:
        raise ValueError(f"{n} keys of {width} bytes exceed an Arrow array; pass fewer values")
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    validity = values.is_valid().buffers()[1] if values.null_count else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(pa.binary(), n, buffers)


def _int_words(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return integers, days or microseconds as uint64[n] in key order."""
    type = values.type
    if pa.types.is_date32(type):
        values = values.cast(pa.int32())
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(type) and type.unit != "us":
        factor = _MICROS_PER_UNIT[type.unit]
        numbers = np.clip(numbers, -(_INT64_MAX // factor), _INT64_MAX // factor) * factor
    return np.asarray(numbers.view(np.uint64) ^ _SIGN_BIT)


def _float_words(values: pa.Array) -> npt.NDArray[np.uint64]:
    with np.errstate(invalid="ignore"):
        numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = numbers.view(np.uint64)
    bits[np.isnan(numbers)] = _CANONICAL_NAN
    words: npt.NDArray[np.uint64] = np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)
    return words


def _decimal_words(values: pa.Array) -> npt.NDArray[Any]:
    """Return unscaled decimals as big-endian words [n, 2 or 4]. Arrow stores them little-endian."""
    width = values.type.byte_width
    count = len(values) * width
    buffer = values.buffers()[1]
    if not count or buffer is None:
        return np.zeros((len(values), width // 8), dtype=">u8")
    flat = np.frombuffer(buffer, dtype="<u8", count=count // 8, offset=values.offset * width)
    words = flat.reshape(len(values), width // 8)[:, ::-1].astype(">u8")
    words[:, 0] ^= _SIGN_BIT
    return words


def _encode_one(value: Any, kind: Kind, type: pa.DataType) -> bytes:
    if kind == "string":
        return bytes(value.encode("utf-8"))
    if kind == "binary":
        return bytes(value)
    if kind == "bool":
        if value:
            return b"\1"
        return b"\0"
    if kind == "float":
        if math.isnan(value):
            value = math.nan
        bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
        return (bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63)).to_bytes(8, "big")
    width = type.byte_width if kind == "decimal" else 8
    return int(value + (1 << (8 * width - 1))).to_bytes(width, "big")


def _locate(value: object, kind: Kind, type: pa.DataType) -> tuple[Any, int]:
    """Return the largest value with the key's width that is not above the literal, and the tie.

    The value is a bool, int (also for dates, timestamps and unscaled decimals), float, str or
    bytes.
    """
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if kind == "bool" and isinstance(value, bool):
        return value, 0
    if kind == "int" and number:
        return _floor(value, 0, _INT64_MIN, _INT64_MAX)
    if kind == "decimal" and number:
        bound = 10**type.precision - 1
        if isinstance(value, float):
            value = Decimal(repr(value))
        return _floor(value, type.scale, -bound, bound)
    if kind == "float" and number:
        return _floor_to_float(value)
    if kind == "string" and isinstance(value, str):
        value.encode("utf-8")
        return value, 0
    if kind == "binary" and isinstance(value, bytes):
        return value, 0
    if kind in ("date", "timestamp") and isinstance(value, (str, date)):
        micros = _micros(value)
        if kind == "timestamp":
            return micros, 0
        days, remainder = divmod(micros, 86_400_000_000)
        return days, int(remainder > 0)
    raise ValueError(
        f"a literal of Python type {value.__class__.__name__} cannot be compared with values of"
        f" {type}"
    )


def _clamp(number: int, tie: int, low: int, high: int) -> tuple[int, int]:
    if number > high:
        return high, 1
    if number < low:
        return (low, -1)
    return (number, tie)


def _floor(value: Any, scale: int, low: int, high: int) -> tuple[int, int]:
    """Return floor(value * 10**scale) within [low, high], and the tie. NaN is above everything."""
    if isinstance(value, int):
        number, remainder = value * 10 ** max(scale, 0), 0
        if scale < 0:
            number, remainder = divmod(value, 10**-scale)
        return _clamp(number, int(remainder > 0), low, high)
    if math.isnan(value):
        return high, 1
    if math.isinf(value):
        if value > 0:
            return (high, 1)
        return (low, -1)
    exact = Decimal(value)
    if not exact:
        return 0, 0
    if exact.adjusted() + scale > _DECIMAL_DIGITS_MAX:
        if exact > 0:
            return (high, 1)
        return (low, -1)
    if exact.adjusted() + scale < -_DECIMAL_DIGITS_MAX:
        if exact > 0:
            return (0, 1)
        return (-1, 1)
    sign, digits, exponent = exact.as_tuple()
    unscaled = int(Decimal((sign, digits, 0)))
    power = int(exponent) + scale
    number, remainder = unscaled * 10 ** max(power, 0), 0
    if power < 0:
        number, remainder = divmod(unscaled, 10**-power)
    return _clamp(number, int(remainder > 0), low, high)


def _floor_to_float(value: Any) -> tuple[float, int]:
    """Return the largest double that is not above the literal, and the tie."""
    if isinstance(value, float) or (isinstance(value, Decimal) and not value.is_finite()):
        return float(value) if not math.isnan(value) else math.nan, 0
    largest = float(np.finfo(np.float64).max)
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if math.isinf(nearest):
        if nearest > 0:
            return (largest, 1)
        return (-math.inf, 1)
    if isinstance(value, Decimal) or nearest == value:
        return nearest, 0
    if nearest > value:
        return (math.nextafter(nearest, -math.inf), 1)
    return (nearest, 1)


def _narrow_to_float32(value: float, tie: int) -> tuple[float, int]:
    """Return the largest float32 that is not above a double, as a Python float, and the tie."""
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    if float(nearest) > value:
        nearest = np.nextafter(nearest, np.float32(-math.inf))
    return float(nearest), 1 if float(nearest) < value else tie


def _micros(value: str | date) -> int:
    """Return the microseconds since 1970 UTC of a date, a datetime or ISO 8601 text."""
    if isinstance(value, str):
        if _SUB_MICROSECOND.search(value):
            raise ValueError(
                f"{value!r} has more than six fractional digits; round to microseconds"
            )
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(
                f"{value!r} is not a date or time; write it as 2024-01-31 or 2024-01-31T12:00:00Z"
            ) from None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return (value - (_EPOCH if value.utcoffset() is None else _EPOCH_UTC)) // _MICROSECOND


def _decimal(unscaled: int, scale: int) -> Decimal:
    """Return unscaled * 10**-scale exactly. Decimal arithmetic would round to the context's
    precision.
    """
    digits = Decimal(abs(unscaled)).as_tuple().digits
    return Decimal((1 if unscaled < 0 else 0, digits, -scale))


def _float_of_bits(bits: int) -> float:
    bits = bits ^ (1 << 63) if bits >> 63 else bits ^ ((1 << 64) - 1)
    return float(struct.unpack(">d", bits.to_bytes(8, "big"))[0])


def _calendar(number: int, kind: Kind, type: pa.DataType) -> object:
    try:
        if kind == "date":
            return (_EPOCH + timedelta(days=number)).date()
        if kind == "timestamp":
            return (_EPOCH_UTC if type.tz else _EPOCH) + timedelta(microseconds=number)
    except OverflowError:
        pass
    return number


def members(literals: Sequence[object], type: pa.DataType) -> list[object] | pa.Array:
    """Return the values of ``type`` that equal any of ``literals``, without nulls.

    Literals and errors are as in :func:`place`.

    >>> members((3, 1.5, None, 300), pa.int8()), members((3, 3, 300), pa.int8()).to_pylist()
    ([3], [3])
    """
    distinct = _typed_array(literals, type)
    if distinct is not None:
        return distinct
    places = [place(value, type) for value in literals if value is not None]
    return [item.value for item in places if item.tie == 0]


def sorted_keys(literals: Sequence[object], type: pa.DataType) -> list[bytes]:
    """Return the distinct keys of the literals that a value can equal, in ascending order.

    >>> len(sorted_keys((7, 3, None, 3, 1.5), pa.int64()))
    2
    """
    distinct = _typed_array(literals, type)
    if distinct is not None:
        keys = encode(distinct)
        return [bytes(key) for key in keys.take(pc.array_sort_indices(keys)).to_pylist()]
    encoded = {encode_scalar(value, type) for value in literals if value is not None}
    return sorted(key for key in encoded if key is not None)


def _typed_array(literals: Sequence[object], type: pa.DataType) -> pa.Array | None:
    """Return the distinct literals as an array of ``type``, or None.

    This fast path requires that all literals have one Python class, str for strings or int for
    integers.
    """
    kind, plain = kind_of(type), plain_type(type)
    classes = set(map(builtins.type, literals)) - {None.__class__}
    if kind == "string" and classes == {str}:
        return pa.array(literals, pa.string()).drop_null().unique().cast(plain)
    if kind != "int" or classes != {int}:
        return None
    try:
        numbers = pa.array(literals, pa.int64()).drop_null().unique()
    except OverflowError:
        return None
    low, high = int_range(plain)
    if plain != pa.int64():
        numbers = numbers.filter(
            pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
        )
    return numbers.cast(plain)

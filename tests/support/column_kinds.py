"""Columns of every type, for readers of other formats."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

_UTC = dt.UTC
_TIMES = [dt.datetime(2024, 1, 1, 12, 0, 0, 123456), dt.datetime(1500, 1, 1), None]
_WHOLE = [dt.datetime(2024, 1, 1, 12), dt.datetime(1969, 12, 31), None]
COLUMNS = {
    "instant in us": (pa.timestamp("us", "UTC"), [t and t.replace(tzinfo=_UTC) for t in _TIMES]),
    "instant in ms": (pa.timestamp("ms", "UTC"), [t and t.replace(tzinfo=_UTC) for t in _WHOLE]),
    "local instant": (
        pa.timestamp("us", "Europe/Oslo"),
        [t and t.replace(tzinfo=_UTC) for t in _WHOLE],
    ),
    "local time in us": (pa.timestamp("us"), _TIMES),
    "local time in ms": (pa.timestamp("ms"), _WHOLE),
    "local time in s": (pa.timestamp("s"), _WHOLE),
    "uint64": (pa.uint64(), [2**64 - 1, 0, None]),
    "uint32": (pa.uint32(), [2**32 - 1, 0, None]),
    "int8": (pa.int8(), [-128, 127, None]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "float": (pa.float32(), [float("nan"), -0.0, 0.1, None]),
    "double": (pa.float64(), [float("-inf"), float("nan"), -0.0, None]),
    "decimal(9, 2)": (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("9999999.99"), None]),
    "decimal(18, 18)": (pa.decimal128(18, 18), [Decimal("0.000000000000000001"), None]),
    "decimal(38, 10)": (pa.decimal128(38, 10), [Decimal("-9999999999999999999.5"), None]),
    "fixed binary": (pa.binary(3), [b"abc", b"\xff\x00\x01", None]),
    "binary": (pa.binary(), [b"\xff", b"", None]),
    "date": (pa.date32(), [dt.date(1500, 1, 1), dt.date(2024, 2, 3), None]),
    "text": (pa.string(), ["é", "", "\U0010ffff" * 40, "a" * 63 + "é", None]),
    "words": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "list": (pa.list_(pa.int32()), [[1, None], [], None]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], [], None]),
    "list of local times": (pa.list_(pa.timestamp("us")), [[_TIMES[0]], None]),
    "map of structs": (
        pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.float64()))])),
        [[("k", {"a": [1.5]})], None],
    ),
}
"""Kind of a column -> type and values."""

PARTITION_VALUES = ("x", "Os lo", "a:b", "50%", "é", "a/b", "a+b=c&d", "#1", "[z]'\"", None)
"""Values of a partition column that paths escape, or not."""

"""Columns as users declare them: required columns, rows that fit them, and the types that
docs/schema.md lists.
"""

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")
NOON, DAY = datetime(2026, 3, 8, 12, 0, 0), date(1969, 12, 31)
ZONES = {"naive": None, "UTC": "UTC", "Oslo": "Europe/Oslo"}

FLAT = {
    "bool": (pa.bool_(), [True, False]),
    **{
        f"int{n}": (getattr(pa, f"int{n}")(), [-(2 ** (n - 1)), 2 ** (n - 1) - 1])
        for n in (8, 16, 32, 64)
    },
    **{f"uint{n}": (getattr(pa, f"uint{n}")(), [0, 2**n - 1]) for n in (8, 16, 32, 64)},
    "float16": (pa.float16(), [np.float16(1.5), np.float16(-65504)]),
    "float32": (pa.float32(), [1.5, -math.inf]),
    "float64": (pa.float64(), [0.1, 1e300]),
    **{
        f"decimal{n}": (getattr(pa, f"decimal{n}")(9, 2), [Decimal("-1.25"), Decimal("9999999.99")])
        for n in (32, 64, 128, 256)
    },
    "string": (pa.string(), ["", "\U0010ffff"]),
    "large_string": (pa.large_string(), ["", "ä"]),
    "string_view": (pa.string_view(), ["", "longer than twelve bytes"]),
    "binary": (pa.binary(), [b"", b"\xff"]),
    "large_binary": (pa.large_binary(), [b"", b"\x00"]),
    "binary_view": (pa.binary_view(), [b"", b"longer than twelve bytes"]),
    "binary3": (pa.binary(3), [b"abc", b"\x00\x00\x00"]),
    "date32": (pa.date32(), [DAY, date(9999, 12, 31)]),
    "date64": (pa.date64(), [DAY, date(1, 1, 1)]),
    **{
        f"time_{u}": (
            (pa.time32 if u in ("s", "ms") else pa.time64)(u),
            [time(0, 0, 1), time(23, 59, 59)],
        )
        for u in ("s", "ms", "us", "ns")
    },
    **{
        f"duration_{u}": (pa.duration(u), [timedelta(seconds=-1), timedelta(days=1)])
        for u in ("s", "ms", "us", "ns")
    },
    **{
        f"timestamp_{u}_{name}": (
            pa.timestamp(u, zone),
            [NOON if zone is None else NOON.replace(tzinfo=UTC), None],
        )
        for u in ("s", "ms", "us", "ns")
        for name, zone in ZONES.items()
    },
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", "y"]),
    "dictionary_of_numbers": (pa.dictionary(pa.uint16(), pa.int16()), [-1, 1]),
    "dictionary_of_large": (pa.dictionary(pa.int64(), pa.large_string()), ["x", "y"]),
}
"""Every flat type with two of its values, the smallest and the largest if there are few."""


ENCODED = {"run_ends": (pa.run_end_encoded(pa.int16(), pa.string()), ["x", "x"])}
"""Types of which pyarrow cannot build arrays from Python values."""


REQUIRED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int8(), nullable=False),
        pa.field(
            "s", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
        ),
        pa.field(
            "l",
            pa.list_(
                pa.field(
                    "item", pa.struct([pa.field("x", pa.int32(), nullable=False)]), nullable=False
                )
            ),
        ),
        pa.field(
            "m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), nullable=False
        ),
    ]
)


GOOD = {"id": 1, "v": 1, "s": {"a": 1, "b": None}, "l": [{"x": 1}], "m": [("k", 1)]}


def _table_of_types():
    section = PAGE[PAGE.index("| Arrow type |") :]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section[: section.index("\n\n")].splitlines()[2:]
    ]


NAMED_TYPES = {
    **{
        name: type
        for name, (type, _) in FLAT.items()
        if "_" not in name and not name.startswith("decimal")
    },
    **{str(type): type for type, _ in FLAT.values()},
    **{
        name: FLAT[name][0]
        for name in ("large_string", "string_view", "large_binary", "binary_view")
    },
    "decimal(p, s)": pa.decimal128(9, 2),
    "fixed_size_binary": pa.binary(3),
    "dictionary": FLAT["dictionary"][0],
    "run_end_encoded": ENCODED["run_ends"][0],
    "list": pa.list_(pa.int8()),
    "large_list": pa.large_list(pa.int8()),
    "list_view": pa.list_view(pa.int8()),
    "fixed_size_list": pa.list_(pa.int8(), 2),
    "map": pa.map_(pa.string(), pa.int8()),
    "struct": pa.struct([("a", pa.int8())]),
    "float": pa.float32(),
    "double": pa.float64(),
    **{f"timestamp[{u}, tz]": pa.timestamp(u, "Europe/Oslo") for u in ("s", "ms", "us", "ns")},
}


def types_in_readme():
    """Return name -> (type, the cells after the first) for each type that the page's
    table names.
    """
    types = {}
    for first, *others in _table_of_types():
        for name in re.findall("`([^`]+)`", first):
            types[name] = (NAMED_TYPES[name], [cell.strip("`") for cell in others])
    return types

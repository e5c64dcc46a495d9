"""Rows and results as JSON that every reader of JSON takes.

Dates, times and durations are ISO 8601 (UTC where the column has a zone; durations in seconds, as
PT90S), decimals text with all digits, bytes hexadecimal, maps lists of [key, value]; moments
outside the years 1 to 9999 are in UTC; NaN and the infinities, which JSON has not, are the texts
"NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time, timedelta
from typing import Any

import numpy as np

_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def line(value: object) -> str:
    r"""Return ``value`` as one line of JSON, without its end.

    >>> line({"fare": float("nan"), "key": b"\x01", "at": date(2024, 2, 29)})
    '{"fare": "NaN", "key": "01", "at": "2024-02-29"}'
    """
    try:
        return json.dumps(value, default=_text, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_text, ensure_ascii=False, allow_nan=False)


def _text(value: object) -> str:
    """Return what json knows nothing of as text."""
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, timedelta | np.timedelta64):
        return _duration(value)
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _duration(value: timedelta | np.timedelta64) -> str:
    """Return a duration as ISO 8601 writes it, in seconds; pandas, which pyarrow takes where it is
    installed, has nanoseconds of it.

    >>> _duration(timedelta(days=1, microseconds=-250))
    'PT86399.99975S'
    """
    if isinstance(value, np.timedelta64):
        unit = np.datetime_data(value.dtype)[0]
        nanos = int(value.astype(np.int64)) * _NANOS[unit]
    else:
        nanos = (value // timedelta(microseconds=1)) * 1_000 + getattr(value, "nanoseconds", 0)
    seconds, rest = divmod(abs(nanos), 1_000_000_000)
    return f"{'-' if nanos < 0 else ''}PT{f'{seconds}.{rest:09}'.rstrip('0').rstrip('.')}S"


def _finite(value: Any) -> Any:
    """Return ``value`` with texts in the place of numbers that JSON has not."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value

"""Rows and results as standard JSON.

Dates, times and durations are ISO 8601, in UTC if the column has a zone, with durations in seconds
such as PT90S. Decimals are texts with all digits, bytes are hexadecimal, and maps are lists of
[key, value]. Timestamps outside the years 1 to 9999 are in UTC. NaN and the infinities are the
texts "NaN", "Infinity" and "-Infinity".
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
    r"""Return ``value`` as JSON on a single line.

    >>> line({"fare": float("nan"), "key": b"\x01", "at": date(2024, 2, 29)})
    '{"fare": "NaN", "key": "01", "at": "2024-02-29"}'
    """
    try:
        return json.dumps(value, default=_text, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_text, ensure_ascii=False, allow_nan=False)


def _text(value: object) -> str:
    """Return the text of a value that ``json`` does not support."""
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, timedelta | np.timedelta64):
        return _duration(value)
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _duration(value: timedelta | np.timedelta64) -> str:
    """Return a duration in seconds as ISO 8601. pandas durations may have nanoseconds.

    >>> _duration(timedelta(days=1, microseconds=-250))
    'PT86399.99975S'
    """
    if isinstance(value, np.timedelta64):
        unit = np.datetime_data(value.dtype)[0]
        nanos = int(value.astype(np.int64)) * _NANOS[unit]
    else:
        nanos = (value // timedelta(microseconds=1)) * 1_000 + getattr(value, "nanoseconds", 0)
    seconds, fraction = divmod(abs(nanos), 1_000_000_000)
    return f"{'-' if nanos < 0 else ''}PT{f'{seconds}.{fraction:09}'.rstrip('0').rstrip('.')}S"


def _finite(value: Any) -> Any:
    """Return ``value`` with NaN and infinities replaced by texts."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

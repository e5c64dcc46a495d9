"""Rows and results as JSON that every reader of JSON takes.

Dates and times are ISO 8601 (UTC where the column has a zone), decimals text with all digits, bytes hexadecimal, maps lists of
[key, value]; NaN and the infinities, which JSON has not, are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time
from typing import Any


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
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


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

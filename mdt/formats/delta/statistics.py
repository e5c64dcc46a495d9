"""Statistics of data files in Delta's log, from our own.

Bounds may be wider than the values: deleted rows count, long texts are cut, and times are rounded
to milliseconds. A column with NaN has no maximum. Source:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from indexes import values as order
from indexes.column_stats import Stats
from mdt.formats.data_files import DataFile
from mdt.formats.delta.columns import is_local
from mdt.schema.definition import TableDefinition

_MILLISECOND = timedelta(milliseconds=1)
_EXACT_DIGITS_MAX = 15
"""Decimal digits that a double holds. Readers may parse numbers in the log as doubles."""


def stats_json(file: DataFile, definition: TableDefinition) -> str:
    """Return the statistics of a file of a table as JSON."""
    bounds: dict[str, list[str]] = {"minValues": [], "maxValues": []}
    nulls = {}
    for field, declared in zip(definition.schema, definition.declared, strict=True):
        stats = file.stats.get(field.name)
        if stats is None or stats.values != file.rows:
            continue
        nulls[field.name] = stats.nulls
        zone = "" if is_local(declared) else "Z"
        for name, text in _bounds(stats, field.type, zone):
            bounds[name].append(f"{json.dumps(field.name)}:{text}")
    parts = [f'"numRecords":{file.rows}', '"tightBounds":false']
    if nulls:
        parts += [f'"{name}":{{{",".join(texts)}}}' for name, texts in bounds.items()]
        parts.append(f'"nullCount":{json.dumps(nulls, separators=(",", ":"))}')
    return f"{{{','.join(parts)}}}"


def _bounds(stats: Stats, type: pa.DataType, zone: str) -> Iterator[tuple[str, str]]:
    """Yield the bounds that Delta can express: name, and value as JSON.

    Args:
        zone: What follows a time.
    """
    keys: Mapping[str, bytes | None] = {"minValues": stats.min, "maxValues": stats.max}
    for name, key in keys.items():
        if key is None or not order.supports(type) or (stats.nans and name == "maxValues"):
            continue
        text = _text(key, type, zone, is_upper=name == "maxValues")
        if text is not None:
            yield name, text


def _text(key: bytes, type: pa.DataType, zone: str, *, is_upper: bool) -> str | None:
    """Return a bound as JSON, or None if Delta has no form for it."""
    if pa.types.is_string(type):
        return _string(key, is_upper=is_upper)
    value = order.decode(key, type)
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, datetime):
        return _time(value, zone, is_upper=is_upper)
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return None  # beyond the years 1 to 9999
    if isinstance(value, Decimal):
        is_exact = type.precision <= _EXACT_DIGITS_MAX
        return format(value, "f") if is_exact else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value)


def _string(key: bytes, *, is_upper: bool) -> str | None:
    try:
        return json.dumps(key.decode())
    except UnicodeDecodeError:  # the bound was cut inside a character
        return None if is_upper else json.dumps(key.decode(errors="ignore"))


def _time(value: datetime, zone: str, *, is_upper: bool) -> str | None:
    rounded = value - timedelta(microseconds=value.microsecond % 1000)
    if is_upper and rounded != value:
        try:
            rounded += _MILLISECOND
        except OverflowError:
            return None
    return json.dumps(rounded.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone)

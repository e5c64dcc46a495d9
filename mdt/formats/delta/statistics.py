"""Statistics of data files in Delta's log, from our own.

Bounds may be wider than the values: deleted rows count, long texts are cut, and times are rounded
to milliseconds. A column with NaN has no maximum. Source:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from indexes import values as order
from indexes.column_stats import Stats
from mdt.formats.data_files import DataFile
from mdt.formats.delta.columns import is_local, partition_columns
from mdt.schema.definition import TableDefinition
from mdt.session import memo

_MILLISECOND = timedelta(milliseconds=1)
_EXACT_DIGITS_MAX = 15
"""Decimal digits that a double holds. Readers may parse numbers in the log as doubles."""


def stats_json(file: DataFile, definition: TableDefinition) -> str:
    """Return the statistics of a file of a table as JSON."""
    bounds: dict[str, list[str]] = {"minValues": [], "maxValues": []}
    nulls, partitions = list[str](), partition_columns(definition)
    for column in _columns(definition.schema, definition.declared) if file.stats else ():
        stats = file.stats.get(column.name)
        if stats is None or stats.values != file.rows or column.name in partitions:
            continue
        nulls.append(f"{column.label}{stats.nulls}")
        for name, text in _bounds(stats, column):
            bounds[name].append(column.label + text)
    parts = [f'"numRecords":{file.rows}', '"tightBounds":false']
    if nulls:
        every = {**bounds, "nullCount": nulls}
        parts += [f'"{name}":{{{",".join(texts)}}}' for name, texts in every.items()]
    return f"{{{','.join(parts)}}}"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with bounds.

    Attributes:
        type: Stored type.
        label: Its name in JSON, with a colon.
        zone: What follows its times.
        kind: Kind of its values (:func:`indexes.values.kind_of`).
    """

    name: str
    type: pa.DataType
    label: str
    zone: str
    kind: str | None


@memo(64)
def _columns(schema: pa.Schema, declared: pa.Schema) -> tuple[_Column, ...]:
    return tuple(
        _Column(
            field.name,
            field.type,
            f"{json.dumps(field.name)}:",
            "" if is_local(as_declared) else "Z",
            order.kind_of(field.type),
        )
        for field, as_declared in zip(schema, declared, strict=True)
        if order.supports(field.type)
    )


def _bounds(stats: Stats, column: _Column) -> Iterator[tuple[str, str]]:
    """Yield the bounds that Delta can express: name, and value as JSON."""
    if stats.min is not None:
        low = _text(stats.min, column, is_upper=False)
        if low is not None:
            yield "minValues", low
    if stats.max is not None and not stats.nans:
        high = _text(stats.max, column, is_upper=True)
        if high is not None:
            yield "maxValues", high


def _text(key: bytes, column: _Column, *, is_upper: bool) -> str | None:
    """Return a bound as JSON, or None if Delta has no form for it."""
    type = column.type
    if column.kind == "string":
        return _string(key, is_upper=is_upper)
    value = order.decode(key, type)
    if column.kind == "int":
        return str(value)
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, datetime):
        return _time(value, column.zone, is_upper=is_upper)
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return None  # beyond the years 1 to 9999
    if isinstance(value, Decimal):
        is_exact = type.precision <= _EXACT_DIGITS_MAX
        return format(value, "f") if is_exact else None
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    zero = 0.0 if is_upper else -0.0  # both have the same key, and delta-rs orders -0.0 first
    return json.dumps(value or zero)


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

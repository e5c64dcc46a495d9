"""Columns of Delta tables: their types in Delta, and what Delta's readers cannot read.

Readers find the columns of a file by name, and take a missing one for null.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mdt.formats.types import FLAT
from mdt.schema.declared import plain
from mdt.schema.definition import TableDefinition
from mdt.schema.nested import fields_of, holds, is_local_time

_FLAT = {**FLAT, pa.int32(): "integer"}
"""Stored type -> type in Delta."""


def schema_json(stored: pa.Schema, declared: pa.Schema) -> dict[str, Any]:
    """Return the schema of a Delta table. All columns are nullable, because only its own writers
    would check that they are not.
    """
    return {"type": "struct", "fields": _fields(list(stored), list(declared))}


def partition_columns(definition: TableDefinition) -> tuple[str, ...]:
    """Return the partition columns that Delta knows as such, if partition paths are
    ``column=value``, because some readers take the values from the path. Others are columns like
    all, whose values are in the files.
    """
    if not definition.hive_style or definition.time_path is not None:
        return ()
    return definition.partition_by


def has_local_times(declared: pa.Schema) -> bool:
    """Return True if a column or field is a timestamp without time zone."""
    return any(map(is_local, declared))


def is_local(field: pa.Field) -> bool:
    """Return True if a declared field has timestamps without time zone, at any depth."""
    return holds(plain(field.type), is_local_time)


def _fields(stored: list[pa.Field], declared: list[pa.Field]) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "type": _type(field.type, plain(as_declared.type)),
            "nullable": True,
            "metadata": {},
        }
        for field, as_declared in zip(stored, declared, strict=True)
    ]


def _type(stored: pa.DataType, declared: pa.DataType) -> Any:
    kinds = pa.types
    if kinds.is_timestamp(stored):
        return "timestamp_ntz" if declared.tz is None else "timestamp"
    if kinds.is_decimal(stored):
        return f"decimal({stored.precision},{stored.scale})"
    if not stored.num_fields:
        return _FLAT[stored]
    if kinds.is_struct(stored):
        return {"type": "struct", "fields": _fields(fields_of(stored), fields_of(declared))}
    *keys, value = (
        _type(field.type, plain(as_declared.type))
        for field, as_declared in zip(fields_of(stored), fields_of(declared), strict=True)
    )
    if keys:
        return {"type": "map", "keyType": keys[0], "valueType": value, "valueContainsNull": True}
    return {"type": "array", "elementType": value, "containsNull": True}

"""Columns of Delta tables: their types in Delta, and what Delta's readers cannot read.

Readers find the columns of a file by name, and take a missing one for null.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from mdt.schema.definition import TableDefinition
from mdt.schema.names import inside
from mdt.schema.nested import fields_of

Refusal = tuple[str, str]
"""Path of a column, and why it cannot be in the table."""

_FLAT = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
"""Stored type -> type in Delta."""
_COUNTS = (pa.types.is_time, pa.types.is_duration)
"""Declared types that are stored as numbers."""


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


def type_refusals(declared: pa.Schema) -> Iterator[Refusal]:
    """Yield the columns and fields whose type Delta does not have."""
    for field in declared:
        yield from _type_refusals(field, field.name)


def _type_refusals(field: pa.Field, path: str) -> Iterator[Refusal]:
    type = _plain(field.type)
    if any(is_kind(type) for is_kind in _COUNTS):
        yield path, f"has the type {type}, which its readers see as a number"
    for child in inside(type):
        yield from _type_refusals(child, f"{path}.{child.name}")


def _plain(type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary or run-end encoded type."""
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return _plain(type.value_type)
    return type


def is_local(field: pa.Field) -> bool:
    """Return True if a declared field has timestamps without time zone, at any depth."""
    type = _plain(field.type)
    if pa.types.is_timestamp(type):
        return type.tz is None
    return any(map(is_local, fields_of(type)))


def _fields(stored: list[pa.Field], declared: list[pa.Field]) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "type": _type(field.type, _plain(as_declared.type)),
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
        _type(field.type, _plain(as_declared.type))
        for field, as_declared in zip(fields_of(stored), fields_of(declared), strict=True)
    )
    if keys:
        return {"type": "map", "keyType": keys[0], "valueType": value, "valueContainsNull": True}
    return {"type": "array", "elementType": value, "containsNull": True}

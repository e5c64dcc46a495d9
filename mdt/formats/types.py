"""Types of columns in other formats, and declared types that these do not have."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mdt.schema.declared import plain
from mdt.schema.names import inside

Refusal = tuple[str, str]
"""Path of a column, and why it cannot be in the table."""

FLAT = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
"""Stored type -> type in Iceberg."""
_COUNTS = (pa.types.is_time, pa.types.is_duration)
"""Declared types that are stored as numbers."""


def type_refusals(declared: pa.Schema) -> Iterator[Refusal]:
    """Yield the columns and fields whose type is a number in files."""
    for field in declared:
        yield from _type_refusals(field, field.name)


def _type_refusals(field: pa.Field, path: str) -> Iterator[Refusal]:
    type = plain(field.type)
    if any(is_kind(type) for is_kind in _COUNTS):
        yield path, f"has the type {type}, which its readers see as a number"
    for child in inside(type):
        yield from _type_refusals(child, f"{path}.{child.name}")

"""Declared types that no other format has, and helpers for types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mdt.schema.names import inside

Refusal = tuple[str, str]
"""Path of a column, and why it cannot be in the table."""

_COUNTS = (pa.types.is_time, pa.types.is_duration)
"""Declared types that are stored as numbers."""


def type_refusals(declared: pa.Schema) -> Iterator[Refusal]:
    """Yield the columns and fields whose type is a number in files."""
    for field in declared:
        yield from _type_refusals(field, field.name)


def _type_refusals(field: pa.Field, path: str) -> Iterator[Refusal]:
    type = plain_type(field.type)
    if any(is_kind(type) for is_kind in _COUNTS):
        yield path, f"has the type {type}, which its readers see as a number"
    for child in inside(type):
        yield from _type_refusals(child, f"{path}.{child.name}")


def plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary or run-end encoded type."""
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return plain_type(type.value_type)
    return type

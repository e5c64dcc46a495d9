"""Skipping indexes of a table, by their specifications."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from indexes import paths, registry
from indexes.base import SkippingIndex
from mdt.errors import Invalid


def find_index(spec: registry.IndexSpec) -> SkippingIndex | str:
    """Return the index of a specification, or why it cannot be used."""
    cls = registry.find(spec.kind)
    if isinstance(cls, registry.Unknown):
        return cls.reason
    try:
        return cls(**spec.options)
    except (TypeError, ValueError) as error:
        return f"its options are not possible: {error}"


def index_of(text: str) -> tuple[registry.IndexSpec, SkippingIndex | str]:
    """Return a specification that the table keeps, parsed, and its index or why that cannot be used."""
    spec = registry.parse_spec(text)
    return spec, find_index(spec)


def named_spec(text: str, schema: pa.Schema) -> str:
    """Return the specification ``text`` with the persisted name of its class, version included.

    Raises Invalid for text that does not parse, an unknown kind or column, impossible options or an unsupported type.
    """
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    if not spec.column:
        raise Invalid(f"index {text!r} names no column", hint=f"write {text}(column)")
    field = paths.field_at(schema, spec.column)
    if field is None:
        raise Invalid(f"index {text}: the schema has no column {spec.column!r}", hint=f"it has {', '.join(schema.names)}")
    index = find_index(spec)
    if isinstance(index, str):
        raise Invalid(f"index {text!r} cannot be used: {index}")
    if not index.supports(field.type):
        raise Invalid(f"index {text!r} does not support columns of type {field.type}")
    return str(replace(spec, kind=index.name))

"""Skipping indexes of a table, by their specifications: their classes, the columns that they are of, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import pyarrow as pa

from indexes import paths, registry
from indexes.base import InMemory, SkippingIndex, Summary
from indexes.blocks import Blocks, pack
from mdt.errors import Invalid
from mdt.schema.definition import TableDefinition

ROW_GROUPS_KIND = b"groups/1"
"""The container of the summaries of a segment's row groups, one block each (``indexes.blocks``)."""


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


def explained(definition: TableDefinition, text: str, reason: str) -> str:
    """Return why an index of the table cannot be used, with the package that had it."""
    package = definition.packages.get(registry.parse_spec(text).kind)
    return f"{reason}; install the package {package}, which had it" if package else reason


def unusable(definition: TableDefinition) -> Iterator[tuple[str, str]]:
    """Yield each index of the table that this process cannot use, and why."""
    for text in definition.indexes:
        _, index = index_of(text)
        if isinstance(index, str):
            yield text, explained(definition, text, index)


def packages_of(texts: Iterable[str]) -> dict[str, str]:
    """Return for the indexes of other packages among the specifications ``texts``: persisted name -> package."""
    found = {}
    for text in texts:
        kind = registry.parse_spec(text).kind
        for cls in (registry.find(kind), registry.find_key_index(kind)):
            if not isinstance(cls, registry.Unknown) and cls.name == kind and registry.package(cls):
                found[kind] = registry.package(cls)
    return found


def named_spec(text: str, schema: pa.Schema) -> str:
    """Return the specification ``text`` with the persisted name of its class, version included.

    Raises Invalid for text that does not parse, an unknown kind or column, impossible options or an unsupported type.
    """
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    if not spec.columns:
        raise Invalid(f"index {text!r} names no column", hint=f"write {text}(column)")
    for column in spec.columns:
        if paths.field_at(schema, column) is None:
            hint = f"it has {', '.join(schema.names)}"
            raise Invalid(f"index {text}: the schema has no column {column!r}", hint=hint)
    index = find_index(spec)
    if isinstance(index, str):
        raise Invalid(f"index {text!r} cannot be used: {index}")
    if len(spec.columns) > 1 and not index.several_columns:
        hint = " and ".join(str(replace(spec, columns=(column,))) for column in spec.columns)
        raise Invalid(f"index {text!r} names {len(spec.columns)} columns; {spec.kind} is of one", hint=f"create {hint}")
    type = type_of(schema, spec.columns, index)
    if not index.supports(type):
        raise Invalid(f"index {text!r} does not support columns of type {type}")
    return str(replace(spec, kind=index.name))


def type_of(schema: pa.Schema, columns: Sequence[str], index: SkippingIndex) -> pa.DataType:
    """Return the type that ``index`` sees: that of its column, or a struct of its ``columns`` by their paths."""
    types = [paths.type_at(schema, column) for column in columns]
    return pa.struct(list(zip(columns, types, strict=True))) if index.several_columns else types[0]


def values_of(table: pa.Table, columns: Sequence[str], index: SkippingIndex) -> pa.Array:
    """Return what ``index`` summarizes -> [rows], of the type that :func:`type_of` says; no row of a struct is null."""
    arrays = [paths.column_at(table, column).combine_chunks() for column in columns]
    return pa.StructArray.from_arrays(arrays, list(columns)) if index.several_columns else arrays[0]


def summarized(index: SkippingIndex, table: pa.Table, columns: Sequence[str], row_groups: Sequence[int]) -> bytes:
    """Return the summary of a segment: of all of its rows, or of each row group, ``row_groups[i]`` rows each, in a container."""
    if not index.row_groups or len(row_groups) < 2:
        return index.summarize(values_of(table, columns, index))
    starts = accumulate(row_groups, initial=0)
    parts = [
        values_of(table.slice(start, rows), columns, index) for start, rows in zip(starts, row_groups, strict=False)
    ]
    return pack([index.summarize(part) for part in parts], kind=ROW_GROUPS_KIND)


def row_group_summaries(summary: Summary, row_groups: int) -> list[Summary]:
    """Return the summary of each row group of a segment that has ``row_groups``; the reverse of :func:`summarized`.

    Raises ValueError for bytes that are no container of so many.
    """
    if row_groups < 2:
        return [summary]
    parts = Blocks.open(summary, ROW_GROUPS_KIND)
    if parts.count != row_groups:
        raise ValueError(f"summaries of {parts.count} row groups of a file that has {row_groups}")
    return [InMemory(part) for part in parts.read_range(0, row_groups)]


def top_levels(schema: pa.Schema, specs: Iterable[str]) -> pa.Schema:
    """Return the top-level columns that the indexes ``specs`` are of."""
    wanted = {paths.top_level(schema, column) for spec in specs for column in registry.parse_spec(spec).columns}
    return pa.schema([field for field in schema if field.name in wanted])

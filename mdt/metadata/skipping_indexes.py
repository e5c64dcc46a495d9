"""Skipping indexes of tables, by specification: their classes, columns and availability."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from indexes import paths, registry
from indexes.base import InMemory, SkippingIndex, Summary
from indexes.blocks import Blocks, pack
from mdt.arguments import nearest, shown
from mdt.errors import Invalid
from mdt.filters.leaves import column_name
from mdt.limits import NAME_BYTES_MAX
from mdt.schema.definition import TableDefinition

PARTS_KIND = b"parts/1"
"""Container kind for the summaries of a shard's parts: its segments, or their row groups
(``indexes.blocks``).
"""


def find_index(spec: registry.IndexSpec) -> SkippingIndex | str:
    """Return the index of a specification, or the reason why it cannot be used."""
    cls = registry.find(spec.kind)
    if isinstance(cls, registry.Unknown):
        return cls.reason
    try:
        return registry.create(cls, spec.options)
    except ValueError as error:
        return f"invalid options: {error}"


def index_of(text: str) -> tuple[registry.IndexSpec, SkippingIndex | str]:
    """Return a stored specification, parsed, and its index or the reason why it cannot be used."""
    spec = registry.parse_spec(text)
    return spec, find_index(spec)


def explained(definition: TableDefinition, text: str, reason: str) -> str:
    """Return ``reason``, with the package of the index if it is third-party."""
    package = definition.packages.get(registry.parse_spec(text).kind)
    if not package:
        return reason
    return f"{reason}; install the package {package}"


def unusable(definition: TableDefinition) -> Iterator[tuple[str, str]]:
    """Yield each index of the table that this process cannot use, and the reason."""
    for text in definition.indexes:
        _, index = index_of(text)
        if isinstance(index, str):
            yield text, explained(definition, text, index)


def packages_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the packages of the third-party indexes in ``texts``, by persisted name."""
    packages = {}
    for text in texts:
        kind = registry.parse_spec(text).kind
        for cls in (registry.find(kind), registry.find_key_index(kind)):
            if not isinstance(cls, registry.Unknown) and cls.name == kind and registry.package(cls):
                packages[kind] = registry.package(cls)
    return packages


def named_spec(text: str, schema: pa.Schema) -> str:
    """Return the specification ``text`` with the persisted name of its class, version included.

    Raises Invalid for text that does not parse, an unknown kind or column, invalid options or an
    unsupported type.
    """
    try:
        spec = registry.parse_spec(text)
    except ValueError as error:
        raise Invalid(str(error)) from error
    if not spec.columns:
        raise Invalid(f"index {text!r} names no column", hint=f"write {text}(column)")
    try:
        spec = replace(spec, columns=tuple(column_name(column, schema) for column in spec.columns))
    except Invalid as error:
        raise Invalid(f"index {text}: {error.message}", hint=error.hint) from None
    index = find_index(spec)
    if isinstance(index, str):
        kinds = {name.partition("/")[0] for name in registry.names()}.difference({spec.kind})
        raise Invalid(f"index {text!r} cannot be used: {index}", hint=nearest(spec.kind, kinds))
    if len(spec.columns) > 1 and not index.several_columns:
        hint = " and ".join(str(replace(spec, columns=(column,))) for column in spec.columns)
        raise Invalid(
            f"index {text!r} names {len(spec.columns)} columns; {spec.kind} covers one",
            hint=f"create {hint}",
        )
    type = type_of(schema, spec.columns, index)
    if not index.supports(type):
        raise Invalid(f"index {text!r} does not support columns of type {type}")
    name = str(replace(spec, kind=index.name))
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise Invalid(
            f"index {shown(text)} has a specification of {size:,} bytes, more than"
            f" {NAME_BYTES_MAX:,}",
            hint="rename the column to a shorter name",
        )
    return name


def type_of(schema: pa.Schema, columns: Sequence[str], index: SkippingIndex) -> pa.DataType:
    """Return the type that ``index`` sees: its column's, or a struct of its ``columns`` by path."""
    types = [paths.type_at(schema, column) for column in columns]
    if not index.several_columns:
        return types[0]
    return pa.struct(list(zip(columns, types, strict=True)))


def values_of(table: pa.Table, columns: Sequence[str], index: SkippingIndex) -> pa.Array:
    """Return the values that ``index`` summarizes -> [rows], of the type in :func:`type_of`.

    Structs are never null.
    """
    arrays = [paths.column_at(table, column).combine_chunks() for column in columns]
    if not index.several_columns:
        return arrays[0]
    return pa.StructArray.from_arrays(arrays, list(columns))


def parts_of(
    index: SkippingIndex, table: pa.Table, columns: Sequence[str], row_groups: Sequence[int]
) -> list[tuple[int, bytes]]:
    """Return the first row and the summary of each part of a segment.

    The parts are the row groups, with ``row_groups`` rows each, or the whole segment.  Only for
    indexes that do not find rows.
    """
    if not index.row_groups or len(row_groups) < 2:
        return [(0, index.summarize(values_of(table, columns, index)))]
    parts = []
    for start, rows in zip(accumulate(row_groups, initial=0), row_groups, strict=False):
        parts.append((start, index.summarize(values_of(table.slice(start, rows), columns, index))))
    return parts


def pack_parts(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the summary of a shard: the first rows of its ``parts`` (uint32, ascending), then
    their summaries.
    """
    first = np.array([start for start, _ in parts], "<u4")
    return pack([first.tobytes(), *(summary for _, summary in parts)], kind=PARTS_KIND)


class Parts:
    """The summary of a shard, for indexes that do not find rows."""

    def __init__(self, summary: Summary) -> None:
        """Raises ValueError for bytes that :func:`pack_parts` did not write."""
        self._blocks = Blocks.open(summary, PARTS_KIND)
        if not self._blocks.count:
            raise ValueError("a summary without first rows")
        first = self._blocks.read(0)
        if len(first) != 4 * (self._blocks.count - 1):
            raise ValueError(f"{len(first)} bytes of first rows for {self._blocks.count - 1} parts")
        self._first = np.frombuffer(first, "<u4").tolist()
        self._known: dict[int, Summary] = {}

    def within(self, start: int, stop: int, count: int) -> list[Summary]:
        """Return the summaries of the parts whose first rows are in [start, stop).

        Raises ValueError unless there are ``count``.
        """
        low, high = bisect_left(self._first, start), bisect_left(self._first, stop)
        if high - low != count:
            raise ValueError(f"a segment of {count} parts has {high - low} summaries")
        return list(map(self._part, range(low, high)))

    def _part(self, at: int) -> Summary:
        if at not in self._known:
            self._known[at] = InMemory(self._blocks.read(at + 1))
        return self._known[at]


def top_levels(schema: pa.Schema, specs: Iterable[str]) -> pa.Schema:
    """Return the top-level columns that the indexes ``specs`` cover."""
    names = {
        paths.top_level(schema, column)
        for spec in specs
        for column in registry.parse_spec(spec).columns
    }
    return pa.schema([field for field in schema if field.name in names])

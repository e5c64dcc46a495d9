"""Reading files of older schema versions as the newest version.

A :class:`Form` lists the columns to read from a file whose schema version or column names differ
from the current ones, and converts them. Columns are matched by id, so renamed columns are found
and dropped columns are ignored. Columns that the file lacks are null or their default, and narrow
values are widened. Nested fields are treated alike. Every reader goes through :func:`form_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mdt.schema.convert import fill_required
from mdt.schema.definition import TableDefinition
from mdt.schema.nested import parts_of, rebuild
from mdt.schema.versions import Column, SchemaVersion, version_of
from mdt.session import memo

_ALWAYS = "_hoodie_commit_time"
"""A column of every file. It is read for the number of rows if the file has none of the requested
columns.
"""

Defaults = Mapping[int, pa.Scalar]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The conversion of a file's columns to the current schema.

    Attributes:
        stored: Columns to read from the file.
        wanted: Columns that :meth:`convert` returns.
        sources: For each wanted column, (column in the file, column in the newest version). The
            first is None if the file is older than the column. The entry is None for Hudi's meta
            columns.
        defaults: Column id -> value in files that are older than the column.
    """

    stored: pa.Schema
    wanted: pa.Schema
    sources: tuple[tuple[Column | None, Column] | None, ...]
    defaults: Defaults

    def convert(self, table: pa.Table) -> pa.Table:
        """Convert rows with the columns ``stored`` to the columns ``wanted``. O(values that
        differ).
        """
        columns = [
            self._column(table, field, pair)
            for field, pair in zip(self.wanted, self.sources, strict=True)
        ]
        return pa.table(columns, schema=self.wanted)

    def _column(
        self, table: pa.Table, field: pa.Field, pair: tuple[Column | None, Column] | None
    ) -> pa.ChunkedArray | pa.Array:
        if pair is None:
            return table[field.name]
        source, target = pair
        if source is None:
            return _missing_column(target, len(table), self.defaults)
        chunks = [
            convert_field(chunk, source, target, self.defaults)
            for chunk in table[source.field.name].chunks
        ]
        return pa.chunked_array(chunks, target.type)


def form_of(definition: TableDefinition, segment: int, schema: pa.Schema) -> Form | None:
    """Return the conversion of a file to the columns ``schema``, or None if none is needed.

    ``segment`` is the segment number of the file; ``schema`` may contain Hudi's meta columns. The
    result is always None for tables that were never altered and whose column names Avro allows.
    """
    if not definition.versions and not definition.has_other_names:
        return None
    newest = source = definition.version
    if definition.versions:
        source = version_of(definition.versions, segment)
    if source is newest and source.file_columns is source.columns:
        return None
    return _form(source, newest, tuple(schema.names), in_file=True)


def form_between(source: SchemaVersion, target: SchemaVersion, schema: pa.Schema) -> Form | None:
    """Return the conversion of rows from version ``source`` to ``target``, or None if none is
    needed.
    """
    if source is target:
        return None
    return _form(source, target, tuple(schema.names), in_file=False)


@memo(1024)
def _form(
    source: SchemaVersion, target: SchemaVersion, names: tuple[str, ...], *, in_file: bool
) -> Form | None:
    available = source.columns
    if in_file:
        available = source.file_columns
    by_id = {column.id: column for column in available}
    current = {column.field.name: column for column in target.columns}
    pairs = [
        (by_id.get(current[name].id), current[name]) if name in current else None for name in names
    ]
    if all(pair is None or (pair[0] is not None and _is_same(pair[0], pair[1])) for pair in pairs):
        return None
    meta = [
        pa.field(name, pa.string()) for name, pair in zip(names, pairs, strict=True) if pair is None
    ]
    read = [pair[0].field for pair in pairs if pair is not None and pair[0] is not None]
    stored = pa.schema([*meta, *read] or [pa.field(_ALWAYS, pa.string())])
    fields = [
        pa.field(name, pa.string()) if p is None else p[1].field
        for name, p in zip(names, pairs, strict=True)
    ]
    return Form(stored, pa.schema(fields), tuple(pairs), target.defaults)


def _is_same(source: Column, target: Column) -> bool:
    """Return True if Parquet pages of ``source`` are valid pages of ``target``.

    Nullability must match too, because nullable columns store definition levels.
    """
    return target.is_same_column(source) and source.field.nullable == target.field.nullable


def convert_field(array: pa.Array, source: Column, target: Column, defaults: Defaults) -> pa.Array:
    """Convert n values of the field ``source`` to ``target``, the same field in a newer version."""
    if not target.children:
        return widen(array, target.type)
    if target.has_equal_fields(source):
        return array
    if pa.types.is_struct(target.type):
        fields = list(_fields(array, source, target, defaults))
        return fill_required(rebuild(array, fields, target.type), target.type)
    pairs = zip(parts_of(array), source.children, target.children, strict=True)
    parts = [convert_field(part, old, new, defaults) for part, old, new in pairs]
    return rebuild(array, parts, target.type)


def _fields(
    array: pa.StructArray, source: Column, target: Column, defaults: Defaults
) -> Iterator[pa.Array]:
    positions = {child.id: position for position, child in enumerate(source.children)}
    for child in target.children:
        position = positions.get(child.id)
        if position is None:
            yield _missing_column(child, len(array), defaults)
        else:
            yield convert_field(array.field(position), source.children[position], child, defaults)


def _missing_column(column: Column, rows: int, defaults: Defaults) -> pa.Array:
    """Return the values of a column for ``rows`` rows of a file that is older than the column."""
    default = defaults.get(column.id)
    if default is not None:
        return pa.repeat(default, rows)
    return fill_required(pa.nulls(rows, column.type), column.type)


def widen(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert flat values to a wider ``type`` (:func:`mdt.schema.versions.widens`).

    Integers beyond 2^53 become the nearest double. A float becomes the double with the same
    shortest decimal text, as in Hudi's readers.

    >>> widen(pa.array([7, None], pa.int32()), pa.float64()).to_pylist()
    [7.0, None]
    >>> widen(pa.array([0.1], pa.float32()), pa.float64()).to_pylist()
    [0.1]
    """
    if array.type == type:
        return array
    if pa.types.is_timestamp(type):
        return array.cast(pa.timestamp(type.unit)).cast(type)
    if pa.types.is_floating(array.type):
        return array.cast(pa.string()).cast(type)
    return pc.cast(array, type, safe=not pa.types.is_floating(type))

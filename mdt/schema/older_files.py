"""Files of older versions of the schema, read as the newest one: the one function that every reader
goes through.

A :class:`Form` says what to read of a file that was written with another version, or whose columns
Hudi's readers know by other names, and makes the wanted columns of it: by ids, so renamed columns
are found and dropped ones are not; what the file is too old to have is null or its default; narrow
values become wide ones.  Nested fields alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mdt.schema.convert import filled
from mdt.schema.definition import TableDefinition
from mdt.schema.nested import parts_of, put_together
from mdt.schema.versions import Column, SchemaVersion, version_of
from mdt.session import memo

_ALWAYS = "_hoodie_commit_time"
"""A column that every file has: read where a file has none of the wanted ones, for its number of
rows.
"""

Defaults = Mapping[int, pa.Scalar]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What a file of an older version gives.

    ``stored``: the columns to read of it; ``wanted``: what :meth:`converted` makes of them;
    ``sources``: for each of these its column in the file and in the newest version, None for a
    column that the file is too old to have, no pair for Hudi's.
    """

    stored: pa.Schema
    wanted: pa.Schema
    sources: tuple[tuple[Column | None, Column] | None, ...]
    defaults: Defaults

    def converted(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table``, columns ``stored``, with the columns ``wanted``.  O(values
        that differ).
        """
        columns = [
            self._column(table, field, of)
            for field, of in zip(self.wanted, self.sources, strict=True)
        ]
        return pa.table(columns, schema=self.wanted)

    def _column(
        self, table: pa.Table, field: pa.Field, of: tuple[Column | None, Column] | None
    ) -> pa.ChunkedArray | pa.Array:
        if of is None:
            return table[field.name]
        source, target = of
        if source is None:
            return _absent(target, len(table), self.defaults)
        chunks = [
            converted(chunk, source, target, self.defaults)
            for chunk in table[source.field.name].chunks
        ]
        return pa.chunked_array(chunks, target.type)


def form_of(definition: TableDefinition, segment: int, schema: pa.Schema) -> Form | None:
    """Return how the columns ``schema`` (Hudi's may be among them) come out of the file with the
    segment number ``segment``.

    None if they stand there as they are: always, in a table that was never altered and whose names
    Avro allows.
    """
    if not definition.versions and not definition.has_other_names:
        return None
    newest = source = definition.version
    if definition.versions:
        source = version_of(definition.versions, segment)
    if source is newest and source.file_columns is source.columns:
        return None
    return _form(source, newest, tuple(schema.names), of_file=True)


def form_between(source: SchemaVersion, target: SchemaVersion, schema: pa.Schema) -> Form | None:
    """Return how the columns ``schema`` of the version ``target`` come out of rows of ``source``;
    None if they stand there as they are.
    """
    if source is target:
        return None
    return _form(source, target, tuple(schema.names), of_file=False)


@memo(1024)
def _form(
    source: SchemaVersion, target: SchemaVersion, names: tuple[str, ...], *, of_file: bool
) -> Form | None:
    there = source.columns
    if of_file:
        there = source.file_columns
    of_id = {column.id: column for column in there}
    now = {column.field.name: column for column in target.columns}
    pairs = [(of_id.get(now[name].id), now[name]) if name in now else None for name in names]
    if all(pair is None or (pair[0] is not None and _is_same(pair[0], pair[1])) for pair in pairs):
        return None
    meta = [
        pa.field(name, pa.string()) for name, pair in zip(names, pairs, strict=True) if pair is None
    ]
    read = [pair[0].field for pair in pairs if pair is not None and pair[0] is not None]
    stored = pa.schema([*meta, *read] or [pa.field(_ALWAYS, pa.string())])
    wanted = [
        pa.field(name, pa.string()) if p is None else p[1].field
        for name, p in zip(names, pairs, strict=True)
    ]
    return Form(stored, pa.schema(wanted), tuple(pairs), target.defaults)


def _is_same(source: Column, target: Column) -> bool:
    """Return whether pages of ``source`` are pages of ``target``: a column that may be null has a
    bit more for each value.
    """
    return target.is_as(source) and source.field.nullable == target.field.nullable


def converted(array: pa.Array, source: Column, target: Column, defaults: Defaults) -> pa.Array:
    """Return values of the field ``source`` of an older version as those of ``target``, the same
    field of a newer one, [n].
    """
    if not target.children:
        return widened(array, target.type)
    if target.is_inside_as(source):
        return array
    if pa.types.is_struct(target.type):
        fields = list(_fields(array, source, target, defaults))
        return filled(put_together(array, fields, target.type), target.type)
    pairs = zip(parts_of(array), source.children, target.children, strict=True)
    parts = [converted(part, old, new, defaults) for part, old, new in pairs]
    return put_together(array, parts, target.type)


def _fields(
    array: pa.StructArray, source: Column, target: Column, defaults: Defaults
) -> Iterator[pa.Array]:
    place = {child.id: at for at, child in enumerate(source.children)}
    for child in target.children:
        at = place.get(child.id)
        if at is None:
            yield _absent(child, len(array), defaults)
        else:
            yield converted(array.field(at), source.children[at], child, defaults)


def _absent(column: Column, rows: int, defaults: Defaults) -> pa.Array:
    """Return what ``rows`` rows have in a column that their file is too old to have."""
    default = defaults.get(column.id)
    if default is not None:
        return pa.repeat(default, rows)
    return filled(pa.nulls(rows, column.type), column.type)


def widened(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return flat values as those of a wider ``type``: see :func:`mdt.schema.versions.widens`.

    Whole numbers beyond 2^53 become the nearest double.  A float becomes the double of its shortest
    text, as Hudi's readers have it.

    >>> widened(pa.array([7, None], pa.int32()), pa.float64()).to_pylist()
    [7.0, None]
    >>> widened(pa.array([0.1], pa.float32()), pa.float64()).to_pylist()
    [0.1]
    """
    if array.type == type:
        return array
    if pa.types.is_timestamp(type):
        return array.cast(pa.timestamp(type.unit)).cast(type)
    if pa.types.is_floating(array.type):
        return array.cast(pa.string()).cast(type)
    return pc.cast(array, type, safe=not pa.types.is_floating(type))

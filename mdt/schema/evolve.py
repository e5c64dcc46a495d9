"""Schema evolution on write: the alteration that makes wider input data fit a table.

Only changes that Hudi's readers handle without help are made automatically: new columns, which are
null in older rows, and wider numbers. Columns that the data lacks become null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from mdt.errors import Invalid
from mdt.schema.alter import Alteration, may_widen, quote
from mdt.schema.convert import is_encoded
from mdt.schema.declared import plain
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.schema.input import to_table
from mdt.schema.nested import fields_of, is_list, parts_of, rebuild, with_fields

_ARRAYS = ("__arrow_c_stream__", "__arrow_c_array__", "__array__")
"""Attributes of array-like data, which has types of its own."""


def to_typed_table(data: Any, schema: pa.Schema | None) -> pa.Table:
    """Return ``data`` as an Arrow table, with Python values typed by the columns ``schema``.

    Fields that ``schema`` lacks are kept. Raises Invalid as :func:`mdt.schema.input.to_table` does.
    """
    if (
        schema is None
        or any(hasattr(data, name) for name in _ARRAYS)
        or not isinstance(data, Iterable)
    ):
        return to_table(data, schema)
    data = data if isinstance(data, Mapping) else list(data)
    try:
        types = {field.name: field.type for field in to_table(data).schema}
    except Invalid:  # mixed types, which may still fit the known columns
        return to_table(data, schema)
    fields = [
        field.with_type(_with_added_fields(plain(field.type), types.get(field.name, field.type)))
        for field in schema
    ]
    return to_table(data, pa.schema(fields))


def _with_added_fields(type: pa.DataType, data_type: pa.DataType) -> pa.DataType:
    """Return the type ``type`` with the additional struct fields of ``data_type``."""
    if pa.types.is_struct(type) and pa.types.is_struct(data_type):
        added = {field.name: field for field in data_type}
        fields = [f.with_type(_with_added_fields(f.type, added.pop(f.name, f).type)) for f in type]
        return pa.struct(
            [*fields, *(field for field in added.values() if not pa.types.is_null(field.type))]
        )
    if is_list(type) and is_list(data_type):
        element = type.value_field.with_type(
            _with_added_fields(type.value_type, data_type.value_type)
        )
        return with_fields(type, [element])
    return type


def evolution(data: pa.Schema, definition: TableDefinition) -> Alteration:
    """Return the alteration that makes ``data`` fit the table; empty (false) if none is needed.

    Key, partition and ordering columns are never altered. Columns with an incompatible type are not
    altered either; the conversion of the rows reports them.
    """
    add: dict[str, pa.Field] = {}
    widen: dict[str, pa.DataType] = {}
    declared = {field.name: field for field in definition.declared}
    for column in data:
        if column.name not in declared:
            if not pa.types.is_null(column.type) and column.name != IS_DELETED:
                add[quote(column.name)] = _nullable(column)
        elif column.name not in definition.fixed:
            for path, field in _differences(column, declared[column.name], quote(column.name)):
                if field.name:
                    add[path] = _nullable(field)
                else:
                    widen[path] = field.type
    return Alteration(add=add, widen=widen)


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True).remove_metadata()


def _differences(
    data_field: pa.Field, table_field: pa.Field, path: str
) -> Iterator[tuple[str, pa.Field]]:
    """Yield (path, field) for every difference between ``data_field`` and ``table_field``.

    An added field keeps its name. A wider type is yielded as a field with an empty name.
    """
    type, known_type = data_field.type, table_field.type
    if pa.types.is_struct(type) and pa.types.is_struct(known_type):
        inside = {field.name: field for field in known_type}
        for field in type:
            below = f"{path}.{quote(field.name)}"
            if field.name in inside:
                yield from _differences(field, inside[field.name], below)
            elif not pa.types.is_null(field.type):
                yield below, field
    elif pa.types.is_map(type) and pa.types.is_map(known_type):
        yield from _differences(type.item_field, known_type.item_field, f"{path}.value")
    elif is_list(type) and is_list(known_type):
        yield from _differences(type.value_field, known_type.value_field, f"{path}.element")
    else:
        type = type.value_type if is_encoded(type) else type
        if (
            may_widen(known_type, type)
            and not pa.types.is_date(known_type)
            and known_type not in (pa.string(), pa.binary())
        ):
            yield path, pa.field("", type)


def add_missing_columns(data: pa.Table, definition: TableDefinition) -> pa.Table:
    """Return ``data`` with null in the columns and struct fields that only the table has.

    Unknown columns of type null are dropped.
    """
    declared = {field.name: field for field in definition.declared}
    columns = {}
    for field, column in zip(data.schema, data.columns, strict=True):
        if field.name in declared:
            chunks = column.chunks or [pa.nulls(0, column.type)]
            columns[field.name] = pa.chunked_array(
                [_add_missing_fields(chunk, declared[field.name].type) for chunk in chunks]
            )
        elif not pa.types.is_null(field.type):
            columns[field.name] = column
    for field in definition.declared:
        if field.name not in columns:
            columns[field.name] = pa.chunked_array([pa.nulls(len(data), plain(field.type))])
    return pa.table(columns)


def complete_pieces(pieces: Iterator[pa.Table], definition: TableDefinition) -> Iterator[pa.Table]:
    """Yield ``pieces`` completed as by :func:`add_missing_columns`.

    The first piece has all columns. Later pieces have only the columns that they brought.
    """
    yield add_missing_columns(next(pieces), definition)
    for piece in pieces:
        complete = add_missing_columns(piece, definition)
        yield complete.select(
            [name for name in complete.column_names if name in piece.column_names]
        )


def _add_missing_fields(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a nested array with null in the fields that only ``target`` has."""
    type = array.type
    if pa.types.is_struct(type) and pa.types.is_struct(target):
        known_types = {field.name: field.type for field in target}
        parts = {
            field.name: _add_missing_fields(part, known_types.get(field.name, field.type))
            for field, part in zip(type, parts_of(array), strict=True)
        }
        for name in [name for name in known_types if name not in parts]:
            parts[name] = pa.nulls(len(array), plain(known_types[name]))
        fields = [pa.field(name, part.type) for name, part in parts.items()]
        return rebuild(array, list(parts.values()), pa.struct(fields))
    is_alike = (is_list(type) and is_list(target)) or (
        pa.types.is_map(type) and pa.types.is_map(target)
    )
    if not is_alike or not any(field.type.num_fields for field in fields_of(type)):
        return array
    pairs = zip(parts_of(array), fields_of(target), strict=True)
    inside = [_add_missing_fields(part, field.type) for part, field in pairs]
    fields = [f.with_type(part.type) for f, part in zip(fields_of(type), inside, strict=True)]
    kind = type if pa.types.is_map(type) else pa.list_(type.value_type)
    return rebuild(array, inside, with_fields(kind, fields))

"""Schema evolution on write: the alteration that makes wider input data fit a table.

Only changes that Hudi's readers handle without help are made automatically: new columns, which are
null in older rows, and wider numbers. Columns that the data lacks become null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from mdt.errors import Invalid
from mdt.schema.alter import Alteration, may_widen, quoted
from mdt.schema.convert import is_encoded
from mdt.schema.declared import plain
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.schema.input import to_table
from mdt.schema.nested import fields_of, is_list, parts_of, put_together, with_fields

_ARRAYS = ("__arrow_c_stream__", "__arrow_c_array__", "__array__")
"""Attributes of array-like data, which has types of its own."""


def typed(data: Any, known: pa.Schema | None) -> pa.Table:
    """Return ``data`` as an Arrow table, with Python values typed by the columns ``known``.

    Fields that ``known`` lacks are kept. Raises Invalid as :func:`mdt.schema.input.to_table` does.
    """
    if (
        known is None
        or any(hasattr(data, name) for name in _ARRAYS)
        or not isinstance(data, Iterable)
    ):
        return to_table(data, known)
    data = data if isinstance(data, Mapping) else list(data)
    try:
        types = {field.name: field.type for field in to_table(data).schema}
    except Invalid:  # mixed types, which may still fit the known columns
        return to_table(data, known)
    fields = [
        field.with_type(_with_more(plain(field.type), types.get(field.name, field.type)))
        for field in known
    ]
    return to_table(data, pa.schema(fields))


def _with_more(known: pa.DataType, given: pa.DataType) -> pa.DataType:
    """Return the type ``known`` with the additional struct fields of ``given``."""
    if pa.types.is_struct(known) and pa.types.is_struct(given):
        added = {field.name: field for field in given}
        fields = [f.with_type(_with_more(f.type, added.pop(f.name, f).type)) for f in known]
        return pa.struct(
            [*fields, *(field for field in added.values() if not pa.types.is_null(field.type))]
        )
    if is_list(known) and is_list(given):
        element = known.value_field.with_type(_with_more(known.value_type, given.value_type))
        return with_fields(known, [element])
    return known


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
                add[quoted(column.name)] = _nullable(column)
        elif column.name not in definition.fixed:
            for path, field in _differences(column, declared[column.name], quoted(column.name)):
                if field.name:
                    add[path] = _nullable(field)
                else:
                    widen[path] = field.type
    return Alteration(add=add, widen=widen)


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True).remove_metadata()


def _differences(given: pa.Field, known: pa.Field, path: str) -> Iterator[tuple[str, pa.Field]]:
    """Yield (path, field) for every difference between ``given`` and ``known``.

    An added field keeps its name. A wider type is yielded as a field with an empty name.
    """
    type, known_type = given.type, known.type
    if pa.types.is_struct(type) and pa.types.is_struct(known_type):
        inside = {field.name: field for field in known_type}
        for field in type:
            below = f"{path}.{quoted(field.name)}"
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


def completed(data: pa.Table, definition: TableDefinition) -> pa.Table:
    """Return ``data`` with null in the columns and struct fields that only the table has.

    Unknown columns of type null are dropped.
    """
    declared = {field.name: field for field in definition.declared}
    columns = {}
    for field, column in zip(data.schema, data.columns, strict=True):
        if field.name in declared:
            chunks = column.chunks or [pa.nulls(0, column.type)]
            columns[field.name] = pa.chunked_array(
                [_completed(chunk, declared[field.name].type) for chunk in chunks]
            )
        elif not pa.types.is_null(field.type):
            columns[field.name] = column
    for field in definition.declared:
        if field.name not in columns:
            columns[field.name] = pa.chunked_array([pa.nulls(len(data), plain(field.type))])
    return pa.table(columns)


def completed_pieces(pieces: Iterator[pa.Table], definition: TableDefinition) -> Iterator[pa.Table]:
    """Yield ``pieces`` completed as by :func:`completed`.

    The first piece has all columns. Later pieces have only the columns that they brought.
    """
    yield completed(next(pieces), definition)
    for piece in pieces:
        complete = completed(piece, definition)
        yield complete.select(
            [name for name in complete.column_names if name in piece.column_names]
        )


def _completed(array: pa.Array, known: pa.DataType) -> pa.Array:
    """Return a nested array with null in the fields that only ``known`` has."""
    type = array.type
    if pa.types.is_struct(type) and pa.types.is_struct(known):
        known_types = {field.name: field.type for field in known}
        parts = {
            field.name: _completed(part, known_types.get(field.name, field.type))
            for field, part in zip(type, parts_of(array), strict=True)
        }
        for name in [name for name in known_types if name not in parts]:
            parts[name] = pa.nulls(len(array), plain(known_types[name]))
        fields = [pa.field(name, part.type) for name, part in parts.items()]
        return put_together(array, list(parts.values()), pa.struct(fields))
    is_alike = (is_list(type) and is_list(known)) or (
        pa.types.is_map(type) and pa.types.is_map(known)
    )
    if not is_alike or not any(field.type.num_fields for field in fields_of(type)):
        return array
    pairs = zip(parts_of(array), fields_of(known), strict=True)
    inside = [_completed(part, field.type) for part, field in pairs]
    fields = [f.with_type(part.type) for f, part in zip(fields_of(type), inside, strict=True)]
    kind = type if pa.types.is_map(type) else pa.list_(type.value_type)
    return put_together(array, inside, with_fields(kind, fields))

"""The rows that a merge takes: as they were given, where they are copied, and as a table would keep
them, where SQL reads them.

Expressions of a merge are functions of one table with columns called ``source.x``, ``given.x`` (the
same column as it came) and ``target.x``: rows of both sides, put beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from indexes.arrays import taken
from indexes.base import Int64Array
from mdt.errors import Invalid
from mdt.schema.conform import conform, refuse_repeated
from mdt.schema.convert import convert
from mdt.schema.declared import movable, plain, stored
from mdt.schema.definition import TableDefinition

SOURCE, GIVEN, TARGET = "source.", "given.", "target."
"""What the names of columns begin with, by where they come from."""
_ROWS = "rows"
"""A column that is always there: it says how many rows there are."""


class Source:
    """``table``: n rows, matched with those of a table that ``definition`` describes.  Safe to use
    from threads.
    """

    def __init__(self, table: pa.Table, definition: TableDefinition) -> None:
        refuse_repeated(table.column_names)
        # Arrow would join all chunks of a column whenever some rows are taken.
        self.table = _joinable(table).combine_chunks()
        self._definition = definition
        self._columns: dict[str, pa.ChunkedArray] = {}
        self.schema = pa.schema(
            [pa.field(SOURCE + field.name, self._type(field)) for field in table.schema]
        )
        """The columns as expressions see them."""

    def __len__(self) -> int:
        return len(self.table)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column as a table would keep it -> [n].  Raises Invalid if a value does not
        fit.
        """
        if name not in self._columns:
            self._columns[name] = self._converted(name)
        return self._columns[name]

    def stored_as(self, name: str, target: str) -> pa.ChunkedArray:
        """Return a column as the column ``target`` of the table would have it -> [n].  Raises
        Invalid if a value does not fit.
        """
        forms = self._definition.declared, self._definition.schema
        declared, kept = (pa.schema([of.field(target).with_nullable(True)]) for of in forms)
        given = self.table.select([name]).rename_columns([target])
        return conform(given, declared, kept)[target]

    def _type(self, field: pa.Field) -> pa.DataType:
        """Return the type in which a column is read: that of the table's column, but for numbers
        and text, which keep their own.
        """
        known = self._definition.schema
        if known.get_field_index(field.name) >= 0 and not _is_simple(field.type):
            return known.field(field.name).type
        try:
            return stored(pa.schema([pa.field("x", field.type)])).field("x").type
        except Invalid:  # it can be copied, and not more
            return field.type

    def _converted(self, name: str) -> pa.ChunkedArray:
        column, type = self.table[name], self.schema.field(SOURCE + name).type
        if column.type == type:
            return column
        if name in self._definition.schema.names and not _is_simple(column.type):
            return self.stored_as(name, name)
        try:
            return pa.chunked_array([convert(chunk, type) for chunk in column.chunks], type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise Invalid(
                f"column {name!r} of the source, {column.type}, cannot be read as {type}: {error}"
            ) from error

    def beside(self, names: Iterable[str], rows: Int64Array, target: pa.Table) -> pa.Table:
        """Return columns ``names`` of the rows at ``rows`` -> int64[m], beside those of as many
        rows of the ``target``.
        """
        found = {_ROWS: pa.array(rows)}
        for name in names:
            if name.startswith(TARGET):
                found[name] = target[name.removeprefix(TARGET)]
            else:
                found[name] = taken(pa.table({name: self._asked(name)}), rows)[name]
        return pa.table(found)

    def _asked(self, name: str) -> pa.ChunkedArray:
        """Return a column of the source by the name that expressions call it."""
        if name.startswith(GIVEN):
            return self.table[name.removeprefix(GIVEN)]
        return self.column(name.removeprefix(SOURCE))

    def nothing(self, names: Iterable[str]) -> pa.Table:
        """Return :meth:`beside` of no rows: by it an expression shows what types it gives."""
        return self.beside(names, np.empty(0, np.int64), self._definition.schema.empty_table())


def _joinable(table: pa.Table) -> pa.Table:
    """Return the same rows without what pyarrow does not join: views, and dictionaries of several
    chunks, which may be more than one holds.
    """
    for i, field in enumerate(table.schema):
        type = movable(field.type)
        is_view = type != plain(field.type)
        if is_view or (type != field.type and table[i].num_chunks > 1):
            chunks = [convert(chunk, type) for chunk in table[i].chunks]
            table = table.set_column(i, field.with_type(type), pa.chunked_array(chunks, type))
    return table


def _is_simple(type: pa.DataType) -> bool:
    """Return whether values of a type mean the same whatever column they stand in, as numbers and
    text do.
    """
    kinds, type = pa.types, plain(type)
    is_number = kinds.is_integer(type) or kinds.is_floating(type) or kinds.is_decimal(type)
    is_text = kinds.is_string(type) or kinds.is_large_string(type) or kinds.is_string_view(type)
    return bool(is_number or is_text or kinds.is_boolean(type))


def as_target(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns of the table as expressions call them."""
    return [field.with_name(TARGET + field.name) for field in schema]


def target_columns(names: Iterable[str]) -> set[str]:
    """Return which columns of the table expressions read that read ``names``."""
    return {name.removeprefix(TARGET) for name in names if name.startswith(TARGET)}

"""The source rows of a merge, in two forms: as given, for copies, and in stored types, for SQL.

Expressions of a merge are functions of a table with the columns ``source.x``, ``given.x`` (the same
column as given) and ``target.x``: source rows and table rows side by side.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from indexes.arrays import take_rows
from indexes.base import Int64Array
from mdt.errors import Invalid
from mdt.filters.arithmetic import is_number, is_text
from mdt.schema.conform import conform, refuse_repeated
from mdt.schema.convert import convert
from mdt.schema.declared import plain, stored_schema, without_views
from mdt.schema.definition import TableDefinition

SOURCE, GIVEN, TARGET = "source.", "given.", "target."
"""Prefixes of column names in expressions."""
_ROWS = "rows"
"""Extra column that fixes the number of rows."""


class Source:
    """The source of a merge into a table with ``definition``. Thread-safe.

    Attributes:
        table: The n rows as given.
        schema: The columns as seen by expressions.
    """

    def __init__(self, table: pa.Table, definition: TableDefinition) -> None:
        refuse_repeated(table.column_names)
        # Arrow joins all chunks of a column for each take.
        self.table = _joinable(table).combine_chunks()
        self._definition = definition
        self._columns: dict[str, pa.ChunkedArray] = {}
        self.schema = pa.schema(
            [pa.field(SOURCE + field.name, self._type(field)) for field in table.schema]
        )

    def __len__(self) -> int:
        return len(self.table)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column in its stored type -> [n]. Raises Invalid if a value does not fit."""
        if name not in self._columns:
            self._columns[name] = self._convert(name)
        return self._columns[name]

    def stored_as(self, name: str, target: str) -> pa.ChunkedArray:
        """Return a column in the stored type of the table column ``target`` -> [n]. Raises Invalid
        if a value does not fit.
        """
        forms = self._definition.declared, self._definition.schema
        declared, stored_schema = (
            pa.schema([schema.field(target).with_nullable(True)]) for schema in forms
        )
        column = self.table.select([name]).rename_columns([target])
        return conform(column, declared, stored_schema)[target]

    def _type(self, field: pa.Field) -> pa.DataType:
        """Return the type of a column in expressions.

        This is the type of the table column with the same name. Numbers and text keep their own
        type.
        """
        table_schema = self._definition.schema
        if table_schema.get_field_index(field.name) >= 0 and not _is_simple(field.type):
            return table_schema.field(field.name).type
        try:
            return stored_schema(pa.schema([pa.field("x", field.type)])).field("x").type
        except Invalid:  # the column can only be copied
            return field.type

    def _convert(self, name: str) -> pa.ChunkedArray:
        column, type = self.table[name], self.schema.field(SOURCE + name).type
        if column.type == type:
            return column
        if name in self._definition.schema.names and not _is_simple(column.type):
            return self.stored_as(name, name)
        try:
            return pa.chunked_array([convert(chunk, type) for chunk in column.chunks], type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise Invalid(
                f"source column {name!r} ({column.type}) cannot be converted to {type}: {error}"
            ) from error

    def beside(self, names: Iterable[str], rows: Int64Array, target: pa.Table) -> pa.Table:
        """Return the columns ``names`` for m pairs.

        Args:
            rows: int64[m], row numbers in the source.
            target: m rows of the table.
        """
        columns = {_ROWS: pa.array(rows)}
        for name in names:
            if name.startswith(TARGET):
                columns[name] = target[name.removeprefix(TARGET)]
            else:
                columns[name] = take_rows(pa.table({name: self._column(name)}), rows)[name]
        return pa.table(columns)

    def _column(self, name: str) -> pa.ChunkedArray:
        """Return a source column by its name in expressions."""
        if name.startswith(GIVEN):
            return self.table[name.removeprefix(GIVEN)]
        return self.column(name.removeprefix(SOURCE))

    def nothing(self, names: Iterable[str]) -> pa.Table:
        """Return :meth:`beside` for no rows, to determine the types of expressions."""
        return self.beside(names, np.empty(0, np.int64), self._definition.schema.empty_table())


def _joinable(table: pa.Table) -> pa.Table:
    """Return the rows without types that pyarrow cannot join.

    These are views and dictionaries with several chunks, whose union may exceed the index type.
    """
    for i, field in enumerate(table.schema):
        type = without_views(field.type)
        is_view = type != plain(field.type)
        if is_view or (type != field.type and table[i].num_chunks > 1):
            chunks = [convert(chunk, type) for chunk in table[i].chunks]
            table = table.set_column(i, field.with_type(type), pa.chunked_array(chunks, type))
    return table


def _is_simple(type: pa.DataType) -> bool:
    """Return True if values of a type mean the same in every column, as numbers and text do."""
    kinds, type = pa.types, plain(type)
    is_alike = is_number(type) or is_text(type) or kinds.is_string_view(type)
    return bool(is_alike or kinds.is_boolean(type))


def as_target(schema: pa.Schema) -> list[pa.Field]:
    """Return the table columns as expressions name them."""
    return [field.with_name(TARGET + field.name) for field in schema]


def target_columns(names: Iterable[str]) -> set[str]:
    """Return the table columns among the expression columns ``names``."""
    return {name.removeprefix(TARGET) for name in names if name.startswith(TARGET)}

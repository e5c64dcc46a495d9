"""What decides how the rows of a table that Hudi wrote are merged, and its application to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.log_merge import Events
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.block_rows import deleted_rows
from mdt.hudi.read.log_blocks import LogBlock
from mdt.hudi.read.table_properties import (
    EVENT_TIME,
    FILL_UNAVAILABLE,
    IGNORE_DEFAULTS,
    TableProperties,
)
from mdt.hudi.read.table_schema import TableSchema
from mdt.hudi.record_keys import as_text
from mdt.schema.nested import fields_of

Bools = npt.NDArray[np.bool_]

IS_DELETED = "_hoodie_is_deleted"
OPERATION = "_hoodie_operation"
_DELETE_OPERATIONS = ("D", "-U")
"""Deletes, and rows before an update."""
_CACHED = range(-128, 128)
"""Hudi compares values with defaults by identity. Java has a single object for each of these."""

ColumnPath = tuple[str, ...]
"""Name of a column, and of the fields in it that lead to a value."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The rules of a table.

    Attributes:
        table: Its properties.
        schema: Its columns.
        key: Path of each record key field.
        ordering: Path of each ordering field, empty for a field that is not in the schema. Hudi
            does not require it to be there. Without a path that is not empty, rows are merged by
            commit time.
        delete_column: Column whose value may mark a row of a log file as a delete, or "".
        columns: All columns that merging needs.
    """

    table: TableProperties
    schema: TableSchema
    key: Sequence[ColumnPath]
    ordering: Sequence[ColumnPath]
    delete_column: str
    columns: frozenset[str]

    @classmethod
    def from_properties(cls, table: TableProperties, schema: TableSchema) -> MergeRules:
        """Return the rules of a table. Raises Unsupported for keys or ordering fields of other
        types.
        """
        key_fields = [RECORD_KEY] if table.meta_fields else table.key_fields
        key = [_path(schema.columns, name) for name in key_fields]
        for path, name in zip(key, key_fields, strict=True):
            if not path:
                raise Unsupported(f"the record key field {name!r} is not a column of the table")
        ordering: list[ColumnPath] = []
        if table.merge_mode == EVENT_TIME:
            ordering = [_path(schema.columns, name) for name in table.ordering_fields]
            _require_ordered([path for path in ordering if path], schema.columns)
        delete_column, _ = table.delete_mark
        if delete_column not in schema.columns.names:
            delete_column = ""
        columns = {path[0] for path in (*key, *ordering) if path}
        columns |= {IS_DELETED, delete_column} & set(schema.columns.names)
        return cls(table, schema, key, ordering, delete_column, frozenset(columns))

    def base_events(self, rows: pa.Table, path: str) -> Events:
        """Return the rows (n) of a base file as events. Raises Corrupt for a null key."""
        return Events(self._keys(rows, path), self._ordering(rows), np.zeros(len(rows), np.bool_))

    def log_events(self, rows: pa.Table, operations: pa.ChunkedArray | None, path: str) -> Events:
        """Return the rows (n) of a data block as events, including those that mark deletes.

        Args:
            rows: Columns of the table.
            operations: Values of ``_hoodie_operation``, if the block has it.

        Raises Corrupt for a null key.
        """
        is_delete = np.zeros(len(rows), np.bool_)
        for marks in self._delete_marks(rows, operations):
            is_delete |= marks.fill_null(False).to_numpy(zero_copy_only=False)
        return Events(self._keys(rows, path), self._ordering(rows), is_delete, is_delete)

    def delete_events(self, block: LogBlock) -> Events:
        """Return the deletes (n) of a delete block as events. Raises Corrupt for a null key."""
        types = [_type(self.schema.columns, path) for path in self.ordering]
        keys, columns = deleted_rows(block, types)
        ordering = [column for column, path in zip(columns, self.ordering, strict=True) if path]
        return Events(_present(keys, block.path), ordering, np.ones(len(keys), np.bool_))

    def has_value(self, values: pa.ChunkedArray, name: str) -> Bools:
        """Return True for values that replace older ones of the column ``name``, bool[n]."""
        has_value = np.ones(len(values), np.bool_)
        if self.table.partial_update == IGNORE_DEFAULTS:
            return has_value & ~_is_default(values, self.schema.defaults.get(name))
        mark = self.table.unavailable_value
        if self.table.partial_update != FILL_UNAVAILABLE or not mark:
            return has_value
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            is_mark = pc.equal(values, pa.scalar(mark).cast(values.type))
            has_value &= ~is_mark.fill_null(False).to_numpy()
        return has_value

    def _keys(self, rows: pa.Table, path: str) -> pa.Array:
        columns = [_values(rows, name) for name in self.key]
        if self.table.meta_fields:
            return _present(columns[0], path)
        texts = []
        for name, values in zip(self.table.key_fields, columns, strict=True):
            try:
                texts.append(as_text(values, name))
            except Invalid as error:
                raise Unsupported(error.message, hint=error.hint) from error
        if len(texts) == 1:
            return _present(texts[0], path)
        _present(pc.coalesce(*texts), path)
        parts: list[pa.Array | str] = []
        for name, text in zip(self.table.key_fields, texts, strict=True):
            parts += [f",{name}:" if parts else f"{name}:", _with_words(text)]
        return pc.binary_join_element_wise(*parts, "")

    def _ordering(self, rows: pa.Table) -> list[pa.Array]:
        return [_values(rows, path) for path in self.ordering if path]

    def _delete_marks(
        self, rows: pa.Table, operations: pa.ChunkedArray | None
    ) -> list[pa.ChunkedArray]:
        """Return the columns, bool[n], that are true for deletes."""
        marks = []
        if IS_DELETED in rows.column_names and pa.types.is_boolean(rows[IS_DELETED].type):
            marks.append(rows[IS_DELETED])
        if operations is not None:
            marks.append(pc.is_in(operations, pa.array(_DELETE_OPERATIONS)))
        if self.delete_column:
            texts = rows[self.delete_column].cast(pa.string())
            marks.append(pc.equal(texts, self.table.delete_mark[1]))
        return marks


def _path(schema: pa.Schema, name: str) -> ColumnPath:
    """Return the path of a field, or () if it is not in the schema.

    >>> _path(pa.schema({"id": pa.int64(), "a": pa.struct({"b": pa.int64()})}), "a.b")
    ('a', 'b')
    """
    if name in schema.names:
        return (name,)
    path = tuple(name.split("."))
    return () if pa.types.is_null(_type(schema, path)) else path


def _type(schema: pa.Schema, path: ColumnPath) -> pa.DataType:
    """Return the type of the values at ``path``, null if there are none."""
    fields: Mapping[str, pa.Field] = {field.name: field for field in schema}
    type = pa.null()
    for name in path:
        if name not in fields:
            return pa.null()
        type = fields[name].type
        fields = {child.name: child for child in fields_of(type) if pa.types.is_struct(type)}
    return type


def _require_ordered(paths: Sequence[ColumnPath], schema: pa.Schema) -> None:
    for path in paths:
        type = _type(schema, path)
        if fields_of(type):
            raise Unsupported(f"the ordering field {'.'.join(path)!r} has the type {type}")


def _values(rows: pa.Table, path: ColumnPath) -> pa.Array:
    try:
        values = plain(rows[path[0]])
    except pa.ArrowInvalid as error:
        raise Unsupported(f"column {path[0]!r} of a file is too large: {error}") from error
    return pc.struct_field(values, list(path[1:])) if path[1:] else values


def _present(keys: pa.Array, path: str) -> pa.Array:
    if keys.null_count:
        raise Corrupt("a record key is null", path=path)
    return keys


def _with_words(texts: pa.Array) -> pa.Array:
    """Return a part of keys of several fields with Hudi's words for null and empty texts."""
    texts = texts.fill_null("__null__")
    return pc.if_else(pc.equal(texts, ""), "__empty__", texts)


def _is_default(values: pa.ChunkedArray, default: object) -> Bools:
    """Return True where Hudi takes a value for the default of its column, bool[n].

    Only null, booleans and small integers can be the default (``PartialUpdateHandler.java``).
    """
    if default is None:
        is_default = values.is_null()
    elif _can_be(default, values.type):
        is_default = pc.equal(values, default).fill_null(False)
    else:
        return np.zeros(len(values), np.bool_)
    result: Bools = is_default.to_numpy()
    return result


def _can_be(default: object, type: pa.DataType) -> bool:
    if isinstance(default, bool):
        return bool(pa.types.is_boolean(type))
    return bool(pa.types.is_integer(type)) and default in _CACHED

"""The definition of a table that another Hudi writer created."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from indexes.key_hash import SECRET_BYTES, MultilinearHash
from mdt.errors import Invalid, Unsupported
from mdt.hudi.avro_schema import META_FIELDS, RECORD_KEY
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.read.table_schema import TableSchema
from mdt.limits import SCHEMA_VERSIONS_BYTES_MAX
from mdt.schema.declared import stored_schema
from mdt.schema.definition import TableDefinition
from mdt.schema.nested import fields_of, holds, is_local_time, with_fields
from mdt.schema.versions import (
    Column,
    SchemaVersion,
    check_form,
    first_version,
    free_id,
    stored_bytes,
)
from mdt.stores.storage import Storage


def definition_of(table: TableProperties, columns: pa.Schema, storage: Storage) -> TableDefinition:
    """Return the definition of a table.

    Args:
        columns: The data columns, without Hudi's meta columns.

    Raises Unsupported for columns that our tables cannot have.
    """
    partition_by = table.partition_fields
    if not set(partition_by) <= set(columns.names):
        partition_by = ()
    ordering = table.ordering_fields
    if not set(ordering) <= set(columns.names):
        ordering = ()
    key = table.key_fields if set(table.key_fields) <= set(columns.names) else ()
    return TableDefinition(
        storage.random_hex(16),
        table.name,
        table.table_type,
        stored_columns(nullable_columns(columns)),
        columns,
        key,
        partition_by,
        ordering,
        "simple",
        "partition",
        MultilinearHash(bytes.fromhex(storage.random_hex(SECRET_BYTES))),
        options={"mdt.hive.style": str(table.hive_style).lower()},
        hudi_version=table.version,
    )


def changed_version(
    definition: TableDefinition, columns: pa.Schema, since: int, numbered: str = ""
) -> SchemaVersion | None:
    """Return the schema version with the columns of another writer, None if they are the same.

    Args:
        numbered: The columns with the numbers of Hudi's schema on read, as JSON, or "".

    Raises Unsupported for a change that the log cannot describe.
    """
    if not known_columns(definition, columns).equals(definition.schema):
        if definition.has_other_names:
            raise _changed(
                "it has column names that Avro does not allow",
                hint="mdt.open(path) reads the table",
            )
        version = next_version(definition, with_known_nulls(definition, columns), since)
        version = replace(version, numbered=numbered)
    elif numbered == definition.numbered:
        return None
    else:
        now = definition.version
        parts = now.schema, now.declared, now.ids, now.defaults
        version = SchemaVersion(since, *parts, numbered=numbered)
    if stored_bytes((*definition.versions, version)) > SCHEMA_VERSIONS_BYTES_MAX:
        raise _changed(f"its schemas take more than {SCHEMA_VERSIONS_BYTES_MAX:,} bytes")
    try:
        definition.with_version(version)
    except ValueError as error:
        raise _changed(str(error)) from error
    return version


def _changed(problem: str, hint: str = "mdt.open(path) reads the table anew") -> Unsupported:
    return Unsupported(f"another writer has changed the columns of the table: {problem}", hint=hint)


def next_version(definition: TableDefinition, columns: pa.Schema, since: int) -> SchemaVersion:
    """Return the schema version with ``columns``, for a record that adds all files again.

    A column keeps its id if its older values can be read as the new ones. Older files are read for
    the rows before an update or a delete.
    """
    stored, newest = known_columns(definition, columns), definition.version
    known = {column.field.name: column for column in newest.columns}
    new_ids = count(free_id(definition.versions or (newest,)))
    ids = list[int]()
    for column in first_version(stored, columns).columns:
        ids += _ids(column, known.get(column.field.name), new_ids)
    return SchemaVersion(since, stored, columns, tuple(ids))


def _ids(column: Column, before: Column | None, new_ids: Iterator[int]) -> Iterator[int]:
    """Yield the ids of a column and of the fields in it, parents first.

    Args:
        before: The column or field of the same name in the version before.
    """
    known = dict[str, Column]()
    if before is not None and _can_follow(column, before):
        yield before.id
        known = {child.field.name: child for child in before.children}
    else:
        yield next(new_ids)
    for child in column.children:
        yield from _ids(child, known.get(child.field.name), new_ids)


def _can_follow(column: Column, before: Column) -> bool:
    try:
        check_form(before.field, column.field)
    except ValueError:
        return False
    return True


def data_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table without Hudi's meta columns."""
    return pa.schema([field for field in schema if field.name not in META_FIELDS])


def stored_columns(columns: pa.Schema) -> pa.Schema:
    """Return the columns in the types of our files. Names that we reserve are allowed, because
    Hudi's tables have such columns, as ``_hoodie_is_deleted``.
    """
    numbered = [field.with_name(f"c{number}") for number, field in enumerate(columns)]
    try:
        stored = stored_schema(pa.schema(numbered))
    except Invalid as error:
        raise Unsupported(f"the table cannot be read: {error.message}", hint=error.hint) from error
    pairs = zip(stored, columns.names, strict=True)
    return pa.schema([field.with_name(name) for field, name in pairs])


def require_writable_columns(
    schema: TableSchema, fixed: Collection[str], *, is_adopted: bool
) -> None:
    """Raise Unsupported for columns that a commit of mdt would give another type in the schema of
    the table, because Hudi's writers are refused afterwards, and for columns that were renamed,
    because our log cannot describe the older files.

    Args:
        fixed: The key, partition and ordering columns.
        is_adopted: True for tables that Hudi has created. Others have no times without a zone.
    """
    if schema.history is not None:
        raise Unsupported(
            "mdt cannot write to a table whose columns were renamed, or dropped and added again",
            hint="mdt.open(path) reads the table",
        )
    for column in data_columns(schema.columns):
        if holds(column.type, is_local_time) and not (is_adopted and column.name not in fixed):
            _refuse(column.name, "times without a time zone (timestamp_ntz, local-timestamp)")
        if holds(column.type, pa.types.is_fixed_size_binary):
            _refuse(column.name, "bytes of a fixed length (Avro's type fixed)")
    fields = json.loads(schema.avro)["fields"] if schema.avro else ()
    for field in fields:
        for type in _avro_types(field["type"]):
            if type["type"] == "enum":
                _refuse(field["name"], "values of Avro's type enum")
            if type.get("logicalType") == "vector":
                _refuse(field["name"], "values of Hudi's type VECTOR")


def _refuse(name: str, problem: str) -> None:
    raise Unsupported(
        f"mdt cannot write column {name!r}: it has {problem}",
        hint="mdt.open(path) reads the table",
    )


def _avro_types(type: Any) -> Iterator[dict[str, Any]]:
    """Yield an Avro type, as JSON, and all types in it, except for those that are only names."""
    if isinstance(type, list):
        for branch in type:
            yield from _avro_types(branch)
    elif isinstance(type, dict):
        yield type
        for name in ("type", "items", "values"):
            yield from _avro_types(type.get(name))
        for field in type.get("fields", ()):
            yield from _avro_types(field["type"])


def nullable_columns(columns: pa.Schema) -> pa.Schema:
    """Return the columns as nullable. SQL statements of Hudi make required columns nullable."""
    return pa.schema([column.with_nullable(True) for column in columns])


def known_columns(definition: TableDefinition, columns: pa.Schema) -> pa.Schema:
    """Return the columns of another writer in the types of our files, with our knowledge of
    nulls.
    """
    return stored_columns(with_known_nulls(definition, columns))


def with_generated_key(columns: pa.Schema) -> pa.Schema:
    """Return the columns with that of generated keys in front."""
    if RECORD_KEY in columns.names:
        return columns
    return pa.schema([pa.field(RECORD_KEY, pa.string()), *columns])


def with_known_nulls(definition: TableDefinition, columns: pa.Schema) -> pa.Schema:
    """Return the columns of another writer with our knowledge of nulls, and with that of generated
    keys if the table has them.

    Columns and nested fields that may have nulls in our files stay nullable, and new columns are
    nullable. Key, partition and ordering columns cannot change.
    """
    fields = []
    if definition.has_generated_keys:
        columns = with_generated_key(columns)
    for column in columns:
        is_nullable = True
        if column.name in definition.schema.names:
            known = definition.schema.field(column.name)
            is_nullable = known.nullable or (
                column.nullable and column.name not in definition.fixed
            )
            column = column.with_type(_with_known_nulls(column.type, known.type))
        fields.append(column.with_nullable(is_nullable))
    return pa.schema(fields)


def _with_known_nulls(type: pa.DataType, known: pa.DataType) -> pa.DataType:
    """Return a type whose nested fields are nullable if they are so in ``known``."""
    if type.id != known.id:
        return type
    before = {field.name: field for field in fields_of(known)}
    fields = []
    for field in fields_of(type):
        old = before.get(field.name)
        if old is not None:
            nested = _with_known_nulls(field.type, old.type)
            field = field.with_type(nested).with_nullable(field.nullable or old.nullable)
        fields.append(field)
    return with_fields(type, fields)

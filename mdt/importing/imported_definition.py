"""The definition of a table that another Hudi writer created."""

from __future__ import annotations

import pyarrow as pa

from indexes.key_hash import SECRET_BYTES, MultilinearHash
from mdt.errors import Invalid, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.read.table_properties import TableProperties
from mdt.schema.declared import stored_schema
from mdt.schema.definition import TableDefinition
from mdt.schema.versions import SchemaVersion, first_version, free_id
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
    ordering = None
    if len(table.ordering_fields) == 1 and table.ordering_fields[0] in columns.names:
        [ordering] = table.ordering_fields
    key = table.key_fields if set(table.key_fields) <= set(columns.names) else ()
    return TableDefinition(
        storage.random_hex(16),
        table.name,
        table.table_type,
        _stored(columns),
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


def next_version(definition: TableDefinition, columns: pa.Schema, since: int) -> SchemaVersion:
    """Return the schema version with ``columns``, for a record that adds all files again.

    No older file is read as this version, so all columns get new ids except the fixed ones.
    """
    stored, newest = _stored(columns), definition.version
    known = {column.field.name: column for column in newest.columns}
    ids, following = list[int](), free_id(definition.versions or (newest,))
    for column in first_version(stored, columns).columns:
        nodes = [node.id for node in column.walk()]
        if column.field.name in definition.fixed and column.field.name in known:
            ids += [node.id for node in known[column.field.name].walk()]
        else:
            ids += range(following, following + len(nodes))
            following += len(nodes)
    return SchemaVersion(since, stored, columns, tuple(ids))


def data_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table without Hudi's meta columns."""
    return pa.schema([field for field in schema if field.name not in META_FIELDS])


def _stored(columns: pa.Schema) -> pa.Schema:
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

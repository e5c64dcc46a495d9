"""Writes by ``df.write.format("mdt")`` and SQL: the operation of each mode, and the creation of
missing tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import given_options, late
from mdt import table as tables
from mdt.arguments import named_column, nearest, one_of
from mdt.create_table import discard
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.skipping_indexes import named_spec
from mdt.schema.delete_marks import IS_DELETED
from mdt.source.option_keywords import SourceOptions
from mdt.stores.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mdt.schema.definition import TableDefinition
    from mdt.write.result import WriteResult

OPERATIONS = (
    "upsert",
    "insert",
    "bulk_insert",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete",
)
"""Values of the option ``operation``, which are methods of a table."""

_BEFORE_WRITES = frozenset({"create", "rollback"})
"""Operations of a table without any write of rows."""
_READING = ("as_of", "since", "until", "changes")
_PARTITIONS, _TABLE = "insert_overwrite", "insert_overwrite_table"
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


def write(
    options: SourceOptions,
    how: str,
    rows: DataFrame,
    batch: tuple[str, int] | None = None,
    table: tables.Table | None = None,
) -> tuple[tables.Table, WriteResult | None]:
    """Write ``rows``; return the table, created if it did not exist, and the result, None if
    "Ignore" wrote nothing.

    ``batch``: the identity of the batch for :meth:`mdt.Table.once`. ``table``: the table of
    ``options`` if it is open.

    ``how``: a mode of ``df.write``, or "into" or "overwrite" for an INSERT.

    * "Append" and "into" run the operation, upsert by default.
    * "Overwrite" and "overwrite" replace all rows in a single commit. They replace only partitions
      if ``options`` names them, or only those with new rows if ``options`` or
      ``spark.sql.sources.partitionOverwriteMode`` is dynamic.
    * "Ignore" and "ErrorIfExists" write if there is no table, or if nothing was written to it. The
      first write may have failed and is then repeated.

    If "Overwrite" creates a table and cannot write its rows, it deletes the table. Spark does the
    same for tables made of a query and expects to find nothing when it retries. A commit that
    another writer made meanwhile would have been replaced anyway.

    Raises Invalid for options that contradict each other or the table, Unsupported for requests
    that Spark makes impossible, and the errors of the operation.
    """
    _check(options)
    if how == "into" and options.partial:
        raise Unsupported(
            "the option partial is not supported for INSERT and df.writeTo, because Spark fills"
            " missing columns with null",
            hint=(
                'use MERGE … UPDATE SET, or df.write.format("mdt").mode("append").option("partial",'
                ' "true").save(path)'
            ),
        )
    operation = _operation(options, how, rows)
    data = rows.drop(*(name for name in META_FIELDS if name in rows.columns))
    if table is None and not _exists(options):
        if operation == "delete":
            raise Invalid(
                f"there is no table at {options.path} to delete from",
                hint="check the path",
            )
        created = _create(options, data)
        try:
            result = _write(created, operation, options, data, batch)
        except BaseException:
            if how == "Overwrite":
                with suppress(MdtError):
                    discard(created.storage)
            raise
        return open_for_writing(options), result
    table = open_for_writing(options) if table is None else table
    is_first = how in ("ErrorIfExists", "Ignore") and not _is_written(table)
    if how == "ErrorIfExists" and not is_first:
        raise Invalid(
            f"a table already exists at {options.path}",
            hint='use mode("append") to write to it, or mode("overwrite") to replace its rows',
        )
    if how == "Overwrite" and (options.evolve or options.partial):
        raise Invalid(
            'evolve and partial are options of upsert, not of mode("overwrite")',
            hint="remove them",
        )
    if how == "Ignore" and not is_first:
        return table, None
    _require_agreement(table.definition, options)
    return table, _write(table, operation, options, data, batch)


def require_newest(options: SourceOptions) -> None:
    """Raise Invalid for options that select a state or range to read."""
    names = [name for name in _READING if getattr(options, name) is not None]
    if names:
        raise Invalid(
            f"read options are not allowed in a write: {', '.join(names)}",
            hint="remove them",
        )


def _check(options: SourceOptions) -> None:
    """Raise Invalid for options that cannot be combined."""
    require_newest(options)
    if options.operation is not None:
        one_of("operation", options.operation, OPERATIONS)
    if (options.evolve or options.partial) and options.operation not in (None, "upsert"):
        raise Invalid(
            f"evolve and partial are options of upsert, not of {options.operation}",
            hint="remove them",
        )


def _operation(options: SourceOptions, how: str, rows: DataFrame) -> str:
    """Return the name of the operation for a mode."""
    if how.lower() != "overwrite":
        if options.overwrite_partitions is not None and options.operation != _PARTITIONS:
            raise Invalid(
                'overwrite_partitions requires mode("overwrite")',
                hint='use mode("overwrite"), or remove the option',
            )
        return options.operation or "upsert"
    is_named = options.overwrite_partitions is not None
    mode = options.overwrite_mode or str(rows.sparkSession.conf.get(_OVERWRITE_MODE)).lower()
    is_dynamic = is_named or mode == "dynamic"
    if is_named and options.operation == _TABLE:
        raise Invalid(
            f"overwrite_partitions cannot be combined with {_TABLE}, which replaces all partitions",
            hint="remove one of them",
        )
    if how == "Overwrite" and (
        options.operation == "delete" or (options.operation == _PARTITIONS and not is_dynamic)
    ):
        raise Invalid(
            f'the operation {options.operation} cannot be combined with mode("overwrite")',
            hint='use mode("append") for this operation',
        )
    if is_dynamic or options.operation == _PARTITIONS:
        return _PARTITIONS
    return _TABLE


def _exists(options: SourceOptions) -> bool:
    """Return True if there is an mdt table at the path."""
    storage = open_storage(options.path, storage_options=options.storage or None)
    return bool(storage.list_dir(paths.LOG_DIR))


def _is_written(table: tables.Table) -> bool:
    """Return True if rows were written to a table since it was created."""
    return len(table.snapshot()) > 0 or not _BEFORE_WRITES.issuperset(
        table.history()["operation"].to_pylist()
    )


def open_if_exists(options: SourceOptions) -> tables.Table | None:
    """Open the named table for writing, or return None if there is none."""
    return open_for_writing(options) if _exists(options) else None


def open_for_writing(options: SourceOptions) -> tables.Table:
    """Open the named table for writing. Raises as :func:`mdt.open` does."""
    return tables.open(options.path, options.options, storage_options=options.storage or None)


def _create(options: SourceOptions, rows: DataFrame) -> tables.Table:
    """Create a table with the columns of ``rows``. All are nullable except the key and required
    columns.
    """
    if "key" not in options.create_arguments:
        raise Invalid(
            "a new table needs a record key",
            hint=(
                'set .option("key", "id") or hoodie.datasource.write.recordkey.field, or in SQL:'
                " USING mdt OPTIONS (key 'id')"
            ),
        )
    columns = late.spark_schema.new_columns_to_arrow(rows.drop(IS_DELETED).schema)
    if late.spark_session.is_case_sensitive(rows.sparkSession):
        _require_columns(options.create_arguments, columns.names)
    required = [named_column(name, columns.names) for name in options.required]
    columns = pa.schema([field.with_nullable(field.name not in required) for field in columns])
    arguments, table_options = dict(options.create_arguments), dict(options.create_options)
    table_options |= options.described
    if "name" in arguments:
        table_options["mdt.table.name"] = arguments.pop("name")
    return tables.create(
        options.path,
        columns,
        options=table_options,
        storage_options=options.storage or None,
        **arguments,
    )


def _require_columns(arguments: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise Invalid for options whose column names differ in case, in a case-sensitive session."""
    for word in ("key", "partition_by", "ordering"):
        for name in given_options.column_names(arguments.get(word)):
            if name not in columns:
                raise Invalid(
                    f"{word}: there is no column {name!r}, and spark.sql.caseSensitive is true",
                    hint=nearest(name, columns) or f"columns: {', '.join(columns)}",
                )


def _write(
    table: tables.Table,
    operation: str,
    options: SourceOptions,
    rows: DataFrame,
    batch: tuple[str, int] | None,
) -> WriteResult:
    if batch is not None:
        table = table.once(*batch)
    arguments: dict[str, Any] = (
        {"evolve": options.evolve, "partial": options.partial} if operation == "upsert" else {}
    )
    if operation == _PARTITIONS:
        arguments = {"partitions": options.overwrite_partitions}
    result: WriteResult = getattr(table, operation)(rows, **arguments)
    for text in result.warnings:
        warnings.warn(text, stacklevel=2)
    return result


def _require_agreement(definition: TableDefinition, options: SourceOptions) -> None:
    """Raise Invalid if options contradict the table. Hudi users repeat all options with every
    write.
    """
    given_options.require(definition, options.described)
    for name, value in options.table.items():
        has = getattr(definition, name)
        if not _is_equal(name, value, has, definition):
            hint = (
                "add an index with t.create_index"
                if name == "indexes"
                else "it is fixed when the table is created: remove the option"
            )
            raise Invalid(
                f"the table has {name} = {_display(has)}, not {_display(value)}", hint=hint
            )


def _is_equal(name: str, value: Any, has: Any, definition: TableDefinition) -> bool:
    if name == "indexes":
        return {named_spec(text, definition.schema) for text in value} <= set(has)
    if name == "key_index":
        value = key_indexes.stored_spec(value)
    return given_options.has_value(definition, name, value)


def _display(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)

"""Writes by ``df.write.format("mdt")`` and SQL: the operation of each mode, and the creation of
missing tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late
from mdt import table as tables
from mdt.arguments import named_column, nearest, one_of, own_spelling
from mdt.create_table import discard
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.skipping_indexes import named_spec
from mdt.schema.delete_marks import IS_DELETED
from mdt.source.option_keywords import Words
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
    asked: Words,
    how: str,
    rows: DataFrame,
    batch: tuple[str, int] | None = None,
    table: tables.Table | None = None,
) -> tuple[tables.Table, WriteResult | None]:
    """Write ``rows``; return the table, created if it did not exist, and the result, None if
    "Ignore" wrote nothing.

    ``batch``: the identity of the batch for :meth:`mdt.Table.once`. ``table``: the table of
    ``asked`` if it is open.

    ``how``: a mode of ``df.write``, or "into" or "overwrite" for an INSERT.

    * "Append" and "into" run the operation, upsert by default.
    * "Overwrite" and "overwrite" replace all rows in a single commit. They replace only partitions
      if ``asked`` names them, or only those with new rows if ``asked`` or
      ``spark.sql.sources.partitionOverwriteMode`` is dynamic.
    * "Ignore" and "ErrorIfExists" write if there is no table, or if nothing was written to it. The
      first write may have failed and is then repeated.

    If "Overwrite" creates a table and cannot write its rows, it deletes the table. Spark does the
    same for tables made of a query and expects to find nothing when it retries. A commit that
    another writer made meanwhile would have been replaced anyway.

    Raises Invalid for options that contradict each other or the table, Unsupported for requests
    that Spark makes impossible, and the errors of the operation.
    """
    _check(asked)
    if how == "into" and asked.partial:
        raise Unsupported(
            "the option partial is not supported for INSERT and df.writeTo, because Spark fills"
            " missing columns with null",
            hint=(
                'use MERGE … UPDATE SET, or df.write.format("mdt").mode("append").option("partial",'
                ' "true").save(path)'
            ),
        )
    operation = _operation(asked, how, rows)
    data = rows.drop(*(name for name in META_FIELDS if name in rows.columns))
    if table is None and not _is_there(asked):
        if operation == "delete":
            raise Invalid(
                f"there is no table at {asked.path} to delete from",
                hint="check the path",
            )
        created = _created(asked, data)
        try:
            result = _write(created, operation, asked, data, batch)
        except BaseException:
            if how == "Overwrite":
                with suppress(MdtError):
                    discard(created.storage)
            raise
        return opened(asked), result
    table = opened(asked) if table is None else table
    is_first = how in ("ErrorIfExists", "Ignore") and not _is_written(table)
    if how == "ErrorIfExists" and not is_first:
        raise Invalid(
            f"a table already exists at {asked.path}",
            hint='use mode("append") to write to it, or mode("overwrite") to replace its rows',
        )
    if how == "Overwrite" and (asked.evolve or asked.partial):
        raise Invalid(
            'evolve and partial are options of upsert, not of mode("overwrite")',
            hint="remove them",
        )
    if how == "Ignore" and not is_first:
        return table, None
    _agree(table.definition, asked)
    return table, _write(table, operation, asked, data, batch)


def require_newest(asked: Words) -> None:
    """Raise Invalid for options that select a state or range to read."""
    names = [name for name in _READING if getattr(asked, name) is not None]
    if names:
        raise Invalid(
            f"read options are not allowed in a write: {', '.join(names)}",
            hint="remove them",
        )


def _check(asked: Words) -> None:
    """Raise Invalid for options that cannot be combined."""
    require_newest(asked)
    if asked.operation is not None:
        one_of("operation", asked.operation, OPERATIONS)
    if (asked.evolve or asked.partial) and asked.operation not in (None, "upsert"):
        raise Invalid(
            f"evolve and partial are options of upsert, not of {asked.operation}",
            hint="remove them",
        )


def _operation(asked: Words, how: str, rows: DataFrame) -> str:
    """Return the name of the operation for a mode."""
    if how.lower() != "overwrite":
        if asked.overwrite_partitions is not None and asked.operation != _PARTITIONS:
            raise Invalid(
                'overwrite_partitions requires mode("overwrite")',
                hint='use mode("overwrite"), or remove the option',
            )
        return asked.operation or "upsert"
    is_named = asked.overwrite_partitions is not None
    mode = asked.overwrite_mode or str(rows.sparkSession.conf.get(_OVERWRITE_MODE)).lower()
    is_dynamic = is_named or mode == "dynamic"
    if is_named and asked.operation == _TABLE:
        raise Invalid(
            f"overwrite_partitions cannot be combined with {_TABLE}, which replaces all partitions",
            hint="remove one of them",
        )
    if how == "Overwrite" and (
        asked.operation == "delete" or (asked.operation == _PARTITIONS and not is_dynamic)
    ):
        raise Invalid(
            f'the operation {asked.operation} cannot be combined with mode("overwrite")',
            hint='use mode("append") for this operation',
        )
    if is_dynamic or asked.operation == _PARTITIONS:
        return _PARTITIONS
    return _TABLE


def _is_there(asked: Words) -> bool:
    """Return True if there is an mdt table at the path."""
    storage = open_storage(asked.path, storage_options=asked.storage or None)
    return bool(storage.list_dir(paths.log_dir()))


def _is_written(table: tables.Table) -> bool:
    """Return True if rows were written to a table since it was created."""
    return len(table.snapshot()) > 0 or not _BEFORE_WRITES.issuperset(
        table.history()["operation"].to_pylist()
    )


def opened(asked: Words) -> tables.Table:
    """Open the named table for writing. Raises as :func:`mdt.open` does."""
    return tables.open(asked.path, asked.options, storage_options=asked.storage or None)


def _created(asked: Words, rows: DataFrame) -> tables.Table:
    """Create a table with the columns of ``rows``. All are nullable except the key and required
    columns.
    """
    if "key" not in asked.made_as:
        raise Invalid(
            "a new table needs a record key",
            hint='set .option("key", "id") or hoodie.datasource.write.recordkey.field',
        )
    columns = late.spark_schema.of_new_columns(rows.drop(IS_DELETED).schema)
    if late.spark_session.is_case_sensitive(rows.sparkSession):
        _require_columns(asked.made_as, columns.names)
    required = [named_column(name, columns.names) for name in asked.required]
    columns = pa.schema([field.with_nullable(field.name not in required) for field in columns])
    arguments = {word: value for word, value in asked.made_as.items() if word != "name"}
    options = {
        **asked.made_with,
        **({"mdt.table.name": asked.made_as["name"]} if "name" in asked.made_as else {}),
    }
    return tables.create(
        asked.path, columns, options=options, storage_options=asked.storage or None, **arguments
    )


def _require_columns(said: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise Invalid for options whose column names differ in case, in a case-sensitive session."""
    for word in ("key", "partition_by", "ordering"):
        for name in _names(said.get(word)):
            if name not in columns:
                raise Invalid(
                    f"{word}: there is no column {name!r}, and spark.sql.caseSensitive is true",
                    hint=nearest(name, columns) or f"columns: {', '.join(columns)}",
                )


def _names(said: Any) -> tuple[str, ...]:
    if isinstance(said, str):
        return (said,)
    return tuple(said or ())


def _write(
    table: tables.Table,
    operation: str,
    asked: Words,
    rows: DataFrame,
    batch: tuple[str, int] | None,
) -> WriteResult:
    if batch is not None:
        table = table.once(*batch)
    arguments: dict[str, Any] = (
        {"evolve": asked.evolve, "partial": asked.partial} if operation == "upsert" else {}
    )
    if operation == _PARTITIONS:
        arguments = {"partitions": asked.overwrite_partitions}
    result: WriteResult = getattr(table, operation)(rows, **arguments)
    for text in result.warnings:
        warnings.warn(text, stacklevel=2)
    return result


def _agree(definition: TableDefinition, asked: Words) -> None:
    """Raise Invalid if options contradict the table. Hudi users repeat all options with every
    write.
    """
    for name, value in asked.table.items():
        has = getattr(definition, name)
        if not _says(name, value, has, definition):
            hint = (
                "add an index with t.create_index"
                if name == "indexes"
                else "it is fixed when the table is created: remove the option"
            )
            raise Invalid(f"the table has {name} = {_shown(has)}, not {_shown(value)}", hint=hint)


def _says(name: str, value: Any, has: Any, definition: TableDefinition) -> bool:
    if name == "indexes":
        return {named_spec(text, definition.schema) for text in value} <= set(has)
    if name in ("key", "partition_by", "ordering"):
        columns = definition.schema.names
        return tuple(own_spelling(one, columns) for one in _names(value)) == _names(has)
    return bool((key_indexes.stored_spec(value) if name == "key_index" else value) == has)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)

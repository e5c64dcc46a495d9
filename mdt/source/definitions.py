"""Statements of Spark SQL about a whole table, sent by ``java/sql/TableCall.java`` as the class of
Spark's plan and its fields.

A statement returns rows, or changes for Spark's catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late
from mdt import table as tables
from mdt.errors import Invalid
from mdt.metadata.snapshot.live_partitions import hive_names, paths_with
from mdt.query import SNAPSHOT
from mdt.source import (
    alter_table,
    create_statement,
    procedures,
    read_frame,
    statements,
    write_frame,
)
from mdt.source.option_keywords import SourceOptions
from mdt.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NOTHING = pa.schema([])
_PARTITIONS = pa.schema([pa.field("partition", pa.string(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Statement:
    """``kind``: the class of Spark's plan. ``fields``: its fields by name.

    ``table``: the quoted name in the catalog. ``schema``: Spark's JSON of the table's columns, with
    the catalog's comments. ``types``: their SQL types.
    """

    kind: str
    table: str
    schema: str
    types: Sequence[str]
    fields: Mapping[str, Any]


Answer = tuple[tables.Table, pa.Table | Sequence[str]]
"""The table, and rows or catalog changes: its new columns, and the options to remove."""


def statement_of(kind: str, message: Mapping[str, Any]) -> Statement:
    """Return a statement of the JVM."""
    return Statement(kind, message["table"], message["schema"], message["types"], message["fields"])


def columns(statement: Statement) -> pa.Schema:
    """Return the columns of a statement's answer. Raises Unsupported for a refused statement."""
    kind = statement.kind
    if kind not in _HANDLERS or statement.fields.get("asSerde"):
        raise statements.refusal(kind)
    if kind in alter_table.CHANGES:
        list(alter_table.CHANGES[kind](statement.fields))
    return _ANSWER_COLUMNS.get(kind, _NOTHING)


def execute(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    """Execute a statement on the table of ``options``.

    Raises as :meth:`mdt.Table.alter`, :meth:`mdt.Table.delete_partition` and :func:`mdt.open` do.
    """
    return _HANDLERS[statement.kind](options, statement, spark, reads)


def _alter(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    parse_json = late.spark_schema.parse_json
    before = parse_json(statement.schema)
    comments = {
        field.name: field.metadata["comment"] for field in before if "comment" in field.metadata
    }
    exact, names = late.spark_session.is_case_sensitive(spark), before.names
    changes = []
    for change, path, new in alter_table.CHANGES[statement.kind](statement.fields):
        column = _resolve_case(path[0], names, exact)
        if change in ("add", "widen"):
            type, nullable = new
            schema = parse_json(type)
            is_whole = change == "widen" and len(path) == 1 and column in names
            if is_whole and before[column].dataType == schema["of"].dataType:
                continue  # CHANGE COLUMN always names the type
            new = late.spark_schema.new_columns_to_arrow(schema).field(0).with_nullable(nullable)
        elif change == "comment":
            comments[column] = new
        elif change == "place" and new is not None:
            new = _resolve_case(new, names, exact)
        elif change == "rename" and len(path) == 1 and column in comments:
            comments[new] = comments[column]
        changes.append((change, [column, *path[1:]], new))
    table = alter_table.alter(options, changes)
    after = read_frame.snapshot(spark, table, False, SNAPSHOT, reads=reads).schema
    for field in after:
        if field.name in comments:
            field.metadata = {**field.metadata, "comment": comments[field.name]}
    return table, [after.json()]


def _resolve_case(name: str, columns: Sequence[str], exact: bool) -> str:
    """Return the column of ``columns`` that ``name`` refers to, or ``name`` if there is none.
    ``exact``: True if names are case-sensitive.
    """
    if exact or name in columns:
        return name
    return next((column for column in columns if column.lower() == name.lower()), name)


def _alter_options(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    fields = statement.fields
    if "properties" in fields:
        changes = fields["properties"]
    else:
        changes = dict.fromkeys(fields["propertyKeys"])
    table, names = alter_table.alter_options(options, changes)
    return table, ["", *names]


def _show_create(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    write_frame.require_newest(options)
    table = write_frame.open_for_writing(options)
    fields = json.loads(statement.schema)["fields"]
    columns = [
        (field["name"], type, field["metadata"].get("comment", ""))
        for field, type in zip(fields, statement.types, strict=True)
    ]
    return table, create_statement.create_statement(table, options.path, statement.table, columns)


def _refresh(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    table = read_frame.open_shared(options.path, options.options, options.storage or None, None)
    return table, [statement.schema]


def _show_partitions(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    table = read_frame.open_shared(options.path, options.options, options.storage or None, None)
    snapshot = table.snapshot()
    paths = paths_with(snapshot, statement.fields["spec"] or {})
    return table, pa.table([hive_names(snapshot.definition, paths)], _PARTITIONS)


def _drop_partitions(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    fields = statement.fields
    return _delete(
        options, fields["specs"], fields["ifExists"], "use IF EXISTS to ignore it", spark
    )


def _truncate(
    options: SourceOptions, statement: Statement, spark: SparkSession, reads: SparkSettings
) -> Answer:
    spec = statement.fields["partitionSpec"]
    if spec is None:
        table, _ = procedures.call(options, "truncate", [], spark)
        return table, _NOTHING.empty_table()
    return _delete(options, [spec], False, "SHOW PARTITIONS lists partitions with rows", spark)


def _delete(
    options: SourceOptions,
    specs: Sequence[Mapping[str, str | None]],
    may_lack: bool,
    hint: str,
    spark: SparkSession,
) -> Answer:
    """Delete the partitions with the values of ``specs``. Raises Invalid for a partition without
    rows unless ``may_lack``.
    """
    snapshot = read_frame.open_shared(
        options.path, options.options, options.storage or None, None
    ).snapshot()
    for spec in specs:
        if not paths_with(snapshot, spec) and not may_lack:
            raise Invalid(f"there is no partition {json.dumps(spec)}", hint=hint)
    arguments = [("partitions", json.dumps(specs))]
    table, _ = procedures.call(options, "delete_partition", arguments, spark)
    return table, _NOTHING.empty_table()


_HANDLERS: Mapping[
    str, Callable[[SourceOptions, Statement, SparkSession, SparkSettings], Answer]
] = {
    **dict.fromkeys(alter_table.CHANGES, _alter),
    "SetTableProperties": _alter_options,
    "UnsetTableProperties": _alter_options,
    "ShowCreateTable": _show_create,
    "ShowPartitionsCommand": _show_partitions,
    "AlterTableDropPartitionCommand": _drop_partitions,
    "TruncateTableCommand": _truncate,
    "RefreshTableCommand": _refresh,
}
"""Supported statements. All others are refused (:mod:`mdt.source.statements`)."""
_ANSWER_COLUMNS = {"ShowCreateTable": create_statement.SCHEMA, "ShowPartitionsCommand": _PARTITIONS}

"""DataFrames of tables, for ``mdt.read`` and ``spark.read.format("mdt")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt import table as tables
from mdt.errors import Invalid, Unsupported
from mdt.metadata.snapshot.as_of import Point
from mdt.query import SNAPSHOT, view_for
from mdt.source import open_tables
from mdt.source.option_keywords import INCREMENTAL, SourceOptions
from mdt.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def open_shared(
    path: Any,
    options: Mapping[str, Any] | None,
    storage_options: Mapping[str, object] | None,
    as_of: Point | None,
) -> tables.Table:
    """Return an open table, shared with earlier reads if possible (:mod:`mdt.source.open_tables`).
    Raises as :func:`mdt.open` does.
    """
    if as_of is not None:
        return tables.open(path, options, storage_options=storage_options, as_of=as_of)
    return open_tables.open_shared(path, options, storage_options).readable()


def snapshot(
    spark: SparkSession,
    table: tables.Table,
    is_pinned: bool,
    query_type: str,
    *,
    reads: SparkSettings | None = None,
) -> DataFrame:
    """Return the rows of the newest snapshot at query time, or of the snapshot of ``table`` if
    ``is_pinned``.

    ``reads``: as for :func:`mdt.engines.spark.frame.read`.
    """
    view = view_for(query_type)
    if query_type != SNAPSHOT and table.storage.is_imported:
        base_files = late.imported_storage.without_log_files(table.storage)
        table, is_pinned = tables.Table(base_files, table.metadata.overrides), True
    pinned = view(table.snapshot()) if is_pinned else None
    other_view = view if query_type != SNAPSHOT else None
    relations = open_tables.relations_of(table)
    return late.spark_frame.read(
        late.spark_session.classic(spark),
        table.metadata,
        pinned,
        other_view,
        reads=reads,
        relations=relations,
    )


def frame(
    spark: SparkSession,
    options: SourceOptions,
    columns: StructType | None = None,
    *,
    reads: SparkSettings | None = None,
) -> DataFrame:
    """Return the frame for the options ``options``. ``columns``: the columns that Spark expects.
    ``reads``: as for :func:`snapshot`.

    Incremental reads and changes end at the newest commit at the time of the call, unless the
    options name another. Raises Invalid for options that cannot be combined, and the errors of
    opening and reading.
    """
    _check(options)
    if columns is not None and options.since is not None:
        # Spark caches the relation of a catalog table without regard to the query's options.
        raise Unsupported(
            "the option since is not supported for catalog tables and with an explicit schema",
            hint=(
                'use spark.read.format("mdt").option("since", …).load(path), or CREATE TEMPORARY'
                " VIEW … USING mdt OPTIONS (path …, since …)"
            ),
        )
    table = open_shared(options.path, options.options, options.storage or None, options.as_of)
    if options.changes is not None:
        assert options.since is not None, "checked"
        rows = table.changes(options.since, options.until, mode=options.changes).to_spark(spark)
    elif options.since is not None:
        rows = table.scan(since=options.since, until=options.until).to_spark(spark)
    else:
        is_pinned = options.as_of is not None
        rows = snapshot(spark, table, is_pinned, options.query_type or SNAPSHOT, reads=reads)
    if columns is not None:
        _require(columns, rows, table)
    return rows


def _check(options: SourceOptions) -> None:
    """Raise Invalid for options that cannot be combined."""
    is_range = options.since is not None
    if options.query_type == INCREMENTAL and not is_range:
        raise Invalid(
            "an incremental query requires the option since",
            hint="set since to the point after which commits are read",
        )
    if options.query_type not in (None, INCREMENTAL) and is_range:
        raise Invalid(
            f"the query type {options.query_type} cannot be combined with since",
            hint="remove one of them",
        )
    if (options.changes is not None or options.until is not None) and not is_range:
        raise Invalid(
            "the options changes and until require since",
            hint="set since to the point after which commits are read",
        )
    if options.as_of is not None and is_range:
        raise Invalid(
            "as_of and since cannot be combined",
            hint="use since and until for a range, or as_of for a state",
        )


def _require(columns: StructType, rows: DataFrame, table: tables.Table) -> None:
    """Raise Invalid if the expected columns match neither the current nor an older schema version.

    The catalog stores the columns that a table had when it was created there.
    """
    expected = _simple(columns)
    if expected != _simple(rows.schema) and expected not in map(
        _simple, late.spark_frame.spark_versions(table.definition)
    ):
        raise Invalid(
            f"the columns of the table are {rows.schema.simpleString()}, not"
            f" {columns.simpleString()}",
            hint="remove the schema: the table provides it",
        )


def _simple(schema: StructType) -> frozenset[tuple[str, str]]:
    """Return names and types without nullability and order, because the catalog moves partition
    columns to the end.
    """
    return frozenset((field.name, field.dataType.simpleString()) for field in schema)

"""Answers to requests of the JVM's data source (:mod:`mdt.engines.spark.source`), from tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from mdt import late, logs
from mdt.commit.annotation import annotating
from mdt.config import OPTIONS
from mdt.errors import Invalid
from mdt.metadata.snapshot.live_partitions import hive_names, paths_with
from mdt.query import SNAPSHOT
from mdt.source import (
    change_rows,
    definitions,
    procedures,
    read_frame,
    statements,
    streaming,
    table_functions,
)
from mdt.source.background_builds import builder
from mdt.source.option_keywords import SourceOptions, machine_options, parse_options
from mdt.source.settings import Settings, settings_of
from mdt.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.engines.spark.source import Answers, Request


class TableAnswers:
    """Reads and writes tables by the options of a request and of its session."""

    def __init__(self) -> None:
        self._past_warnings: set[str] = set()

    def by_name(self) -> Answers:
        """Return the handler of each request."""
        return {
            "read": self.read,
            "write": self.write,
            "partitions": self.partitions,
            "entry": self.entry,
            "refuse": self.refuse,
            "change": self.change,
            "call": self.call,
            "answer": self.answer,
            "function": self.function,
            "insert": self.insert,
            "stream": self.stream,
            "sink": self.sink,
        }

    def read(self, request: Request) -> DataFrame:
        """Return the frame for the options, with the columns that Spark expects. Raises Invalid for
        contradictory options, and the errors of opening a table.
        """
        settings = verified_settings(request.spark)
        options = settings.apply_defaults(parse_options(request.options))
        return read_frame.frame(request.spark, options, request.columns, reads=settings.reads)

    def write(self, request: Request) -> DataFrame:
        """Write rows and return the frame of the table. ``text``: "Append", "Overwrite",
        "ErrorIfExists" or "Ignore" of ``df.write``, "into" or "overwrite" of an INSERT. Raises as
        :func:`mdt.source.change_rows.write` does.
        """
        rows = late.spark_statement.WrittenRows(request.extra)
        with _writing(request) as (options, settings):
            table, _ = change_rows.write(options, request.text, rows)
        _maintain(request.spark, settings, table)
        return read_frame.snapshot(request.spark, table, False, SNAPSHOT, reads=settings.reads)

    def partitions(self, request: Request) -> Sequence[str]:
        """Return the names of the partitions with rows that have the values of ``text``, JSON of
        column -> value. Without a text, return the partition columns. Raises as :func:`mdt.open`
        does, and Invalid if the table has no partitions.
        """
        table = _open_table(request)
        if request.text is None:
            return table.definition.partition_by
        paths = paths_with(table.snapshot(), json.loads(request.text))
        return hive_names(table.definition, paths)

    def entry(self, request: Request) -> Sequence[str]:
        """Return the options ``extra`` of a catalog entry that have machine scope and are ignored.
        A warning names them once.

        ``text``: the table's name, or None if it is being created. Raises Invalid in the latter
        case.
        """
        ignored, table = machine_options(request.extra), request.text
        if not ignored:
            return ignored
        words_of_session = ", ".join(
            sorted({f"SET spark.{OPTIONS.find(name.lower()).name}" for name in ignored})
        )
        if table is None:
            raise Invalid(
                f"{ignored[0]} is an option of the machine and cannot be stored in the catalog",
                hint=f"use {words_of_session}, or set it in df.read and df.write by path",
            )
        text = (
            "%s: options of the machine in the catalog are ignored: %s; set them for the session:"
            " %s"
        )
        logs.warn_once(
            logs.METADATA,
            self._past_warnings,
            f"{table} {ignored}",
            text,
            table,
            ", ".join(ignored),
            words_of_session,
        )
        return ignored

    def refuse(self, request: Request) -> NoReturn:
        """Raise Unsupported for the SQL statement ``text`` (:mod:`mdt.source.statements`)."""
        raise statements.refusal(request.text)

    def change(self, request: Request) -> Sequence[int]:
        """Execute a SQL statement that changes rows; return its counts. Raises as
        :func:`mdt.source.change_rows.change` does.
        """
        statement = late.spark_statement.Statement(request.text, request.extra)
        with _writing(request) as (options, settings):
            table, counts = change_rows.change(options, statement)
        _maintain(request.spark, settings, table)
        return counts

    def call(self, request: Request) -> pa.Table | Sequence[str]:
        """Execute the procedure or table statement ``text``; return its rows. ``extra``: its JSON
        (``java/sql/TableCall.java``).

        A list of texts is for the catalog: the columns as Spark's JSON, or "" if they are
        unchanged, and the names of options to remove. Raises as :func:`mdt.source.procedures.call`
        and :func:`mdt.source.definitions.execute` do.
        """
        name, arguments = request.text, json.loads(request.extra)
        with _writing(request) as (options, settings):
            if isinstance(arguments, Mapping):
                statement = definitions.statement_of(name, arguments)
                table, answer = definitions.execute(
                    options, statement, request.spark, settings.reads
                )
            else:
                table, answer = procedures.call(options, name, arguments, request.spark)
        if not name.startswith(("Show", "Refresh")):
            _maintain(request.spark, settings, table)
        return answer

    def answer(self, request: Request) -> pa.Table:
        """Return the empty answer of such a call. Raises Invalid for an unknown procedure and
        Unsupported for a refused statement.
        """
        name, arguments = request.text, json.loads(request.extra)
        if isinstance(arguments, Mapping):
            return definitions.columns(definitions.statement_of(name, arguments)).empty_table()
        return procedures.columns(name).empty_table()

    def function(self, request: Request) -> pa.Table | DataFrame:
        """Return the rows of the table function ``text`` (:mod:`mdt.source.table_functions`, or
        "changes").

        Raises as :func:`mdt.open` and :meth:`read` do.
        """
        if request.text == "changes":
            options = {"changes": "net", **request.options}
            return self.read(replace(request, options=options, text=None))
        return table_functions.INSPECTED[request.text](_open_table(request))

    def insert(self, request: Request) -> Sequence[int]:
        """Write rows for an INSERT; return the number of rows changed in all, updated, deleted,
        inserted, and dropped as late.

        ``text``: "into" or "overwrite". Raises as :func:`mdt.source.change_rows.write` does.
        """
        rows = late.spark_statement.WrittenRows(request.extra)
        with _writing(request) as (options, settings):
            table, result = change_rows.write(options, request.text, rows)
        assert result is not None, "an INSERT always writes"
        _maintain(request.spark, settings, table)
        affected = result.updated + result.deleted + result.inserted
        return affected, result.updated, result.deleted, result.inserted, result.late

    def stream(self, request: Request) -> Answers:
        """Open the stream of the options; return the handlers of its requests. Raises as
        :class:`mdt.source.streaming.Stream` does.
        """
        settings = verified_settings(request.spark)
        options = settings.apply_defaults(parse_options(request.options))
        stream = streaming.Stream(options, settings.reads)

        def offset(question: Request) -> Sequence[str]:
            everything, last = question.extra
            newest = stream.offset(question.text, bool(everything), last)
            if newest is None:
                return []
            return [newest]

        def batch(question: Request) -> DataFrame:
            start, columns = question.extra
            expected = late.spark_schema.parse_json(columns)
            return stream.batch(question.spark, start, question.text, expected)

        return {
            "columns": lambda question: [stream.columns(question.spark, question.columns).json()],
            "newest": lambda question: [stream.newest()],
            "offset": offset,
            "batch": batch,
        }

    def sink(self, request: Request) -> Answers:
        """Return the handler that writes the batches of a query to a table, which stays open
        between batches. Raises as :meth:`mdt.source.streaming.Sink.write` does.
        """
        sink = streaming.Sink()

        def write_batch(batch: Request) -> Sequence[str]:
            query, number, java = batch.extra
            rows = late.spark_source.frame(java)
            with _writing(batch) as (options, settings):
                table = sink.write(options, batch.text, (str(query), int(number)), rows)
            _maintain(batch.spark, settings, table)
            return ()

        return {"write": write_batch}


def verified_settings(spark: SparkSession) -> Settings:
    """Return the settings of a session, after verifying its index packages on the executors. Raises
    as :mod:`mdt.engines.spark.packages` does.
    """
    settings = settings_of(spark)
    late.spark_packages.require(spark, settings.reads.indexes_packages)
    return settings


def _open_table(request: Request) -> Table:
    """Return the table of the options, from the cache if it is open."""
    options = verified_settings(request.spark).apply_defaults(parse_options(request.options))
    return read_frame.open_shared(options.path, options.options, options.storage or None, None)


@contextmanager
def _writing(request: Request) -> Iterator[tuple[SourceOptions, Settings]]:
    """Yield the options merged with the session's settings, and these settings. Commits of the
    block carry their metadata.
    """
    settings = verified_settings(request.spark)
    options = settings.apply_defaults(parse_options(request.options))
    with annotating(options.metadata):
        yield options, settings


def _maintain(spark: SparkSession, settings: Settings, table: Table) -> None:
    if settings.reads.indexes_build == "background":
        builder().build(table, spark, settings.reads.indexes_auto)

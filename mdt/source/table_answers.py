"""What the data source of the JVM is answered: :class:`mdt.engines.spark.source.Answers` by
tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from mdt import late, logs
from mdt.commit.annotation import annotating
from mdt.config import declaration
from mdt.errors import Invalid
from mdt.metadata.snapshot.live_partitions import named, paths_with
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
from mdt.source.option_keywords import Words, of_machine, words
from mdt.source.settings import Settings, settings_of
from mdt.source.write_frame import write
from mdt.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mdt.engines.spark.statement import Statement


class TableAnswers:
    """Reads and writes tables as options say, and below them the session."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def read(
        self, spark: SparkSession, options: Mapping[str, str], columns: StructType | None
    ) -> DataFrame:
        """Return the frame that ``options`` ask for.  Raises Invalid for what they cannot mean, and
        what opening a table raises.
        """
        said = known_settings(spark)
        return read_frame.frame(spark, said.under(words(options)), columns, reads=said.reads)

    def write(
        self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame
    ) -> DataFrame:
        """Write ``rows`` as ``options`` and ``how`` say, and return the frame of the table.  Raises
        as :func:`mdt.source.write_frame.write` does.
        """
        said = known_settings(spark)
        with _writing(said, options) as asked:
            table, _ = write(asked, how, rows)
        return _written(spark, said, table)

    def partition_by(self, spark: SparkSession, options: Mapping[str, str]) -> Sequence[str]:
        """Return the columns by which the table is partitioned that ``options`` name.  Raises as
        :func:`mdt.open` does.
        """
        return _known(spark, options).definition.partition_by

    def partitions(
        self, spark: SparkSession, options: Mapping[str, str], values: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the partitions with rows that have ``values``, by name.  Raises as
        :func:`mdt.open` does, and Invalid if the table has none.
        """
        snapshot = _known(spark, options).snapshot()
        return named(snapshot.definition, paths_with(snapshot, values))

    def entry(self, table: str | None, names: Sequence[str]) -> Sequence[str]:
        """Return which of the options ``names`` of an entry of the catalog are of the machine, and
        so do not count; a warning names them once.

        ``table``: its name; None where it is to be made.  Raises Invalid then.
        """
        found = of_machine(names)
        if not found:
            return found
        words_of_session = ", ".join(
            sorted({f"SET spark.{declaration(name.lower()).name}" for name in found})
        )
        if table is None:
            raise Invalid(
                f"{found[0]} is an option of the machine, which a table of the catalog does not"
                " keep",
                hint=f"{words_of_session}, or an option of df.read and df.write by path",
            )
        text = (
            "%s: options of the machine in the entry of the catalog are ignored: %s; set them for"
            " the session: %s"
        )
        logs.warn_once(
            logs.METADATA,
            self._said,
            f"{table} {found}",
            text,
            table,
            ", ".join(found),
            words_of_session,
        )
        return found

    def refuse(self, kind: str) -> NoReturn:
        """Raise Unsupported for a statement of SQL (:mod:`mdt.source.statements`)."""
        raise statements.refusal(kind)

    def change(
        self, spark: SparkSession, options: Mapping[str, str], statement: Statement
    ) -> Sequence[int]:
        """Carry out a statement on the table that ``options`` name.  Raises as
        :func:`mdt.source.change_rows.change` does.
        """
        said = known_settings(spark)
        with _writing(said, options) as asked:
            table, counts = change_rows.change(asked, statement)
        _maintain(spark, said, table)
        return counts

    def call(
        self, spark: SparkSession, options: Mapping[str, str], name: str, given: Any
    ) -> pa.Table | Sequence[str]:
        """Carry out a procedure, or a statement, on the table that ``options`` name.  Raises as
        :func:`mdt.source.procedures.call` and :func:`mdt.source.definitions.carry_out` do.
        """
        said = known_settings(spark)
        with _writing(said, options) as asked:
            if isinstance(given, Mapping):
                statement = definitions.statement_of(name, given)
                table, answer = definitions.carry_out(asked, statement, spark, said.reads)
            else:
                table, answer = procedures.call(asked, name, given, spark)
        if not name.startswith("Show"):
            _maintain(spark, said, table)
        return answer

    def answer(self, name: str, given: Any) -> pa.Schema:
        """Return the columns of the answer of such a call.  Raises Invalid for an unknown procedure
        and Unsupported for a statement that is refused.
        """
        if isinstance(given, Mapping):
            return definitions.columns(definitions.statement_of(name, given))
        return procedures.columns(name)

    def function(
        self, spark: SparkSession, options: Mapping[str, str], name: str
    ) -> pa.Table | DataFrame:
        """Return the rows of a table function (:mod:`mdt.source.table_functions`; "changes").

        Raises as :func:`mdt.open` and :meth:`read` do.
        """
        if name == "changes":
            return self.read(spark, {"changes": "net", **options}, None)
        return table_functions.INSPECTED[name](_known(spark, options))

    def insert(
        self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame
    ) -> Sequence[int]:
        """Write ``rows``, and return how many rows changed in all, were updated, deleted, inserted,
        and dropped for being older.

        Raises as :func:`mdt.source.write_frame.write` does.
        """
        said = known_settings(spark)
        with _writing(said, options) as asked:
            table, done = write(asked, how, rows)
        assert done is not None, "an INSERT always writes"
        _maintain(spark, said, table)
        return (
            done.updated + done.deleted + done.inserted,
            done.updated,
            done.deleted,
            done.inserted,
            done.late,
        )

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> streaming.Stream:
        """Return the stream that ``options`` ask for, its table open.  Raises as
        :class:`mdt.source.streaming.Stream` does.
        """
        said = known_settings(spark)
        return streaming.Stream(said.under(words(options)), said.reads)

    def sink(self) -> TableSink:
        """Return what the batches of one query are written by."""
        return TableSink()


class TableSink:
    """Writes the batches of one query to a table, which is open between them."""

    def __init__(self) -> None:
        self._sink = streaming.Sink()

    def write(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        mode: str,
        batch: tuple[str, int],
        rows: DataFrame,
    ) -> None:
        """Write a batch once.  Raises as :meth:`mdt.source.streaming.Sink.write` does."""
        said = known_settings(spark)
        with _writing(said, options) as asked:
            table = self._sink.write(asked, mode, batch, rows)
        _maintain(spark, said, table)


def known_settings(spark: SparkSession) -> Settings:
    """Return what a session says, after its executors were asked for the packages that it names.
    Raises as :mod:`mdt.engines.spark.packages` does.
    """
    said = settings_of(spark)
    late.spark_packages.require(spark, said.reads.indexes_packages)
    return said


def _known(spark: SparkSession, options: Mapping[str, str]) -> Table:
    """Return the table that ``options`` name, the one that is open if there is one."""
    asked = known_settings(spark).under(words(options))
    return read_frame.opened(asked.path, asked.options, asked.storage or None, None)


@contextmanager
def _writing(said: Settings, options: Mapping[str, str]) -> Iterator[Words]:
    """Yield what ``options`` and the session ask for; commits of the block carry the metadata that
    they name.
    """
    asked = said.under(words(options))
    with annotating(asked.metadata):
        yield asked


def _written(spark: SparkSession, said: Settings, table: Table) -> DataFrame:
    _maintain(spark, said, table)
    return read_frame.snapshot(spark, table, False, SNAPSHOT, reads=said.reads)


def _maintain(spark: SparkSession, said: Settings, table: Table) -> None:
    if said.reads.indexes_build == "background":
        builder().build(table, spark, said.reads.indexes_auto)

"""What the data source of the JVM is answered: :class:`mdt.engines.spark.source.Answers` by tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mdt.query import SNAPSHOT
from mdt.source import changing, procedures, reading
from mdt.source.words import words
from mdt.source.writing import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mdt.engines.spark.statement import Statement


class TableAnswers:
    """Reads and writes tables as options say."""

    def read(self, spark: SparkSession, options: Mapping[str, str], columns: StructType | None) -> DataFrame:
        """Return the frame that ``options`` ask for.  Raises Invalid for what they cannot mean, and what opening a table raises."""
        return reading.frame(spark, words(options), columns)

    def write(self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame) -> DataFrame:
        """Write ``rows`` as ``options`` and ``how`` say, and return the frame of the table.  Raises as :func:`mdt.source.writing.write` does."""
        return reading.snapshot(spark, write(words(options), how, rows), False, SNAPSHOT)

    def alter(self, spark: SparkSession, options: Mapping[str, str], added: StructType) -> DataFrame:
        """Add columns to the table that ``options`` name, and return its frame.  Raises as :meth:`mdt.Table.alter` does."""
        return reading.snapshot(spark, changing.add_columns(words(options), added), False, SNAPSHOT)

    def change(self, spark: SparkSession, options: Mapping[str, str], statement: Statement) -> Sequence[int]:
        """Carry out a statement on the table that ``options`` name.  Raises as :func:`mdt.source.changing.change` does."""
        return changing.change(words(options), statement)

    def call(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        name: str,
        names: Sequence[str],
        values: Sequence[str | None],
    ) -> Sequence[tuple[str, str]]:
        """Carry out a procedure on the table that ``options`` name.  Raises as :func:`mdt.source.procedures.call` does."""
        return procedures.call(words(options), name, names, values, spark)

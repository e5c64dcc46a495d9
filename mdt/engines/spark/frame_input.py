"""Spark DataFrames as a caller's input: the entry point of Spark's engine
(:data:`mdt.engines.choice.ENGINE_MODULES`).

Small inputs are collected and written in process. The result is the same, ten times sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from mdt.config import Options
from mdt.engines.spark.columns import quoted, with_fields
from mdt.engines.spark.engine import SparkEngine, estimated_bytes
from mdt.engines.spark.private import collect_batches, spark_schema
from mdt.engines.spark.schema import new_columns_to_arrow, to_arrow
from mdt.engines.spark.session import classic, classic_frame, is_case_sensitive
from mdt.errors import Invalid
from mdt.schema.convert import convert
from mdt.schema.definition import TableDefinition
from mdt.schema.input import match_names

_UNKNOWN_BYTES = 1 << 60
"""Spark's estimate is at least this large if the size is unknown."""
_PROBE_ROWS = 50_000


def engine_input(data: Any, table_columns: Sequence[str]) -> FrameInput | None:
    """Return a DataFrame with its columns renamed to matching table columns, or None for other
    objects.

    Raises Invalid and Unsupported as :func:`rename_to_match` does.
    """
    return FrameInput(in_own_names(data, table_columns)) if isinstance(data, DataFrame) else None


def engine_of(session: Any) -> SparkEngine:
    """Return the engine of a session. Raises as :func:`mdt.engines.spark.session.classic` does."""
    return SparkEngine(classic(session))


def schema(schema: Any) -> Any:
    """Convert a DataFrame's schema to Arrow. Other objects are returned unchanged. Raises Invalid
    for columns that a table cannot have.
    """
    return new_columns_to_arrow(schema) if isinstance(schema, StructType) else schema


def in_own_names(frame: DataFrame, table_columns: Sequence[str]) -> DataFrame:
    """Rename columns of ``frame`` to table columns that match by the session's
    ``spark.sql.caseSensitive``.

    Raises Invalid if names differ only in case and the session is case-sensitive, and as
    :func:`mdt.schema.input.match_names` does. Raises Unsupported for a frame of Spark Connect.
    """
    classic_frame(frame)
    if len(set(frame.columns)) < len(frame.columns):
        return frame  # refused later
    names = match_names(frame.columns, table_columns)
    if names == frame.columns:
        return frame
    if is_case_sensitive(frame.sparkSession):
        mismatches = [
            f"{name} for {table_name}"
            for name, table_name in zip(frame.columns, names, strict=True)
            if name != table_name
        ]
        raise Invalid(
            "column names differ in case from the table's, and spark.sql.caseSensitive is true:"
            f" {', '.join(mismatches)}",
            hint="rename them, or set spark.sql.caseSensitive to false",
        )
    return frame.select(
        *(
            quoted(name).alias(table_name)
            for name, table_name in zip(frame.columns, names, strict=True)
        )
    )


@dataclass(frozen=True, slots=True)
class FrameInput:
    """A :class:`mdt.engines.engine.EngineInput` whose ``rows`` are a DataFrame."""

    rows: DataFrame

    @property
    def engine(self) -> SparkEngine:
        """Spark, in the session of the frame."""
        return SparkEngine(self.rows.sparkSession)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the frame. Raises Invalid for types that Arrow does not have."""
        return to_arrow(self.rows.schema)

    def few(self, options: Options, *, looks: bool = False) -> pa.Table | None:
        """Return the rows if they are few by Spark's estimate, else None. If there is no estimate,
        fetch the first rows.

        ``looks``: also fetch the first rows if the estimate is large, as it is for joins.
        """
        bytes_max = options.spark_local_bytes_max
        if bytes_max <= 0:
            return None
        size = estimated_bytes(self.rows)
        if size <= bytes_max:
            return self._collected(self.rows)
        if size < _UNKNOWN_BYTES and not looks:
            return None
        first = self._collected(self.rows.limit(_PROBE_ROWS + 1))
        return first if len(first) <= _PROBE_ROWS and first.nbytes <= bytes_max else None

    def _collected(self, frame: DataFrame) -> pa.Table:
        """Return the rows of ``frame``, with timestamps in UTC."""
        schema, batches = self.schema, collect_batches(frame)
        columns = [
            pa.chunked_array(
                [convert(batch.column(i), field.type) for batch in batches], field.type
            )
            for i, field in enumerate(schema)
        ]
        if not columns:
            return pa.Table.from_batches(batches, schema)
        return pa.table(columns, schema=schema)

    def select_columns(self, names: Sequence[str]) -> FrameInput:
        """Return the frame with only the columns in ``names``. Frames with duplicate names are
        returned unchanged and fail later.
        """
        frame = self.rows
        if len(set(frame.columns)) < len(frame.columns):
            return self
        return replace(
            self, rows=frame.select(*(quoted(name) for name in frame.columns if name in names))
        )

    def evolved_schema(self, table_schema: pa.Schema) -> pa.Schema:
        """Return the columns. Also raises Invalid for columns that are not in ``table_schema`` and
        that a new table could not have.
        """
        new = [field for field in self.rows.schema if field.name not in table_schema.names]
        new_columns_to_arrow(StructType(new))
        return self.schema

    def add_missing_columns(self, definition: TableDefinition) -> DataFrame:
        """Return the frame with null columns and struct fields added for those that only the table
        has. New columns without a type are dropped.
        """
        declared = {field.name: field.type for field in definition.declared}
        types = {
            field.name: field.type
            for field in self.schema
            if field.name in declared or not pa.types.is_null(field.type)
        }
        columns = [
            with_fields(quoted(name), type, declared.get(name, type)).alias(name)
            for name, type in types.items()
        ]
        missing = [field for field in definition.declared if field.name not in types]
        nulls = [
            sf.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(pa.schema(missing))
        ]
        return self.rows.select(*columns, *nulls)

"""Data as callers have it -> Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mdt.errors import Invalid


def is_spark(data: Any) -> bool:
    """Return whether ``data`` is a Spark DataFrame, without importing pyspark."""
    return any(c.__module__.startswith("pyspark.sql") and c.__name__ == "DataFrame" for c in type(data).__mro__)


def to_table(data: Any) -> pa.Table:
    """Return ``data`` as an Arrow table.  Raises Invalid for what is no Arrow data."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(f"data of type {type(data).__name__} is not a table: {error}") from error
    raise Invalid(
        f"data of type {type(data).__name__} cannot be written",
        hint="give a pyarrow Table, RecordBatch or RecordBatchReader, a pandas, polars or duckdb object, or a Spark DataFrame",
    )

"""Changes as a Spark DataFrame: the driver finds out which rows changed, and tasks read them.

What a task gets names rows by segment and position, which are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mdt.engines.spark.failures import in_task
from mdt.engines.spark.frame import shown
from mdt.engines.spark.private import from_arrow_schema, map_in_arrow
from mdt.engines.spark.schema import in_micros
from mdt.engines.spark.session import classic
from mdt.hudi.schema import with_meta
from mdt.metadata import codec
from mdt.scan.changed_rows import CHANGE, Changed, ChangedRows
from mdt.schema.convert import convert

_PIECE = pa.schema([("kind", pa.int8()), ("seq", pa.int64()), ("segment", pa.int64()), ("position", pa.int64())])


def frame(spark: SparkSession, changes: ChangedRows) -> DataFrame:
    """Return the changes, their rows read by tasks whenever the frame is used."""
    view = changes.of.view
    declared = with_meta(shown(view.definition))
    schema = pa.schema([*CHANGE, *(_in_spark(declared.field(name)) for name in changes.names)])
    pieces = [_encoded(changed, view.segment_ids) for changed in changes.changes()]
    table = pa.table({"piece": pa.array(pieces, pa.binary())})
    work = classic(spark).createDataFrame(table).repartition(max(1, len(pieces)))
    one_thread = replace(changes, threads=1)
    return map_in_arrow(work, partial(_read, one_thread, schema), from_arrow_schema(schema, prefer_timestamp_ntz=True))


def _in_spark(field: pa.Field) -> pa.Field:
    return field.with_type(in_micros(field.type))


def _encoded(changed: Changed, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    columns = [changed.kind, changed.seq, segments[changed.file], changed.position]
    return codec.encode_ipc(pa.table([pa.array(column) for column in columns], schema=_PIECE)).to_pybytes()


def _read(changes: ChangedRows, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the pieces in ``batches``, in a task."""
    with in_task():
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                matching, found = changes.read(_decoded(piece, changes.of.view.segment_ids))
                columns = [*changes.labels(matching), *found.columns]
                converted = [_converted(column, field.type) for column, field in zip(columns, schema, strict=True)]
                yield from pa.table(converted, schema=schema).to_batches()


def _decoded(piece: bytes, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Changed:
    table = codec.decode_ipc(piece, _PIECE, path="a piece of changes")
    kind, seq, segment, position = (column.to_numpy() for column in table.columns)
    return Changed(kind, seq, np.searchsorted(segments, segment), position, np.arange(len(seq)))


def _converted(column: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return convert(whole, type)

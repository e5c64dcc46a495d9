"""Changes as a Spark DataFrame: the driver finds out which rows changed, and tasks read them.

What a task gets names rows by segment and position, which are the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from indexes.predicate import And, Predicate, bind, matches
from mdt.engines.spark import private
from mdt.engines.spark.catalyst import predicate_of
from mdt.engines.spark.failures import in_task, named_in_queries
from mdt.engines.spark.file_index import factory_of
from mdt.engines.spark.frame import shown
from mdt.engines.spark.private import from_arrow_schema, map_in_arrow
from mdt.engines.spark.schema import in_micros
from mdt.engines.spark.session import classic
from mdt.hudi.schema import with_meta
from mdt.metadata import codec
from mdt.metadata.recent import Recent
from mdt.plan.position_search import conjuncts_of
from mdt.scan.changed_rows import CHANGE, Changed, ChangedRows
from mdt.schema.convert import convert

_PIECE = pa.schema([("kind", pa.int8()), ("seq", pa.int64()), ("segment", pa.int64()), ("position", pa.int64())])

_SPREAD_BYTES_MAX = 16 << 20
"""Up to so many bytes Spark spreads rows that it is given over its processors; more of them make one partition."""

_QUERIES_KEPT = 4
"""Spark plans a part of a query twice, and one frame may be asked again: which rows changed is found out once."""


def frame(spark: SparkSession, changes: ChangedRows) -> DataFrame:
    """Return the changes.

    A query of the frame says which columns it wants and what it filters by: then the driver finds out which rows changed, without those that
    statistics and indexes, or what a change is, leave out, and tasks read them.
    """
    named_in_queries(changes.metadata.storage.uri("").rstrip("/"))
    asked = _Asked(changes)
    columns = from_arrow_schema(asked.schema, prefer_timestamp_ntz=True).json()
    factory = factory_of(classic(spark).sparkContext)
    return private.frame_in(spark, factory.asked(asked, private.java_session(spark), columns, _bytes(changes)))


def _bytes(changes: ChangedRows) -> int:
    """Return about how many bytes the changes have, as long as no filter is known."""
    view = changes.of.view
    rows, size = (int(view.files.numpy(name).sum()) for name in ("rows", "size"))
    return sum(commit.rows for commit in changes.of.commits) * size // max(1, rows)


class _Asked:
    """The java.util.function.Function that ``java/AskedRelation.java`` calls; it holds nothing of the JVM's, which holds it."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, changes: ChangedRows) -> None:
        declared = with_meta(shown(changes.of.view.definition))
        self._changes = changes
        self.schema = pa.schema([*CHANGE, *(_in_spark(declared.field(name)) for name in changes.names)])
        self._kept = [name for name in changes.names if self.schema.field(name).type == declared.field(name).type]
        self._pieces: Recent[str, list[bytes]] = Recent(_QUERIES_KEPT)

    def apply(self, request: Any) -> Any:
        """Return the rows that a query asks for, as a Dataset: (session, conditions, names), as JSON."""
        session, filters, names = request
        with in_task():
            return private.java_frame(self._frame(private.session_of_java(session), filters, json.loads(names)))

    def _frame(self, spark: SparkSession, filters: str, names: list[str]) -> DataFrame:
        pieces = self._pieces.get(filters)
        if pieces is None:
            pieces = self._pieces.put(filters, self._found(json.loads(filters)))
        schema = pa.schema([self.schema.field(name) for name in names or CHANGE.names[:1]])
        of_rows = [name for name in schema.names if name not in CHANGE.names]
        wanted = replace(self._changes, names=of_rows, threads=1, hint=None)
        work = spark.createDataFrame(pa.table({"piece": pa.array(pieces, pa.binary())}))
        if sum(map(len, pieces)) > _SPREAD_BYTES_MAX:
            work = work.repartition(len(pieces))  # which runs a job while a query is planned
        columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        opened, asked = wanted.__reduce__()
        return map_in_arrow(work, partial(_read, opened, asked, schema), columns)

    def _found(self, filters: list[Any]) -> list[bytes]:
        """Return the changes for which conditions may hold, as tasks are told them."""
        told = [one for one in conjuncts_of(predicate_of(filters, CHANGE.names)) if _is_known(one)]
        changes = replace(self._changes, hint=predicate_of(filters, self._kept) if filters else None)
        segments = changes.of.view.segment_ids
        found = (_matching(changes, changed, told) for changed in changes.changes())
        return [_encoded(changed, segments) for changed in found if len(changed)]


def _is_known(predicate: Predicate) -> bool:
    """Return whether a condition is about what a change is, and nothing else."""
    try:
        bind(predicate, CHANGE)
    except ValueError:
        return False
    return True


def _matching(changes: ChangedRows, changed: Changed, told: Sequence[Predicate]) -> Changed:
    """Return the changes for which conditions on CHANGE hold."""
    if not told or not len(changed):
        return changed
    labels = pa.record_batch(changes.labels(changed), schema=CHANGE)
    return changed.rows(matches(And(tuple(told)), labels).to_numpy(zero_copy_only=False))


def _in_spark(field: pa.Field) -> pa.Field:
    return field.with_type(in_micros(field.type))


def _encoded(changed: Changed, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    columns = [changed.kind, changed.seq, segments[changed.file], changed.position]
    return codec.encode_ipc(pa.table([pa.array(column) for column in columns], schema=_PIECE)).to_pybytes()


def _read(
    opened: Callable[..., ChangedRows], asked: Sequence[Any], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the pieces in ``batches``, in a task.  ``opened``, ``asked``: a pickle of the changes, loaded where its errors are told."""
    with in_task():
        changes = opened(*asked)
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                matching, found = changes.read(_decoded(piece, changes.of.view.segment_ids))
                labels = dict(zip(CHANGE.names, changes.labels(matching), strict=True))
                columns = [labels[name] if name in labels else found[name] for name in schema.names]
                converted = [_converted(column, field.type) for column, field in zip(columns, schema, strict=True)]
                yield from pa.table(converted, schema=schema).to_batches()


def _decoded(piece: bytes, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Changed:
    table = codec.decode_ipc(piece, _PIECE, path="a piece of changes")
    kind, seq, segment, position = (column.to_numpy() for column in table.columns)
    return Changed(kind, seq, np.searchsorted(segments, segment), position, np.arange(len(seq)))


def _converted(column: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return convert(whole, type)

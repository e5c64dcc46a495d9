"""Changes as a Spark DataFrame: the driver finds the changed rows, and tasks read them.

Tasks receive rows as segment and position, which are the same in every process. A worker opens the
table once and caches it for later tasks and queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from indexes.predicate import And, Predicate, bind, matches
from mdt.engines import tasks
from mdt.engines.spark import private
from mdt.engines.spark.catalyst import predicate_of
from mdt.engines.spark.failures import in_task, restore_in_queries
from mdt.engines.spark.frame import visible_schema
from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.private import map_in_arrow, spark_schema
from mdt.engines.spark.schema import in_micros
from mdt.engines.spark.session import classic
from mdt.engines.tasks import Source, source_of
from mdt.errors import Missing
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.log import codec
from mdt.metadata.metadata import Metadata
from mdt.plan.position_search import conjuncts_of
from mdt.scan.changed_rows import CHANGE, ChangedRows, Changes
from mdt.scan.history_range import HistoryRange, history_range
from mdt.schema.convert import convert
from mdt.session import Recent, memo

_PIECE = pa.schema(
    [("kind", pa.int8()), ("seq", pa.int64()), ("segment", pa.int64()), ("position", pa.int64())]
)

_SPREAD_BYTES_MAX = 16 << 20
"""Up to this size Spark distributes local rows over its processors. Larger data become one
partition.
"""

_RANGES_MAX = 2
"""Number of ranges that a worker caches. All tasks of a query use one range, each batch of a stream
another.
"""

_QUERIES_MAX = 4
"""Spark plans parts of a query twice, and a frame may be used again. The changed rows are
cached.
"""


def frame(spark: SparkSession, changes: ChangedRows) -> DataFrame:
    """Return the changes as a frame.

    A query passes its columns and filters. The driver then finds the changed rows, prunes them by
    statistics, indexes and the kind of change, and tasks read the rest.
    """
    restore_in_queries(changes.metadata.storage.uri("").rstrip("/"))
    relation = _ChangesRelation(changes)
    columns = spark_schema(relation.schema).json()
    factory = factory_of(classic(spark).sparkContext)
    return private.frame_in(
        spark, factory.asked(relation, private.java_session(spark), columns, _bytes(changes))
    )


def _bytes(changes: ChangedRows) -> int:
    """Return the approximate size of the changes in bytes, before any filter."""
    view = changes.history.view
    rows, size = (int(view.files.numpy(name).sum()) for name in ("rows", "size"))
    return sum(commit.rows for commit in changes.history.commits) * size // max(1, rows)


class _ChangesRelation:
    """The java.util.function.Function that ``java/source/AskedRelation.java`` calls. It must not
    reference objects of the JVM, because the JVM references it.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, changes: ChangedRows) -> None:
        declared = with_meta(visible_schema(changes.history.view.definition))
        self._changes = changes
        fields = map(declared.field, changes.names)
        self.schema = pa.schema(
            [*CHANGE, *(field.with_type(in_micros(field.type)) for field in fields)]
        )
        self._exact_names = [
            name
            for name in changes.names
            if self.schema.field(name).type == declared.field(name).type
        ]
        self._pieces: Recent[str, list[bytes]] = Recent(_QUERIES_MAX)

    def apply(self, request: Any) -> Any:
        """Return the rows of a query as a Dataset. ``request``: (session, conditions, names), the
        last two as JSON.
        """
        session, filters, names = request
        with in_task():
            return private.java_frame(
                self._frame(private.session_of_java(session), filters, json.loads(names))
            )

    def _frame(self, spark: SparkSession, filters: str, names: list[str]) -> DataFrame:
        pieces = self._pieces.made(filters, lambda: self._find_pieces(json.loads(filters)))
        schema = pa.schema([self.schema.field(name) for name in names or CHANGE.names[:1]])
        of_rows = [name for name in schema.names if name not in CHANGE.names]
        tasks_frame = spark.createDataFrame(pa.table({"piece": pa.array(pieces, pa.binary())}))
        if sum(map(len, pieces)) > _SPREAD_BYTES_MAX:
            tasks_frame = tasks_frame.repartition(len(pieces))  # runs a job during planning
        columns = spark_schema(schema)
        return map_in_arrow(
            tasks_frame,
            partial(
                _read,
                _ChangesSource.from_changes(self._changes),
                self._read_arguments(of_rows),
                schema,
            ),
            columns,
        )

    def _read_arguments(
        self, names: Sequence[str]
    ) -> tuple[bool, Sequence[str], Predicate | None, int, bool]:
        """Return the arguments of a task's :class:`ChangedRows` besides table and range."""
        return self._changes.is_net, names, self._changes.predicate, 1, self._changes.before

    def _find_pieces(self, filters: list[Any]) -> list[bytes]:
        """Return the changes that may satisfy the conditions, encoded for tasks."""
        label_conditions = [
            part
            for part in conjuncts_of(predicate_of(filters, CHANGE.names))
            if _is_on_labels(part)
        ]
        changes = self._changes
        if filters:
            changes = replace(changes, hint=predicate_of(filters, self._exact_names))
        segments = changes.history.view.segment_ids
        matching = (_matching(changes, changed, label_conditions) for changed in changes.changes())
        return [_encode(changed, segments) for changed in matching if len(changed)]


def _is_on_labels(predicate: Predicate) -> bool:
    """Return True if a condition uses only the columns CHANGE."""
    try:
        bind(predicate, CHANGE)
    except ValueError:
        return False
    return True


def _matching(changes: ChangedRows, changed: Changes, conditions: Sequence[Predicate]) -> Changes:
    """Return the changes that satisfy conditions on CHANGE."""
    if not conditions or not len(changed):
        return changed
    labels = pa.record_batch(changes.labels(changed), schema=CHANGE)
    return changed.rows(matches(And(tuple(conditions)), labels).to_numpy(zero_copy_only=False))


def _encode(changed: Changes, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    columns = [changed.kind, changed.seq, segments[changed.file], changed.position]
    return codec.encode_ipc(
        pa.table([pa.array(column) for column in columns], schema=_PIECE)
    ).to_pybytes()


@dataclass(frozen=True, slots=True)
class _ChangesSource:
    """The location of changes for tasks: a table, the commits after ``since`` up to ``until``, and
    the commit whose columns the rows have.
    """

    source: Source
    since: int
    until: int
    columns_at: int

    @classmethod
    def from_changes(cls, changes: ChangedRows) -> _ChangesSource:
        """Return the place of changes. Raises Unsupported for a table that other processes cannot
        open.
        """
        metadata, view = changes.metadata, changes.history.view
        metadata.storage.__reduce__()
        source = source_of(metadata, view, metadata.options(view.definition))
        history = changes.history
        return cls(source, history.since, history.until, history.columns_at)

    def range_of(self, metadata: Metadata) -> HistoryRange | None:
        """Return the history range, or None if it belongs to another table or another copy of this
        table.
        """
        history = history_range(metadata, self.since, self.until, columns_at=self.columns_at)
        if self.source.is_of(history.view):
            return history
        return None


@memo(_RANGES_MAX)
def _open_range(place: _ChangesSource) -> tuple[Metadata, HistoryRange]:
    """Return the table and its changes, both cached by the worker.

    Raises Expired if the range was cleaned, and otherwise as :func:`mdt.engines.tasks.open_at`.
    """
    return tasks.open_at(place.source, place.range_of)


def _read(
    place: _ChangesSource,
    read_arguments: Sequence[Any],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the pieces in ``batches`` in a task. ``read_arguments``: the other arguments of
    :class:`ChangedRows`.
    """
    with in_task():
        changes = ChangedRows(*_open_range(place), *read_arguments)
        for batch in batches:
            for piece in batch.column(0).to_pylist():
                matching, rows = _read_piece(changes, piece, place)
                labels = dict(zip(CHANGE.names, changes.labels(matching), strict=True))
                columns = [labels[name] if name in labels else rows[name] for name in schema.names]
                converted = [
                    _convert(column, field.type)
                    for column, field in zip(columns, schema, strict=True)
                ]
                yield from pa.table(converted, schema=schema).to_batches()


def _decode(piece: bytes, segments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Changes:
    table = codec.decode_ipc(piece, _PIECE, path="a piece of changes")
    kind, seq, segment, position = (column.to_numpy() for column in table.columns)
    return Changes(kind, seq, np.searchsorted(segments, segment), position, np.arange(len(seq)))


def _read_piece(
    changes: ChangedRows, piece: bytes, place: _ChangesSource
) -> tuple[Changes, pa.Table]:
    """Return the changes of a piece, and their rows. Raises Unsupported if their files were deleted
    with the table.
    """
    try:
        return changes.read(_decode(piece, changes.history.view.segment_ids))
    except Missing:
        _open_range.cache_clear()
        _open_range(place)
        raise


def _convert(column: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return convert(whole, type)

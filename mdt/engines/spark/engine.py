"""Spark as an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from indexes.key_hash import KeyHash
from mdt.engines.blocks import (
    MARK_ROWS,
    add_counts,
    bucket_blocks,
    encode_block,
    grouped_blocks,
    marks_in,
    read_blocks,
    select_rows,
    sum_counts,
    tagged_blocks,
)
from mdt.engines.engine import BatchFunction, BucketAssignment, ResultFunction, S, T
from mdt.engines.results import shares
from mdt.engines.spark.failures import in_driver, in_task
from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.private import (
    arrow_batches,
    java_frame,
    map_bytes,
    map_in_java,
    shuffle_bytes,
)
from mdt.engines.tasks import CONTROL, COUNTS, DROPPED, SAMPLED

_TASK_BYTES = 64 << 20
_DRIVER_COUNT_PARTS = 64
"""With more parts than this, counts are summed in tasks before the driver collects them."""


def estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's size estimate of ``frame``, or a huge number if there is none."""
    return int(java_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes())


def _tasks(frame: DataFrame) -> int:
    """Return the number of tasks that should tag the rows of ``frame``.

    A Python task costs about 60 ms even for few rows. The number therefore grows with the size,
    from the number of cores to ``spark.sql.shuffle.partitions``.
    """
    session, size = frame.sparkSession, estimated_bytes(frame)
    most = int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return max(1, min(most, max(-(-size // _TASK_BYTES), session.sparkContext.defaultParallelism)))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows of a frame to be grouped by the columns ``names``. The next operation decides how.

    ``key_hash``: as for :meth:`mdt.engines.engine.Engine.group_by`.
    """

    frame: DataFrame
    names: tuple[str, ...]
    key_hash: KeyHash | None


Rows = DataFrame | Grouped | RDD[bytes]
"""A caller's frame, a frame to be grouped, or row blocks (:mod:`mdt.engines.blocks`), which Spark
does not decode.
"""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """An :class:`mdt.engines.engine.Engine` whose rows are frames, and row blocks after the first
    task. Spark's optimizer does not see blocks.
    """

    session: SparkSession
    name: str = "spark"
    is_in_process: bool = False

    @property
    def processors(self) -> int:
        """The number of tasks that Spark runs at a time."""
        return int(self.session.sparkContext.defaultParallelism)

    def distribute(self, table: pa.Table) -> Rows:
        """Return the rows of ``table`` in a few partitions per processor."""
        slices = shares(self, table)
        blocks = [encode_block({"from": [part, 0]}, rows) for part, rows in enumerate(slices)]
        return self.session.sparkContext.parallelize(blocks, max(1, len(blocks)))

    def union(self, first: Rows, second: Rows) -> Rows:
        """Return the rows of both inputs."""
        return _blocks(first).union(_blocks(second))

    def group_by(self, rows: Rows, names: Sequence[str], key_hash: KeyHash | None = None) -> Rows:
        """Return the rows with equal values of the columns ``names`` in the same partition."""
        assert isinstance(rows, DataFrame), "rows come together before a task has seen them"
        return Grouped(rows, tuple(names), key_hash)

    def map_parts(
        self, rows: Rows, function: BatchFunction, schema: pa.Schema, key: Sequence[str] = ()
    ) -> Rows:
        """Return the rows that ``function`` makes of each partition."""
        if not isinstance(rows, Grouped):
            blocks = map_bytes(_blocks(rows), partial(_map_blocks, function, tuple(key)))
        else:
            blocks = self._map_frame(rows, function, tuple(key))
        return blocks.persist(StorageLevel.MEMORY_AND_DISK)

    def _map_frame(self, rows: Grouped, function: BatchFunction, key: Sequence[str]) -> RDD[bytes]:
        """Map the rows of a frame with ``function``. Rows with grouping columns are shuffled by
        tasks, other rows are not moved.
        """
        parts = _tasks(rows.frame)
        frame = rows.frame
        if not rows.names:
            frame = frame.coalesce(parts)
        with in_driver():  # shuffles of the frame run here
            batches, columns = arrow_batches(frame)
        if not rows.names:
            return map_bytes(batches, partial(_map_batches, columns, function, key))
        blocks = shuffle_bytes(
            batches, partial(_group_batches, columns, rows.names, rows.key_hash, parts), parts
        )
        return map_bytes(blocks, partial(_map_blocks, function, key))

    def release(self, rows: Rows) -> None:
        """Unpersist the rows."""
        _blocks(rows).unpersist()

    def count_tagged(self, rows: Rows) -> pa.Table:
        """Count the rows of each kind, partition and file group."""
        heads = self._heads(rows)
        if heads.getNumPartitions() > _DRIVER_COUNT_PARTS:
            each = heads.mapPartitions(_entries).reduceByKey(add_counts)
        else:
            each = heads.mapPartitions(_entries)
        totals: dict[tuple[Any, ...], tuple[int, int]] = {}
        with in_driver():
            for values, count in each.collect():
                totals[values] = add_counts(totals.get(values, (0, 0)), count)
        entries = ((*values, *count) for values, count in totals.items())
        columns = [*zip(*entries, strict=True)] or [()] * len(COUNTS)
        return pa.table(dict(zip(COUNTS.names, columns, strict=True)), COUNTS)

    def _heads(self, rows: Rows) -> RDD[bytes]:
        return map_in_java(_blocks(rows), factory_of(self.session.sparkContext).heads)

    def select(
        self, rows: Rows, kind: int, names: Sequence[str], rows_max: int | None = None
    ) -> pa.Table:
        """Return CONTROL columns of the rows of a kind, at most ``rows_max`` rows."""
        blocks = _blocks(rows)
        if kind >= DROPPED:
            blocks = map_in_java(blocks, factory_of(self.session.sparkContext).told)
        matches = map_bytes(blocks, partial(_select_rows, kind, tuple(names)))
        schema = pa.schema([CONTROL.field(name) for name in names])
        with in_driver():
            parts = matches.collect() if rows_max is None else matches.take(rows_max)
        return pa.Table.from_batches(read_blocks(parts), schema).slice(0, rows_max)

    def sample_inserts(
        self, rows: Rows, partitions: Sequence[str], key: Sequence[str], share: float
    ) -> pa.Table:
        """Return about the fraction ``share`` of the inserts into ``partitions``, limited to the
        marks of blocks.
        """
        marks = self._heads(rows).mapPartitions(partial(marks_in, sorted(partitions)))
        with in_driver():
            sample = marks.sample(False, min(1.0, share * MARK_ROWS), 0).collect()
        columns = [*zip(*sample, strict=True)] or [(), ()]
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SAMPLED, strict=True)],
            schema=SAMPLED,
        )

    def shuffle_to_buckets(self, rows: Rows, assignment: BucketAssignment) -> Rows:
        """Return the rows of buckets, with the rows of a bucket in the same partition. A block is
        cut only if several buckets share it.
        """
        return shuffle_bytes(_blocks(rows), partial(_bucket_blocks, assignment), assignment.tasks)

    def collect_results(self, rows: Rows, function: ResultFunction) -> list[bytes]:
        """Return the results of ``function`` over all partitions, without None."""
        with in_driver("write the files"):
            return map_bytes(_blocks(rows), partial(_result, function)).collect()

    def map_shares(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return the result of ``function`` for each share, in a task per share. May be called
        while Spark plans a query.
        """
        if not shares:
            return []
        # Jobs of RDDs bypass the optimizer.
        parts = self.session.sparkContext.parallelize(shares, len(shares))
        with in_driver("run its tasks"):
            results: list[T] = parts.mapPartitions(partial(_each, function)).collect()
        return results


def _blocks(rows: Rows) -> RDD[bytes]:
    assert isinstance(rows, RDD), "a task has seen the rows"
    return rows


def _attempt() -> int:
    """Return this task's attempt number, which is unique in the application."""
    return int(_context().taskAttemptId())


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "called in a Spark task"
    return context


def _map_batches(
    columns: pa.Schema, function: BatchFunction, key: Sequence[str], batches: Iterable[bytes]
) -> Iterator[bytes]:
    """Map the ungrouped rows of a frame with ``function`` in a task; yield blocks."""
    with in_task():
        yield from tagged_blocks(
            function(_read(columns, batches), _attempt()), key, _context().partitionId()
        )


def _group_batches(
    columns: pa.Schema,
    names: Sequence[str],
    key_hash: KeyHash | None,
    parts: int,
    batches: Iterable[bytes],
) -> Iterator[tuple[int, bytes]]:
    """Yield (target part, block) for a task's rows of a frame."""
    with in_task():
        yield from grouped_blocks(
            _context().partitionId(), _read(columns, batches), names, parts, key_hash
        )


def _read(columns: pa.Schema, batches: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    return (pa.ipc.read_record_batch(pa.py_buffer(data), columns) for data in batches)


def _map_blocks(
    function: BatchFunction, key: Sequence[str], blocks: Iterable[bytes]
) -> Iterator[bytes]:
    """Map the rows of blocks with ``function`` in a task, in the order of the input; yield
    blocks.
    """
    with in_task():
        yield from tagged_blocks(function(read_blocks(blocks), _attempt()), key)


def _entries(heads: Iterable[bytes]) -> Iterable[tuple[tuple[Any, ...], tuple[int, int]]]:
    return sum_counts(heads).items()


def _select_rows(kind: int, names: Sequence[str], blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the columns ``names`` of the selected rows of blocks, as blocks."""
    with in_task():
        for rows in select_rows(kind, names, blocks):
            if rows.num_rows:
                yield encode_block({}, pa.Table.from_batches([rows]))


def _bucket_blocks(
    assignment: BucketAssignment, blocks: Iterable[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, block)."""
    with in_task():
        yield from bucket_blocks(assignment, blocks)


def _result(function: ResultFunction, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Call ``function`` in a task with the rows of blocks and yield its result unless it is
    None.
    """
    with in_task():
        result = function(read_blocks(blocks), _attempt())
    if result is not None:
        yield result


def _each(function: Callable[[S, int], T], shares: Iterable[S]) -> Iterator[T]:
    """Call ``function`` in a task for each of its shares."""
    with in_task():
        results = [function(share, _attempt()) for share in shares]
    yield from results

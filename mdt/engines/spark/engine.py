"""Spark as an engine, and how DataFrames come to it.

Small inputs are collected and written in process: the result is the same, an order of magnitude sooner.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from mdt.config import Options
from mdt.engines import deleting, merging, spilled, spilling
from mdt.engines import write as writes
from mdt.engines.blocks import (
    BLOCKS,
    COUNTS,
    DATA,
    DEALT,
    FIRST,
    HIGH,
    LOW,
    MARK_ROWS,
    MARKS,
    NUMBER,
    PLACE,
    blocks_of,
    rows_of,
    split,
)
from mdt.engines.blocks import chosen as chosen_of
from mdt.engines.engine import BatchFunction, Deal, ResultFunction, S, T
from mdt.engines.plain_files import GivenFiles, PlainFiles, decoded, encoded
from mdt.engines.results import TASKS_PER_PROCESSOR
from mdt.engines.spark.columns import quoted, with_fields
from mdt.engines.spark.failures import in_driver, in_task
from mdt.engines.spark.given import given_arrow
from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.private import BatchFunction as FrameFunction
from mdt.engines.spark.private import (
    from_arrow_schema,
    java_frame,
    map_in_arrow,
)
from mdt.engines.spark.schema import to_arrow
from mdt.engines.tasks import BUCKET, CONTROL
from mdt.errors import CorruptInput
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.write.blending import Kept
from mdt.write.said import SaidMerge

W = TypeVar("W")

_UNKNOWN_BYTES = 1 << 60
_PROBE_ROWS = 50_000
_TASK_BYTES = 64 << 20
_BLOCKS = from_arrow_schema(BLOCKS, prefer_timestamp_ntz=True)
_DEALT = from_arrow_schema(DEALT, prefer_timestamp_ntz=True)
_SPARK_SEED = 42  # of Spark's hash of 32-bit integers, which is Murmur3


def narrowed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return ``frame`` with those of its columns that are in ``names``; as it is where a name occurs twice, which is refused later."""
    if len(set(frame.columns)) < len(frame.columns):
        return frame
    return frame.select(*(quoted(name) for name in frame.columns if name in names))


def schema_of(frame: DataFrame) -> pa.Schema:
    """Return the columns of ``frame``.  Raises Invalid for types that Arrow lacks."""
    return to_arrow(frame.schema)


def completed(frame: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return ``frame`` with null in the columns, and fields of structs, that only the table has; those without a type go, if it has them not."""
    known = {field.name: field.type for field in definition.declared}
    given = {
        field.name: field.type for field in schema_of(frame) if field.name in known or not pa.types.is_null(field.type)
    }
    columns = [with_fields(quoted(name), type, known.get(name, type)).alias(name) for name, type in given.items()]
    missing = [field for field in definition.declared if field.name not in given]
    types = from_arrow_schema(pa.schema(missing), prefer_timestamp_ntz=True)
    return frame.select(*columns, *(sf.lit(None).cast(field.dataType).alias(field.name) for field in types))


def _estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of the rows of ``frame``; at least _UNKNOWN_BYTES where it has none."""
    return int(java_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes())


def _given_bytes(frame: DataFrame) -> int:
    """Return the bytes of Arrow of which ``createDataFrame`` made ``frame``, or what it is a part of; -1 of any other; see ``java/source/GivenBytes.java``."""
    return int(factory_of(frame.sparkSession.sparkContext).givenBytes(java_frame(frame)))


def _tasks(frame: DataFrame) -> int:
    """Return how many tasks should tag the rows of ``frame``.

    One Python task costs some 60 ms however few its rows, and adaptive execution does not join them in a cached plan, so
    their number follows the estimated size, within the number of cores and ``spark.sql.shuffle.partitions``.
    """
    session = frame.sparkSession
    most = int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    wanted = -(-_estimated_bytes(frame) // _TASK_BYTES)
    return max(1, min(most, max(wanted, session.sparkContext.defaultParallelism)))


def collect_if_small(frame: DataFrame, options: Options, *, looks: bool = False) -> pa.Table | None:
    """Return the rows of ``frame`` if they are few (by Spark's estimate, or by a look at the first ones), else None.

    ``looks``: also where Spark takes them for many, as it does of joins.
    """
    bytes_max = options.spark_local_bytes_max
    if bytes_max <= 0:
        return None
    size = _estimated_bytes(frame)
    if size <= bytes_max:
        return _collected(frame, plain_files(frame) if options.spark_plain_files else None)
    if size >= _UNKNOWN_BYTES and 0 <= _given_bytes(frame) <= bytes_max:
        given = given_arrow(frame)
        return frame.toArrow() if given is None else given
    if size < _UNKNOWN_BYTES and not looks:
        return None
    first = frame.limit(_PROBE_ROWS + 1).toArrow()
    return first if len(first) <= _PROBE_ROWS and first.nbytes <= bytes_max else None


def plain_files(frame: DataFrame) -> PlainFiles | None:
    """Return the Parquet files that ``frame`` is nothing but columns of, None if Spark has to read it.

    That is one that filters or computes, was cached, or reads files in a way of its own; see ``java/source/PlainFiles.java``.
    """
    found = factory_of(frame.sparkSession.sparkContext).plainFiles(java_frame(frame))
    if found is None:
        return None
    told = json.loads(found)
    return PlainFiles.of(told["files"], told["columns"], to_arrow(frame.schema))


def _collected(frame: DataFrame, files: PlainFiles | None) -> pa.Table:
    if files is not None:
        with suppress(OSError, pa.ArrowException):  # Spark says what is wrong with them
            return files.table()
    return frame.toArrow()


def written(
    commit: Callable[[writes.EngineWrite[Any]], W], metadata: Metadata, options: Options, frame: DataFrame, name: str,
    progress: Progress | None = None, kept: Kept | None = None,
) -> tuple[W, str]:  # fmt: skip
    """Return what ``commit`` makes of the operation that writes ``frame``, as :func:`mdt.engines.write.write` does, and the engine's name.

    Where this machine is all that Spark runs on, rows of plain files are written in this process.  What cannot be read of them, or is not as their footers tell, is left
    to Spark, which reads them once more.
    """
    files = plain_files(frame) if options.spark_plain_files else None
    columns = to_arrow(frame.schema)
    if files is not None and files.columns:
        try:
            if options.spark_local_bytes_max and options.spark_local_files and _is_alone(frame.sparkSession):
                here, given, bounded = spilling.of_files(files, options, progress)
                return commit(writes.write(here, metadata, bounded, given, columns, name, None, kept)), here.name
            engine = SparkEngine(frame.sparkSession, plain_files=True, given=GivenFiles(files, options.max_file_bytes))
            return commit(writes.write(engine, metadata, options, frame, columns, name, progress, kept)), engine.name
        except CorruptInput:
            pass
    engine = SparkEngine(frame.sparkSession, plain_files=options.spark_plain_files)
    return commit(writes.write(engine, metadata, options, frame, columns, name, progress, kept)), engine.name


def _is_alone(session: SparkSession) -> bool:
    """Return whether all tasks run in the driver's JVM, and no more at a time than threads of this process can stand in for."""
    context = session.sparkContext
    is_local = (context.master or "").partition("[")[0] == "local"
    return is_local and context.defaultParallelism <= spilled.THREADS_MAX


def delete(
    metadata: Metadata, options: Options, frame: DataFrame, progress: Progress | None = None
) -> deleting.EngineDelete[DataFrame]:
    """Return the operation that deletes the keys in ``frame`` on Spark, as :func:`mdt.engines.deleting.delete` does."""
    return deleting.delete(SparkEngine(frame.sparkSession), metadata, options, frame, to_arrow(frame.schema), progress)


def merge(
    metadata: Metadata, options: Options, frame: DataFrame, columns: pa.Schema, said: SaidMerge, schema: pa.Schema,
    progress: Progress | None = None,
) -> merging.EngineMerge[DataFrame]:  # fmt: skip
    """Return the operation that merges ``frame`` on Spark, as :func:`mdt.engines.merging.merge` does."""
    engine = SparkEngine(frame.sparkSession)
    return merging.merge(engine, metadata, options, frame, columns, said, schema, progress)


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """An :class:`mdt.engines.engine.Engine` whose rows are DataFrames; what Spark does natively stays in the JVM.

    ``plain_files``: whether tasks read rows that are nothing but columns of Parquet files themselves, if nobody brings them together before.
    ``given``: the files of the rows that are written, if each new one may be written straight from some of them.
    """

    session: SparkSession
    name: str = "spark"
    is_here: bool = False
    plain_files: bool = False
    given: GivenFiles | None = None

    @property
    def processors(self) -> int:
        """How many tasks Spark runs at a time."""
        return int(self.session.sparkContext.defaultParallelism)

    def files(self, rows: DataFrame) -> GivenFiles | None:
        """Return the files of the rows that are written, if new files may be written straight from them."""
        return self.given

    def spread(self, table: pa.Table) -> DataFrame:
        """Return the rows of ``table``, each in a partition with others, a few partitions a processor."""
        parts = max(1, min(len(table), TASKS_PER_PROCESSOR * self.processors))
        return self.session.createDataFrame(table).repartition(parts)

    def joined(self, rows: DataFrame, more: DataFrame) -> DataFrame:
        """Return the rows of both."""
        return rows.unionAll(more)

    def grouped(self, rows: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows with equal values of the columns ``names`` in one partition."""
        if not names:
            return rows.coalesce(_tasks(rows))
        return rows.repartition(_tasks(rows), *map(quoted, names))

    def mapped(self, rows: DataFrame, function: BatchFunction, schema: pa.Schema, key: Sequence[str] = ()) -> DataFrame:
        """Return what ``function`` makes of each partition, as :mod:`mdt.engines.blocks`: Spark takes no row of it apart."""
        files = plain_files(rows) if self.plain_files else None
        if files is None:
            blocks = map_in_arrow(rows, partial(_mapped, function, tuple(key)), _BLOCKS)
        else:
            parts = [encoded(part) for part in files.dealt(_tasks(rows))]
            work = self.session.createDataFrame(pa.table({"pieces": pa.array(parts, pa.string())}))
            blocks = map_in_arrow(
                work, partial(_mapped_files, replace(files, pieces=()), function, tuple(key)), _BLOCKS
            )
        return blocks.persist(StorageLevel.MEMORY_AND_DISK)

    def dropped(self, rows: DataFrame) -> None:
        """Let Spark drop what it keeps."""
        rows.unpersist()

    def counted(self, rows: DataFrame, by: Sequence[str], total: str) -> pa.Table:
        """Return how many rows there are of each combination of ``by``, and their sum of ``total``, which blocks know."""
        counts = rows.select(sf.explode(COUNTS).alias("of")).select("of.*").groupBy(*by)
        with in_driver():
            return counts.agg(sf.sum("rows").alias("rows"), sf.sum("total").alias("total")).toArrow()

    def selected(
        self, rows: DataFrame, chosen: Mapping[str, Collection[Any]], names: Sequence[str], rows_max: int | None = None
    ) -> pa.Table:
        """Return CONTROL columns of the rows whose values are chosen, at most ``rows_max``."""
        wanted = {name: list(values) for name, values in chosen.items()}
        if kinds := wanted.get("__mdt_kind"):
            rows = rows.where(sf.exists(COUNTS, lambda one: one["__mdt_kind"].isin(*kinds)))
        columns = from_arrow_schema(pa.schema([CONTROL.field(name) for name in names]), prefer_timestamp_ntz=True)
        found = map_in_arrow(rows.select(DATA), partial(_moved, partial(chosen_of, wanted, tuple(names))), columns)
        with in_driver():
            return (found if rows_max is None else found.limit(rows_max)).toArrow()

    def sampled(self, rows: DataFrame, partitions: Sequence[str], key: Sequence[str], share: float) -> pa.Table:
        """Return about ``share`` of the inserts into ``partitions``, as far as blocks say them."""
        marks = rows.where((sf.size(MARKS) > 0) & sf.col(PLACE).isin(*partitions))
        found = marks.select(sf.col(PLACE).alias("__mdt_partition"), sf.explode(MARKS).alias("key"))
        with in_driver():
            return found.sample(fraction=min(1.0, share * MARK_ROWS), seed=0).toArrow()

    def dealt(self, rows: DataFrame, deal: Deal) -> DataFrame:
        """Return the rows of buckets, all of a bucket in one partition; blocks are cut only where several buckets share them."""
        known = self.session.createDataFrame(deal.places)
        found = rows.join(
            sf.broadcast(known), (sf.col(PLACE) == sf.col("place")) & (sf.col(NUMBER) == sf.col("number"))
        )
        low, high = _before(1), _before(-1)
        found = found.withColumns({LOW: low, HIGH: high})
        taker = sf.get("takers", sf.col(LOW)).alias(BUCKET)
        whole = found.where(sf.col(LOW) == sf.col(HIGH)).select(taker, sf.get(MARKS, sf.lit(0)).alias(FIRST), DATA)
        if pc.any(pc.greater(pc.list_value_length(deal.places["takers"]), 1)).as_py():
            shared = found.where(sf.col(LOW) < sf.col(HIGH)).select(PLACE, NUMBER, LOW, HIGH, DATA)
            whole = whole.unionAll(map_in_arrow(shared, partial(_moved, partial(split, deal)), _DEALT))
        return _placed(whole, deal.tasks, BUCKET)

    def results(self, rows: DataFrame, function: ResultFunction) -> list[bytes]:
        """Return what ``function`` says of each partition."""
        with in_driver("write the files"):
            found = map_in_arrow(rows, partial(_result, function), "result binary").toArrow()
        results: list[bytes] = found["result"].to_pylist()
        return results

    def each(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return what ``function`` says of each share, in a task of its own; may be called while Spark plans a query."""
        if not shares:
            return []
        parts = self.session.sparkContext.parallelize(shares, len(shares))  # no optimizer sees a job of RDDs
        with in_driver("run its tasks"):
            found: list[T] = parts.mapPartitions(partial(_each, function)).collect()
        return found


def _before(at: int) -> Column:
    """Return how many bounds the first (1) or the last (-1) mark of a block follows; 0 without marks."""
    mark = sf.coalesce(sf.try_element_at(MARKS, sf.lit(at)), sf.lit(b""))
    return sf.size(sf.filter("bounds", lambda bound: bound <= mark))


def _placed(rows: DataFrame, tasks: int, name: str) -> DataFrame:
    """Return the rows in ``tasks`` partitions, each in that of its number in the column ``name``."""
    if hasattr(rows, "repartitionById"):
        return rows.repartitionById(tasks, sf.col(name))
    # PySpark 4.0 places rows by the hash of a value: for each partition one is found that goes there.
    values: dict[int, int] = {}
    for value in count():
        values.setdefault(mmh3.hash(struct.pack("<i", value), _SPARK_SEED) % tasks, value)
        if len(values) == tasks:
            break
    known = sf.array(*(sf.lit(values[number]) for number in range(tasks)))
    return rows.repartition(tasks, sf.get(known, sf.col(name) % tasks))


def _attempt() -> int:
    """Return the number of this task's attempt, which is unique in the application."""
    context = TaskContext.get()
    assert context is not None, "called in a Spark task"
    return int(context.taskAttemptId())


def _mapped(function: BatchFunction, key: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call ``function`` in a task and yield its rows as blocks."""
    with in_task():
        yield from blocks_of(function(batches, _attempt()), key)


def _mapped_files(
    files: PlainFiles, function: BatchFunction, key: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call ``function`` in a task with the rows of the pieces of files that it is given, and yield its rows as blocks."""
    with in_task():
        pieces = [piece for batch in batches for told in batch.column(0).to_pylist() for piece in decoded(told)]
        yield from blocks_of(function(files.batches(pieces), _attempt()), key)


def _moved(function: FrameFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call ``function`` in a task, and yield what it makes of blocks."""
    with in_task():
        yield from function(batches)


def _result(function: ResultFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call ``function`` in a task and yield a row with what it returns, if it returns anything."""
    with in_task():
        result = function(rows_of(batches), _attempt())
    if result is not None:
        yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.binary())})


def _each(function: Callable[[S, int], T], shares: Iterable[S]) -> Iterator[T]:
    """Call ``function`` in a task for each of its shares."""
    with in_task():
        found = [function(share, _attempt()) for share in shares]
    yield from found

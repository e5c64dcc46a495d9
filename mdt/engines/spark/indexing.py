"""Building indexes on Spark: files are summarized in tasks, each with an object of its own; the driver commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.engines.spark.failures import in_driver, in_task
from mdt.engines.spark.private import map_in_arrow
from mdt.engines.spark.session import classic
from mdt.engines.spark.tasks import Source, opened, source_of
from mdt.metadata import paths
from mdt.metadata.additions import summaries_table, summary_of
from mdt.metadata.attachments import BlobWriter
from mdt.metadata.commit_log import SUMMARIES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.services.indexing import Work, summaries_of
from mdt.write.summarize import Found, placed_all

_TASKS_PER_PROCESSOR = 3
_SCHEMA = (
    "index string, segment bigint, payload binary, path string, offset bigint, length bigint, crc bigint, first bigint"
)


class SparkRunner:
    """A :data:`mdt.services.indexing.Runner` on one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = classic(spark)

    def __call__(
        self, metadata: Metadata, options: Options, snapshot: Snapshot, work: Sequence[Work], claim: Claim
    ) -> Iterator[tuple[Work, Found]]:
        """Summarize ``work`` in Spark tasks; yields when all of them have ended."""
        source = source_of(metadata, snapshot, options)
        tasks = min(len(work), _TASKS_PER_PROCESSOR * self._spark.sparkContext.defaultParallelism)
        rows = [(one.row, json.dumps(one.specs)) for one in work]
        with in_driver(writing=True):
            frame = self._spark.createDataFrame(rows, "row bigint, specs string").repartitionByRange(tasks, "row")
            found = map_in_arrow(frame, partial(summarize, source, claim), _SCHEMA).toArrow()
        by_row: dict[int, Found] = {}
        for row in found.to_pylist():
            data = summary_of(row)
            assert data is not None, "a task returns summaries"
            by_row.setdefault(row["segment"], []).append((row["index"], data))
        self._drop_lost_attempts(metadata, claim, found)
        yield from ((one, by_row.get(one.row, [])) for one in work)

    def _drop_lost_attempts(self, metadata: Metadata, claim: Claim, found: pa.Table) -> None:
        """Delete the objects of task attempts whose result was not used."""
        used = set(found["path"].to_pylist())
        stored = metadata.storage.list(paths.key_maps_dir(claim.instant))
        metadata.storage.delete_many([info.path for info in stored if info.path not in used])


def summarize(source: Source, claim: Claim, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Summarize the files of one Spark partition, rows (row, specs as JSON); yields SUMMARIES, segment = row."""
    with in_task():
        result = _summarize(source, claim, [row for batch in batches for row in batch.to_pylist()])
    yield from result.to_batches()


def _summarize(source: Source, claim: Claim, work: Sequence[dict[str, object]]) -> pa.Table:
    if not work:
        return SUMMARIES.empty_table()
    metadata, snapshot = opened(source)
    context = TaskContext.get()
    assert context is not None, "summarize runs in a Spark task"
    part = f"{claim.token}-{context.partitionId()}-{context.taskAttemptId()}"
    blobs = BlobWriter(paths.key_maps(claim.instant, part))
    specs = {int(str(one["row"])): json.loads(str(one["specs"])) for one in work}
    parts = ((row, summaries_of(metadata, snapshot, row, specs[row])) for row in sorted(specs))
    summaries = list(placed_all(blobs, parts, threads=1))
    blobs.write(metadata.storage)
    return summaries_table([(spec, row, data) for row, found in summaries for spec, data in found])

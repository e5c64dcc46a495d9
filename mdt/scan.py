"""A scan: a plan over one snapshot and the ways to run it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from indexes.predicate import Predicate, leaves
from mdt import lazy
from mdt.config import Options
from mdt.errors import Invalid
from mdt.hudi.schema import with_meta
from mdt.metadata import Metadata
from mdt.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.planner import Explanation, ScanPlan, explain, plan
    from mdt.read.scan import read
    from mdt.where import parse_where
else:  # an open needs none of these; see mdt.lazy
    explain = lazy.Callable("mdt.planner", "explain")
    plan = lazy.Callable("mdt.planner", "plan")
    read = lazy.Callable("mdt.read.scan", "read")
    parse_where = lazy.Callable("mdt.where", "parse_where")


Where = str | Sequence[tuple[str, str, object]] | None
"""SQL text, or tests (column, operator, value) that must all hold, or None for every row."""


def checked_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns to read, all data columns for None.  Raises Invalid, naming the nearest, for an unknown one."""
    if columns is None:
        return tuple(snapshot.definition.schema.names)
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    known = with_meta(snapshot.definition.schema).names
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise Invalid(f"there is no column {name!r}", hint=f"did you mean {', '.join(near)}?" if near else "")
    return names


class Scan:
    """The rows of one snapshot that match a filter; nothing is read before it is asked for."""

    def __init__(
        self, metadata: Metadata, snapshot: Snapshot, where: Where, columns: Sequence[str] | None, options: Options
    ) -> None:
        self._metadata = metadata
        self._options = options
        self.snapshot = snapshot
        self._where = where
        self.columns = checked_columns(snapshot, columns)
        schema = with_meta(snapshot.definition.schema)
        self.schema = pa.schema([schema.field(name) for name in self.columns])
        self.predicate: Predicate | None = None
        if where is not None:
            self.predicate = parse_where(where, snapshot.definition.schema)

    @cached_property
    def plan(self) -> ScanPlan:
        """What will be read."""
        return plan(self._metadata, self.snapshot, self.predicate)

    def explain(self, spark: SparkSession | None = None) -> Explanation:
        """Return what is read and skipped, and what each index did; ``print`` it for people.

        ``spark``: plan as a query of this session does, large summaries perhaps read in its tasks.
        """
        text = self._where if isinstance(self._where, str) else str(self._where or "")
        metadata = self._metadata
        caches = {**metadata.cache_counts(), **metadata.blobs.cache_counts(), **metadata.summaries.cache_counts()}
        found = self.plan if spark is None else self._plan_on(spark)
        return explain(found, where=text, caches={name: found for name, found in caches.items() if any(found)})

    def _plan_on(self, spark: SparkSession) -> ScanPlan:
        from mdt.spark.index_tasks import IndexTasks  # pyspark takes a second to import; only Spark users pay for it

        return plan(self._metadata, self.snapshot, self.predicate, IndexTasks(spark.sparkContext, with_positions=True))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, streamed: a few row groups are in memory at a time."""
        for table in self._tables(self.columns):
            yield from table.to_batches()

    def to_arrow(self) -> pa.Table:
        """Return the rows as one table; their order is not specified."""
        tables = list(self._tables(self.columns))
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def count(self) -> int:
        """Return how many rows match; without a filter no data is read."""
        if self.predicate is None:
            return int((self.snapshot.rows - self.snapshot.dead_rows).sum())
        return sum(len(table) for table in self._tables(self.snapshot.definition.schema.names[:1]))

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows of this snapshot as a Spark DataFrame of native Parquet scans."""
        from mdt.spark import frame  # pyspark takes a second to import; only Spark users pay for it

        return frame.scan(spark, self._metadata, self.snapshot, self.predicate, self.columns)

    @property
    def metadata(self) -> Metadata:
        """The metadata table that the scan reads from."""
        return self._metadata

    def _tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        if self.predicate is not None and self._options.usage_counts:
            self._metadata.usage.record(self.plan.used_indexes(), leaves(self.predicate))
        threads = self._options.reader_threads or pa.cpu_count()
        return read(self._metadata, self.plan, names, threads=threads)

"""A scan: a plan over one snapshot and the ways to run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexes.paths import top_levels
from indexes.predicate import And, Predicate
from indexes.predicate import columns as columns_of
from mdt import late
from mdt.arguments import named_column, one_of, texts
from mdt.config import Options
from mdt.display import html_columns, html_facts, visible
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.forking import cached_property
from mdt.hudi.avro_schema import with_meta
from mdt.limits import BATCH_ROWS_MAX, FAR_FILES_READ_AT_ONCE, LIMIT_ROWS_MAX, SPARK_LIMIT_MAX
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress, ProgressOption, shown
from mdt.schema.convert import without_rows
from mdt.schema.declared import Restoration
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.engines.engine import Engine
    from mdt.filters.order import OrderBy, SortKey
    from mdt.plan.planner import Explanation, ScanPlan


SNAPSHOT, READ_OPTIMIZED = "snapshot", "read_optimized"
"""Types of queries."""

Where = str | Sequence[tuple[str, str, object]] | Predicate | None
"""SQL text, or tests (column, operator, value) that must all hold, or None for every row."""


def checked_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns to read, all data columns for None.  Raises Invalid, naming
    the nearest, for an unknown one.
    """
    if columns is None:
        return tuple(snapshot.definition.schema.names)
    known = with_meta(snapshot.definition.schema).names
    return tuple(named_column(name, known) for name in texts("columns", columns, "['id']"))


def seen_as(query_type: str) -> Callable[[Snapshot], Snapshot]:
    """Return what makes of a snapshot what a query of this type reads.  Raises Invalid for an
    unknown type.
    """
    if one_of("query_type", query_type, (SNAPSHOT, READ_OPTIMIZED)) == SNAPSHOT:
        return _as_it_is
    return late.read_optimized.ReadOptimized.of


def _as_it_is(snapshot: Snapshot) -> Snapshot:
    return snapshot


def _written_since(
    metadata: Metadata, snapshot: Snapshot, since: int, predicate: Predicate | None
) -> Predicate:
    """Return ``predicate`` for rows alone that commits after ``since`` wrote."""
    if since < 0:
        raise Invalid(f"there is no commit {since}", hint=f"commits 0 to {snapshot.seq} exist")
    if since > snapshot.seq:
        raise Invalid(
            f"a range from commit {since} to commit {snapshot.seq} goes backwards",
            hint="give the older point first",
        )
    written = late.commit_times.committed_within(
        metadata.history(since=since, of=snapshot), since, snapshot.seq
    )
    return written if predicate is None else And((written, predicate))


def declared_columns(snapshot: Snapshot, names: Sequence[str]) -> pa.Schema:
    """Return the columns ``names`` as they were declared; Hudi's meta columns may be among them."""
    declared = with_meta(snapshot.definition.declared)
    return pa.schema([declared.field(name) for name in names])


class ArrowStream(ABC):
    """Rows with a schema, streamed from the beginning as often as they are asked for."""

    schema: pa.Schema

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, streamed."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, streamed as by :meth:`to_batches`; errors of ours pass
        through it as they are.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, from the beginning at every call.

        The first rows are read here, so that errors of ours are raised as they are, as that of a
        state which was cleaned.  An error while more rows are read ends the stream: its consumer
        raises an error of its own with our text.
        """
        batches = self.to_batches()
        first = list(islice(batches, 1))
        try:
            reader = pa.RecordBatchReader.from_batches(self.schema, chain(first, batches))
            return reader.__arrow_c_stream__(requested_schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(
                f"the rows cannot have the schema that is asked for: {error}",
                hint="cast the result",
            ) from error

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the rows as an Arrow C schema; nothing is read."""
        return self.schema.__arrow_c_schema__()


class Scan(ArrowStream):
    """The rows of one snapshot that match a filter; nothing is read before it is asked for.

    It speaks the Arrow stream protocol, so ``pl.DataFrame(scan)``, ``duckdb.sql("from scan")``,
    ``pa.table(scan)`` and ``pa.RecordBatchReader.from_stream(scan)`` take it as it is, and as often
    as they like; iterating over it yields record batches.  How many rows there are is known by
    reading: :meth:`count`, there is no ``len``.

    >>> scan = t.scan("fare > 4", columns=["id", "fare"], order_by="fare desc", limit=2)
    >>> scan
    <mdt scan of trips at commit 1: 2 columns, where fare > 4, order by fare desc, limit 2>
    >>> scan.to_arrow().to_pylist()
    [{'id': 'a', 'fare': 9.5}, {'id': 'c', 'fare': 7.25}]
    >>> pa.table(scan).num_rows, scan.count(), [batch.num_rows for batch in scan]
    (2, 2, [2])
    """

    def __init__(
        self,
        metadata: Metadata,
        snapshot: Snapshot,
        where: Where,
        columns: Sequence[str] | None,
        options: Options,
        *,
        params: Mapping[str, object] | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
        since: int | None = None,
        query_type: str = "snapshot",
    ) -> None:
        self._metadata = metadata
        self._options = options
        self.query_type = query_type
        self.snapshot = seen_as(query_type)(snapshot)
        self.since = since
        self._where = where
        self.columns = checked_columns(snapshot, columns)
        self.limit = None if limit is None else _row_count(limit)
        schema = with_meta(snapshot.definition.schema)
        self.schema = declared_columns(snapshot, self.columns)
        self._restoration = Restoration.of(
            self.schema, pa.schema([schema.field(name) for name in self.columns])
        )
        self.predicate: Predicate | None = None
        if where is not None or params:
            self.predicate = late.where_filter.parse_where(where, schema, params)
        if since is not None:
            self.predicate = _written_since(metadata, snapshot, since, self.predicate)
        self.order: tuple[SortKey, ...] = (
            () if order_by is None else late.order_filter.parse_order(order_by, schema)
        )

    def __repr__(self) -> str:
        asked = [f"{len(self.columns)} columns"]
        asked += [f"where {self._where_text()}"] if self._where is not None else []
        asked += [f"order by {', '.join(map(str, self.order))}"] if self.order else []
        asked += [] if self.limit is None else [f"limit {self.limit:,}"]
        asked += [] if self.since is None else [f"written after commit {self.since}"]
        asked += [] if self.query_type == SNAPSHOT else [self.query_type]
        said = ", ".join(map(visible, asked))
        return (
            f"<mdt scan of {visible(self.snapshot.definition.name)} at commit {self.snapshot.seq}:"
            f" {said}>"
        )

    def _repr_html_(self) -> str:
        try:
            shown: Mapping[str, object] = self.explain().facts()
        except MdtError as error:
            shown = {"cannot be planned": error}
        return html_facts(f"mdt scan of {self.snapshot.definition.name}", shown) + html_columns(
            self.schema
        )

    def __reduce__(self) -> Any:
        """A pickle is the table's place, the snapshot's number and what was asked for; who loads it
        reads the same rows.
        """
        table = self._metadata.storage, dict(self._metadata.overrides), self.snapshot.seq
        parsed = {
            "_where": self._where_text() or None,
            "predicate": self.predicate,
            "order": self.order,
            "since": self.since,
        }
        return _at, (*table, self.columns, self.limit, self.query_type), parsed

    @cached_property
    def plan(self) -> ScanPlan:
        """What will be read; with an order or a filter and a limit, what may be read.  Raises
        Expired if the state was cleaned.
        """
        with self._metadata.reading(self.snapshot):
            found = late.planner.plan(self._metadata, self.snapshot, self.predicate)
        if self.limit is None or self.order or self.predicate is not None:
            return found
        return late.scan_top.within(found, self.limit)

    def explain(self, spark: SparkSession | None = None) -> Explanation:
        """Return what is read and skipped, and what each index did; ``print`` it for people.

        ``spark``: plan as a query of this session does, large summaries perhaps read in its tasks.
        """
        engine = late.choice.engine_of(spark)
        found = self.plan if engine is None else self._plan_on(engine)
        told = late.planner.explain(
            found, where=self._where_text(), caches=late.planner.hit_rates(self._metadata)
        )
        return replace(
            told,
            order_by=", ".join(map(str, self.order)),
            limit=self.limit,
            stops=self._stops(found),
        )

    def _where_text(self) -> str:
        return self._where if isinstance(self._where, str) else str(self._where or "")

    def _stops(self, found: ScanPlan) -> str:
        """Return when reading ends, for the explanation."""
        if self.limit is None:
            return "all rows that match are read, then sorted" if self.order else ""
        if not self.order:
            return (
                "these rows only"
                if self.predicate is None
                else "reading stops when as many rows are found"
            )
        known = late.scan_top.known_bounds(found, self.order[0])
        return (
            f"read by best bound of {self.order[0].column}, known for {known:,} of"
            f" {len(found.segments):,} files; stops when nothing that is left can hold a better row"
        )

    def _plan_on(self, engine: Engine[Any]) -> ScanPlan:
        tasks = late.index_tasks.IndexTasks(engine, with_positions=True)
        with self._metadata.reading(self.snapshot):
            return late.planner.plan(self._metadata, self.snapshot, self.predicate, tasks)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, streamed: a few row groups are in memory at a time.

        With ``order_by`` the result is made first: without ``limit`` all rows that match are in
        memory then.
        """
        if not self.columns:
            for table in self._tables([self._cheapest()], ordered=False):
                yield from (
                    batch.select([]) for batch in table.to_batches(max_chunksize=BATCH_ROWS_MAX)
                )
            return
        for table in self._declared():
            yield from table.to_batches(max_chunksize=BATCH_ROWS_MAX)

    def to_arrow(self, *, progress: ProgressOption = None) -> pa.Table:
        """Return the rows as one table; in no particular order unless ``order_by`` says one.

        ``progress``: a function that takes the number of tasks that are done and of all (with a
        limit that ends reading early, of files), or True for a bar on the terminal.
        """
        if not self.columns:
            rows = self.count(progress=progress)
            # Arrow's concat_tables would forget the rows
            return pa.table({"": pa.nulls(rows)}).select([])
        with shown(progress, "scan") as told:
            tables = list(self._declared(told))
        return pa.concat_tables(tables) if tables else without_rows(self.schema)

    def count(self, *, progress: ProgressOption = None) -> int:
        """Return how many rows match, ``limit`` at most.

        Without a filter no data file is read: the count is that of the commit records, also where a
        data file is damaged or gone, which :meth:`mdt.Table.check` finds.
        """
        with shown(progress, "count") as told:
            if self.predicate is not None:
                return sum(map(len, self._tables([self._cheapest()], ordered=False, progress=told)))
            rows = int((self.snapshot.rows - self.snapshot.dead_rows).sum())
            return rows if self.limit is None else min(rows, self.limit)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows of this snapshot as a Spark DataFrame of native Parquet scans; Spark
        sorts and limits.
        """
        found = late.spark_frame.scan(
            spark, self._metadata, self.snapshot, self.predicate, self.columns, self.order
        )
        if self.limit is None or self.limit >= self.snapshot.rows.sum():
            return found
        if self.limit > SPARK_LIMIT_MAX:
            raise Unsupported(
                f"Spark takes no limit above {SPARK_LIMIT_MAX:,}",
                hint="leave limit out, or use to_batches()",
            )
        return found.limit(self.limit)

    @property
    def metadata(self) -> Metadata:
        """The metadata table that the scan reads from."""
        return self._metadata

    def _declared(self, progress: Progress | None = None) -> Iterator[pa.Table]:
        """Yield the rows as their columns were declared."""
        return map(self._restoration.restored, self._tables(self.columns, progress=progress))

    def _tables(
        self, names: Sequence[str], *, ordered: bool = True, progress: Progress | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows, columns ``names``; ``ordered=False``: which rows they are does not
        matter, only how many.

        Raises Expired if the state is cleaned meanwhile.
        """
        with self._metadata.reading(self.snapshot):
            yield from self._read(names, ordered, progress)

    def _read(
        self, names: Sequence[str], ordered: bool, progress: Progress | None
    ) -> Iterator[pa.Table]:
        if self.predicate is not None and self._options.usage_counts:
            self._metadata.usage.record(late.scan_use.counts_of(self._metadata, self.plan))
        if self.limit == 0:
            return iter(())
        least = FAR_FILES_READ_AT_ONCE if self._metadata.storage.is_remote else 1
        threads = self._options.reader_threads or max(least, pa.cpu_count())
        if self.order and ordered:
            return iter((self._in_order(names, threads, progress),))
        if self.limit is None or self.predicate is None:
            wanted = (
                late.scan_top.within(self.plan, self.limit)
                if self.order and self.limit is not None
                else self.plan
            )
            return late.scan_reader.read(
                self._metadata, wanted, names, threads=threads, progress=progress
            )
        return late.scan_top.first_matches(
            self._metadata, self.plan, names, self.limit, threads=threads, progress=progress
        )

    def _in_order(self, names: Sequence[str], threads: int, progress: Progress | None) -> pa.Table:
        if self.limit is None:
            return late.scan_top.in_order(
                self._metadata, self.plan, names, self.order, threads=threads, progress=progress
            )
        return late.scan_top.best(
            self._metadata,
            self.plan,
            names,
            self.order,
            self.limit,
            threads=threads,
            progress=progress,
        )

    def _cheapest(self) -> str:
        """Return a column to read where only the number of rows is wanted: one that is tested,
        hence read anyway.
        """
        schema = self.snapshot.definition.schema
        tested = (
            top_levels(with_meta(schema), columns_of(self.predicate))
            if self.predicate is not None
            else ()
        )
        return min(tested, default=schema.names[0])


def _at(
    storage: Storage,
    overrides: Mapping[str, object],
    seq: int,
    columns: Sequence[str],
    limit: int | None,
    query_type: str,
) -> Scan:
    """Return a scan as it was pickled, but for what was parsed.  Raises Invalid if its snapshot is
    gone.
    """
    metadata = Metadata(storage, overrides)
    snapshot = metadata.at(seq)
    options = metadata.options(snapshot.definition)
    return Scan(metadata, snapshot, None, columns, options, limit=limit, query_type=query_type)


def _row_count(limit: object) -> int:
    """Return ``limit`` as a number.  Raises Invalid for what is no number of rows."""
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise Invalid(
            f"limit takes a number of rows, not a value of type {type(limit).__name__}",
            hint="write limit=10",
        )
    count = int(limit.__index__())
    if count < 0:
        raise Invalid(f"limit={count} is below 0", hint="leave limit out for all rows")
    return min(count, LIMIT_ROWS_MAX)

"""Scans of a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from indexes.paths import top_levels
from indexes.predicate import And, Predicate
from indexes.predicate import columns as columns_of
from mdt import late
from mdt.arguments import named_column, one_of, shown, texts
from mdt.config import Options
from mdt.display import html_columns, html_facts, html_preview, visible
from mdt.errors import Invalid, Unsupported
from mdt.familiar_names import SCAN_NAMES, FamiliarNames
from mdt.forking import cached_property
from mdt.hudi.avro_schema import with_meta
from mdt.limits import BATCH_ROWS_MAX, FAR_FILES_READ_AT_ONCE, LIMIT_ROWS_MAX, SPARK_LIMIT_MAX
from mdt.metadata.history.other_tables import require_same
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress, ProgressOption, progress_callback
from mdt.schema.convert import without_rows
from mdt.schema.declared import Restoration
from mdt.schema.python_values import rows_of
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.engines.engine import Engine
    from mdt.filters.order import OrderBy, SortKey
    from mdt.plan.planner import Explanation, ScanPlan


SNAPSHOT, READ_OPTIMIZED = "snapshot", "read_optimized"
"""Query types."""

PREVIEW_ROWS, PREVIEW_COLUMNS = 10, 40
"""Maximum number of rows and columns that a notebook shows of a scan."""

Where = str | Sequence[tuple[str, str, object]] | Predicate | None
"""SQL text, or tests (column, operator, value) joined by AND, or None for all rows."""


def checked_columns(snapshot: Snapshot, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to read, all data columns for None. Raises Invalid, with the nearest
    names, for an unknown column.
    """
    if columns is None:
        return tuple(snapshot.definition.schema.names)
    readable = with_meta(snapshot.definition.schema).names
    return tuple(named_column(name, readable) for name in texts("columns", columns, "['id']"))


def view_for(query_type: str) -> Callable[[Snapshot], Snapshot]:
    """Return the function that maps a snapshot to the view for ``query_type``. Raises Invalid for
    an unknown type.
    """
    if one_of("query_type", query_type, (SNAPSHOT, READ_OPTIMIZED)) == SNAPSHOT:
        return _whole_snapshot
    return late.read_optimized.ReadOptimized.from_snapshot


def _whole_snapshot(snapshot: Snapshot) -> Snapshot:
    return snapshot


def _written_since(
    metadata: Metadata, snapshot: Snapshot, since: int, predicate: Predicate | None
) -> Predicate:
    """Return ``predicate`` restricted to rows that commits after ``since`` wrote.

    Raises Unsupported if one of them imported commits of other writers, whose rows have other
    commit times.
    """
    if since < 0:
        raise Invalid(f"there is no commit {since}", hint=f"commits 0 to {snapshot.seq} exist")
    if since > snapshot.seq:
        raise Invalid(
            f"the range from commit {since} to commit {snapshot.seq} is reversed",
            hint="give the older commit first",
        )
    history = metadata.history(since=since, until=snapshot)
    imported = late.commit_times.first_import(history, since, snapshot.seq)
    if imported is not None:
        raise Unsupported(
            f"the rows written after commit {since} cannot be found by commit number: commit"
            f" {imported} imported commits of another Hudi writer",
            hint="give an instant or a time as since, or read changes, which contain these rows",
        )
    written = late.commit_times.committed_within(history, since, snapshot.seq)
    return written if predicate is None else And((written, predicate))


def declared_columns(snapshot: Snapshot, names: Sequence[str]) -> pa.Schema:
    """Return the declared fields of ``names``, which may include Hudi's meta columns."""
    declared = with_meta(snapshot.definition.declared)
    return pa.schema([declared.field(name) for name in names])


class ArrowStream(FamiliarNames, ABC):
    """Rows with a schema that can be streamed any number of times."""

    schema: pa.Schema

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as record batches."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that streams the rows as :meth:`to_batches` does.

        It raises mdt's errors unchanged.

        >>> t.scan(columns=["id"]).to_reader().read_all().num_rows
        3
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream that starts at the first row.

        The first batch is read here, so that mdt's errors are raised as they are. A later error
        ends the stream, and its consumer raises an error with our message.
        """
        batches = self.to_batches()
        first = list(islice(batches, 1))
        try:
            reader = pa.RecordBatchReader.from_batches(self.schema, chain(first, batches))
            return reader.__arrow_c_stream__(requested_schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(
                f"the rows cannot be converted to the requested schema: {error}",
                hint="cast the result",
            ) from error

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an Arrow C schema, without reading rows."""
        return self.schema.__arrow_c_schema__()


class Scan(ArrowStream):
    """The rows of a snapshot that match a filter. Nothing is read until rows are requested.

    A scan implements the Arrow stream protocol. ``pl.DataFrame(scan)``,
    ``duckdb.sql("from scan")``, ``pa.table(scan)`` and ``pa.RecordBatchReader.from_stream(scan)``
    accept it, any number of times. Iterating over it yields record batches. It has no ``len``,
    because the number of rows requires a read: use :meth:`count`.

    >>> scan = t.scan("fare > 4", columns=["id", "fare"], order_by="fare desc", limit=2)
    >>> scan
    <mdt scan of trips at commit 1: 2 columns, where fare > 4, order by fare desc, limit 2>
    >>> scan.to_arrow().to_pylist()
    [{'id': 'a', 'fare': 9.5}, {'id': 'c', 'fare': 7.25}]
    >>> pa.table(scan).num_rows, scan.count(), [batch.num_rows for batch in scan]
    (2, 2, [2])

    Notebooks show the first ten rows of a scan, with the types of the columns. ``t.scan(limit=0)``
    shows the columns only.
    """

    _familiar_names = SCAN_NAMES

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
        self.snapshot = view_for(query_type)(snapshot)
        self.since = since
        self._where = where
        self.columns = checked_columns(snapshot, columns)
        self._limit = None if limit is None else _row_count(limit)
        schema = with_meta(snapshot.definition.schema)
        self.schema = declared_columns(snapshot, self.columns)
        self._restoration = Restoration.from_schemas(
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
        details = [f"{len(self.columns)} columns"]
        details += [f"where {self._where_text()}"] if self._where is not None else []
        details += [f"order by {', '.join(map(str, self.order))}"] if self.order else []
        details += [] if self._limit is None else [f"limit {self._limit:,}"]
        details += [] if self.since is None else [f"written after commit {self.since}"]
        details += [] if self.query_type == SNAPSHOT else [self.query_type]
        summary = ", ".join(map(visible, details))
        return (
            f"<mdt scan of {visible(self.snapshot.definition.name)} at commit {self.snapshot.seq}:"
            f" {summary}>"
        )

    def _repr_html_(self) -> str:
        """Return the first ten rows as an HTML table for notebooks.

        Reads no more than these rows need. An error is shown as text instead of the rows.
        """
        caption = repr(self)[1:-1]
        preview = Scan(
            self._metadata,
            self.snapshot,
            None,
            self.columns[:PREVIEW_COLUMNS],
            replace(self._options, usage_counts=False),
            limit=PREVIEW_ROWS if self._limit is None else min(PREVIEW_ROWS, self._limit),
        )
        preview.predicate, preview.order = self.predicate, self.order
        try:
            rows = rows_of(preview.to_arrow())
            summary = self._preview_text(len(rows))
        except Exception as error:  # noqa: BLE001 - a notebook would hide the scan
            return html_facts(caption, {"cannot be read": error}) + html_columns(self.schema)
        return html_preview(f"{caption}; {summary}", preview.schema, rows)

    def _preview_text(self, shown_rows: int) -> str:
        """Return a text such as "10 of 3,300 rows" about a preview."""
        is_whole = shown_rows < PREVIEW_ROWS
        if self.predicate is None:
            total = self.count()
            is_whole = shown_rows == total
            text = f"{shown_rows:,} of {total:,} rows"
        else:
            text = f"the first {shown_rows:,} matching rows"
        if is_whole:
            text = f"all {shown_rows:,} rows"
        if len(self.columns) > PREVIEW_COLUMNS:
            text += f", {PREVIEW_COLUMNS} of {len(self.columns):,} columns"
        return text

    def __reduce__(self) -> Any:
        """Pickle the storage, the snapshot's number and instant, and the arguments. The copy reads
        the same rows.
        """
        snapshot = self.snapshot.seq, self.snapshot.last_instant
        table = self._metadata.storage, dict(self._metadata.overrides), *snapshot
        parsed = {
            "_where": self._where_text() or None,
            "predicate": self.predicate,
            "order": self.order,
            "since": self.since,
        }
        return _unpickle, (*table, self.columns, self._limit, self.query_type), parsed

    @cached_property
    def plan(self) -> ScanPlan:
        """The files and row groups to read. With a limit and an order or a filter, some of them may
        be skipped at run time. Raises Expired if the snapshot was cleaned.
        """
        with self._metadata.reading(self.snapshot):
            plan = late.planner.plan(self._metadata, self.snapshot, self.predicate)
        if self._limit is None or self.order or self.predicate is not None:
            return plan
        return late.scan_top.limit_plan(plan, self._limit)

    def explain(self, spark: SparkSession | None = None) -> Explanation:
        """Explain the plan: the files, row groups and rows to read, and the effect of each index.

        Print the result for a summary.

        spark: Plan as a query of this session does. Its tasks may read large index summaries.

        >>> print(t.scan("fare > 8").explain())
        snapshot 1, where fare > 8
        ...
        """
        engine = late.choice.engine_of(spark)
        plan = self.plan if engine is None else self._plan_on(engine)
        explanation = late.planner.explain(
            plan, where=self._where_text(), caches=late.planner.hit_rates(self._metadata)
        )
        return replace(
            explanation,
            order_by=", ".join(map(str, self.order)),
            limit=self._limit,
            stops=self._stop_text(plan),
        )

    def _where_text(self) -> str:
        return self._where if isinstance(self._where, str) else str(self._where or "")

    def _stop_text(self, plan: ScanPlan) -> str:
        """Return the explanation's text on when reading stops."""
        if self._limit is None:
            return "reads all matching rows, then sorts them" if self.order else ""
        if not self.order:
            if self.predicate is None:
                return "reads only these rows"
            return "stops as soon as enough rows match"
        bounded_files = late.scan_top.segments_with_bounds(plan, self.order[0])
        return (
            "stops as soon as no remaining file can contain a better row, reading files by their"
            f" min/max of {self.order[0].column}, known for {bounded_files:,} of"
            f" {len(plan.segments):,}"
        )

    def _plan_on(self, engine: Engine[Any]) -> ScanPlan:
        tasks = late.index_tasks.IndexTasks(engine, with_positions=True)
        with self._metadata.reading(self.snapshot):
            return late.planner.plan(self._metadata, self.snapshot, self.predicate, tasks)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows as record batches, with a few row groups in memory at a time.

        With ``order_by`` but no ``limit``, all matching rows are loaded before the first batch.

        >>> [batch.num_rows for batch in t.scan("fare > 5").to_batches()]
        [2]
        """
        if not self.columns:
            for table in self._tables([self._cheapest()], ordered=False):
                yield from (
                    batch.select([]) for batch in table.to_batches(max_chunksize=BATCH_ROWS_MAX)
                )
            return
        for table in self._with_declared_types():
            yield from table.to_batches(max_chunksize=BATCH_ROWS_MAX)

    def to_arrow(self, *, progress: ProgressOption = None) -> pa.Table:
        """Return the rows as a table. Their order is undefined without ``order_by``.

        progress: Called with (done, total) counts of tasks, or of files if a limit may stop reading
            early. True shows a bar on the terminal.

        >>> t.scan("id = 'b'").to_arrow().to_pylist()
        [{'id': 'b', 'city': 'Rome', 'fare': 4.0, 'ts': 1}]
        """
        if not self.columns:
            rows = self.count(progress=progress)
            # Arrow's concat_tables drops the number of rows of tables without columns
            return pa.table({"": pa.nulls(rows)}).select([])
        with progress_callback(progress, "scan") as callback:
            tables = list(self._with_declared_types(callback))
        return pa.concat_tables(tables) if tables else without_rows(self.schema)

    def count(self, *, progress: ProgressOption = None) -> int:
        """Return the number of matching rows, at most ``limit``.

        Without a filter the count comes from the metadata and no data file is read, even if a file
        is damaged or missing. :meth:`mdt.Table.check` finds such files.

        >>> t.scan().count(), t.scan("city = 'Oslo'").count()
        (3, 2)
        """
        with progress_callback(progress, "count") as callback:
            if self.predicate is not None:
                return sum(
                    map(len, self._tables([self._cheapest()], ordered=False, progress=callback))
                )
            rows = int(self.snapshot.live_rows.sum())
            return rows if self._limit is None else min(rows, self._limit)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows of this snapshot as a Spark DataFrame over native Parquet scans.

        Spark applies the order and the limit.

        >>> t.scan("fare > 4").to_spark(spark).show()  # doctest: +SKIP
        """
        frame = late.spark_frame.scan(
            spark, self._metadata, self.snapshot, self.predicate, self.columns, self.order
        )
        if self._limit is None or self._limit >= self.snapshot.rows.sum():
            return frame
        if self._limit > SPARK_LIMIT_MAX:
            raise Unsupported(
                f"limit={self._limit:,} is above Spark's maximum of {SPARK_LIMIT_MAX:,}",
                hint="leave limit out, or use to_batches()",
            )
        return frame.limit(self._limit)

    def limit(self, rows: int) -> NoReturn:
        """Raise Invalid: a scan gets its limit as an argument.

        >>> t.scan(limit=2).count()
        2
        """
        raise Invalid(
            "a scan cannot be limited after it was made", hint=f"write t.scan(limit={shown(rows)})"
        )

    @property
    def metadata(self) -> Metadata:
        """The metadata table that the scan reads."""
        return self._metadata

    def _with_declared_types(self, progress: Progress | None = None) -> Iterator[pa.Table]:
        """Yield the rows with their declared types."""
        return map(self._restoration.restore, self._tables(self.columns, progress=progress))

    def _tables(
        self, names: Sequence[str], *, ordered: bool = True, progress: Progress | None = None
    ) -> Iterator[pa.Table]:
        """Yield the columns ``names`` of the rows.

        ordered: False if only the number of rows matters.

        Raises Expired if the snapshot is cleaned while it is read.
        """
        with self._metadata.reading(self.snapshot):
            yield from self._read(names, ordered, progress)

    def _read(
        self, names: Sequence[str], ordered: bool, progress: Progress | None
    ) -> Iterator[pa.Table]:
        if self.predicate is not None and self._options.usage_counts:
            self._metadata.usage.record(late.scan_use.counts_of(self._metadata, self.plan))
        if self._limit == 0:
            return iter(())
        threads_min = FAR_FILES_READ_AT_ONCE if self._metadata.storage.is_remote else 1
        threads = self._options.reader_threads or max(threads_min, pa.cpu_count())
        if self.order and ordered:
            return iter((self._in_order(names, threads, progress),))
        if self._limit is None or self.predicate is None:
            plan = (
                late.scan_top.limit_plan(self.plan, self._limit)
                if self.order and self._limit is not None
                else self.plan
            )
            return late.scan_reader.read(
                self._metadata, plan, names, threads=threads, progress=progress
            )
        return late.scan_top.first_matches(
            self._metadata, self.plan, names, self._limit, threads=threads, progress=progress
        )

    def _in_order(self, names: Sequence[str], threads: int, progress: Progress | None) -> pa.Table:
        if self._limit is None:
            return late.scan_top.sorted_matches(
                self._metadata, self.plan, names, self.order, threads=threads, progress=progress
            )
        return late.scan_top.top_k(
            self._metadata,
            self.plan,
            names,
            self.order,
            self._limit,
            threads=threads,
            progress=progress,
        )

    def _cheapest(self) -> str:
        """Return a column to read for a count. A column of the filter is read anyway."""
        schema = self.snapshot.definition.schema
        filter_columns = (
            top_levels(with_meta(schema), columns_of(self.predicate))
            if self.predicate is not None
            else ()
        )
        return min(filter_columns, default=schema.names[0])


def _unpickle(
    storage: Storage,
    overrides: Mapping[str, object],
    seq: int,
    instant: str,
    columns: Sequence[str],
    limit: int | None,
    query_type: str,
) -> Scan:
    """Unpickle a scan, without its filter and order. Raises Invalid if its snapshot does not
    exist.
    """
    metadata = Metadata(storage, overrides)
    snapshot = metadata.at(seq)
    require_same(storage, snapshot, instant)
    options = metadata.options(snapshot.definition)
    return Scan(metadata, snapshot, None, columns, options, limit=limit, query_type=query_type)


def _row_count(limit: object) -> int:
    """Return ``limit`` as an int. Raises Invalid for anything but a number of rows."""
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise Invalid(
            f"limit takes a number of rows, not a {type(limit).__name__}",
            hint="write limit=10",
        )
    count = int(limit.__index__())
    if count < 0:
        raise Invalid(f"limit={count} is negative", hint="leave limit out for all rows")
    return min(count, LIMIT_ROWS_MAX)

"""Tables as Spark DataFrames: a native Parquet scan of the files and rows that mdt's planner
chooses per query.

A single relation reads base files and the data blocks inside log files, all without deleted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from indexes import paths
from indexes.predicate import And, Call, Predicate, leaves
from mdt.commit import publish
from mdt.engines.index_tasks import IndexTasks
from mdt.engines.spark import private
from mdt.engines.spark.columns import quoted, to_column, to_sort_column
from mdt.engines.spark.engine import SparkEngine
from mdt.engines.spark.failures import restore_in_queries
from mdt.engines.spark.file_index import Lister, another_frame, list_size, relation
from mdt.engines.spark.listing import Listing
from mdt.engines.spark.native_files import SnapshotFiles, forms_text
from mdt.engines.spark.private import spark_schema
from mdt.engines.spark.session import classic, is_on_this_machine, name
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.filters.order import SortKey
from mdt.hudi.avro_schema import with_meta
from mdt.importing.imported_storage import ImportedStorage
from mdt.limits import LISTED_FILES_MAX, RELATIONS_OF_TABLE_MAX
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan import proofs
from mdt.plan.estimates import TableEstimate, estimate
from mdt.plan.planner import Figure, ScanPlan, SegmentScan, explain, hit_rates, plan
from mdt.plan.position_search import RemotePruner, conjuncts_of
from mdt.plan.proofs import QueryFiles, Totals
from mdt.scan.index_use import counts_of
from mdt.scan.sample import Samples
from mdt.schema.declared import with_local_timestamps
from mdt.schema.definition import TableDefinition
from mdt.services.indexing import statistics
from mdt.session import Recent
from mdt.spark_settings import SparkSettings
from mdt.stores.storage import Storage

View = Callable[[Snapshot], Snapshot]

_VIEWS_MAX = 8
_PLANS_MAX = 4
_DISTINCT_MAX = 256
_BEHIND_MIN = 0.1
"""Minimum fraction of files that a top-N bound must exclude. Testing it on every row costs up to
half of a scan.
"""
_EVERYTHING = And(())
_UNPINNED = "call:"
_CREATE_AGAIN = (
    "create it again with mdt.read(spark, path), or run REFRESH TABLE for a catalog table"
)


def read(
    spark: SparkSession,
    metadata: Metadata,
    pinned: Snapshot | None = None,
    view: View | None = None,
    *,
    reads: SparkSettings | None = None,
    relations: Relations | None = None,
) -> DataFrame:
    """Return a table as a DataFrame. Each query is planned on the newest snapshot at that time, or
    always on ``pinned``.

    ``view``: maps the newest snapshot to the snapshot that is read, None for itself. ``reads``:
    read settings of the session, if any. ``relations``: cached relations of ``metadata``. Pinned
    relations are not cached.
    """
    newest = pinned or publish.published_snapshot(metadata, metadata.newest())
    definition = newest.definition

    def make_frame() -> private.ReplannedFrame:
        files = _files(spark, metadata, pinned, reads)
        files.view_of = view
        return _frame(spark, files, definition, visible_schema(definition))

    if relations is None or pinned is not None:
        return make_frame()
    return relations.frame(classic(spark), (view, reads), definition, make_frame)


class Relations:
    """LRU cache of relations of an open table, with their plans and file lists, for use by further
    frames.

    Each entry is for a session, view and read setting.
    """

    def __init__(self) -> None:
        self._frames: Recent[Hashable, _CachedFrame] = Recent(RELATIONS_OF_TABLE_MAX)

    def __len__(self) -> int:
        return len(self._frames)

    def frame(
        self,
        spark: SparkSession,
        how: Hashable,
        definition: TableDefinition,
        make: Callable[[], private.ReplannedFrame],
    ) -> DataFrame:
        """Return another frame of a cached relation with the same settings, or the frame of
        ``make``. ``definition``: of the table now.
        """
        key = name(spark), how
        cached = self._frames.get(key)
        if cached is not None and cached.definition == definition:
            return another_frame(spark, cached.frame)
        relation = make()
        self._frames.drop(key)
        self._frames.put(key, _CachedFrame(key, definition, relation))
        return relation

    def forget_stopped(self) -> None:
        """Remove the relations of stopped sessions."""
        for cached in self._frames.values():
            if private.is_stopped(cached.frame.sparkSession):
                self._frames.drop(cached.key)


@dataclass(frozen=True, slots=True)
class _CachedFrame:
    """A relation and the definition of its table when it was made."""

    key: Hashable
    definition: TableDefinition
    frame: private.ReplannedFrame


def read_footers(
    spark: SparkSession, metadata: Metadata, snapshot: Snapshot, reads: SparkSettings
) -> int:
    """Read the footers of all files in the tasks of a query; return the number of files, or 0 if
    executors would not cache them.

    Executors remember verified footers of local files. They cache footers of remote files if the
    session allows it.
    """
    if (metadata.storage.is_remote and not reads.footers_bytes) or not snapshot.has_rows.any():
        return 0
    read(spark, metadata, snapshot, reads=replace(reads, explain=(), optimize=())).count()
    return int(snapshot.has_rows.sum())


def failing_frame(spark: SparkSession, error: MdtError, columns: StructType) -> DataFrame:
    """Return a frame with ``columns`` whose every action fails with ``error``."""
    failure = sf.raise_error(sf.lit(f"{type(error).__name__}: {error}")).cast("boolean")
    nothing = [sf.lit(None).cast(field.dataType).alias(field.name) for field in columns]
    return classic(spark).range(1).where(failure).select(*nothing)


def visible_schema(definition: TableDefinition) -> pa.Schema:
    """Return the data columns as Spark shows them: the stored types, but without a time zone unless
    one was declared.
    """
    return with_local_timestamps(definition.declared, definition.schema)


def spark_versions(definition: TableDefinition) -> list[StructType]:
    """Return the data columns as Spark shows them for each schema version. Empty for a table that
    was never altered.
    """
    shown_of = (
        with_local_timestamps(version.declared, version.schema) for version in definition.versions
    )
    return [spark_schema(columns) for columns in shown_of]


def scan(
    spark: SparkSession,
    metadata: Metadata,
    snapshot: Snapshot,
    predicate: Predicate | None,
    columns: Sequence[str],
    order: Sequence[SortKey] = (),
    *,
    reads: SparkSettings | None = None,
) -> DataFrame:
    """Return ``columns`` (including meta columns, if named) of the rows of ``snapshot`` that match
    ``predicate``, in ``order``.

    ``reads``: as for :func:`read`.
    """
    schema = with_meta(visible_schema(snapshot.definition))
    files = _files(spark, metadata, snapshot, reads)
    files.hidden_filter = _with_calls(predicate)
    frame: DataFrame = _frame(spark, files, snapshot.definition, schema)
    if predicate is not None:
        frame = frame.where(to_column(predicate, schema))
    if order:
        frame = frame.orderBy(*(to_sort_column(key, schema) for key in order))
    return frame.select(*(quoted(name) for name in columns))


def _files(
    spark: SparkSession, metadata: Metadata, pinned: Snapshot | None, reads: SparkSettings | None
) -> _TableLister:
    files = _TableLister(metadata, pinned, IndexTasks(SparkEngine(classic(spark))), reads)
    files.log = lambda line: private.log(spark, "mdt.plan")(line)
    return files


def _frame(
    spark: SparkSession, files: _TableLister, definition: TableDefinition, schema: pa.Schema
) -> private.ReplannedFrame:
    """Return a frame of all rows of ``files`` with the columns ``schema``. The caller filters
    them.
    """
    files.definition = definition
    _refuse_merged_files(spark, files.metadata.storage)
    root = files.metadata.storage.uri("").rstrip("/")
    restore_in_queries(root)
    columns = spark_schema(schema)
    has_affinity = files.reads.affinity == "on" or (files.reads.affinity == "auto" and files.is_far)
    features = [
        *files.reads.optimize,
        *(["told"] if files.reads.explain else []),
        *(["placed"] if has_affinity else []),
        *(["far"] if files.is_far else []),
        *(["newest"] if files.reads_newest else []),
    ]
    return relation(
        spark,
        files,
        columns,
        root,
        forms_text(definition),
        features=features,
        footer_bytes=files.footer_bytes,
        vector_bytes=files.reads.vectors_bytes,
    )


def _refuse_merged_files(spark: SparkSession, storage: Storage) -> None:
    """Raise Unsupported for files that only this machine has, on a cluster."""
    merged = storage.merged if isinstance(storage, ImportedStorage) else 0
    if merged and not is_on_this_machine(spark):
        raise Unsupported(
            f"{merged} file slices of {storage.url} have log files, which were merged on"
            " this machine, where executors do not find them",
            hint="let Hudi compact the table, or read it in process: mdt.open(path).scan()",
        )


def _with_calls(predicate: Predicate | None) -> Predicate | None:
    """Return the conditions of ``predicate`` that call predicate functions, or None if there are
    none.

    Spark evaluates them in Python after the scan, and so does not pass them to the planner.
    """
    if predicate is None:
        return None
    conditions = tuple(
        part
        for part in conjuncts_of(predicate)
        if any(isinstance(leaf, Call) for leaf in leaves(part))
    )
    if not conditions:
        return None
    return And(conditions)


@dataclass
class _Query:
    """The pinned snapshot of a running query, its plans, and their ``figures`` if requested.

    ``explains``: receivers of explanations, "log" and "metrics".
    """

    snapshot: Snapshot
    plans: dict[Predicate, ScanPlan] = field(default_factory=dict)
    figures: dict[Predicate, list[Figure]] = field(default_factory=dict)
    explains: frozenset[str] = frozenset()
    lock: Lock = field(default_factory=Lock)


class _TableLister(Lister):
    """The lister of a frame: pinned snapshots of running queries, their files and plans.

    ``hidden``: a filter on all queries that Spark does not pass on.
    ``seen``: maps the newest snapshot to the snapshot that is read.
    ``definition``: of the table when the frame was made.
    ``log``: receives a line per plan if the query's session requests it.
    ``footer_bytes``: footer cache of executors, for remote stores only, because machines cache
        local files themselves.
    """

    def __init__(
        self,
        metadata: Metadata,
        pinned: Snapshot | None,
        tasks: RemotePruner | None = None,
        reads: SparkSettings | None = None,
    ) -> None:
        self.metadata = metadata
        self.reads = reads or SparkSettings()
        self.is_far = metadata.storage.is_remote
        self.footer_bytes = self.reads.footers_bytes if self.is_far else 0
        self._tasks = tasks
        self._pinned = pinned
        self.hidden_filter: Predicate | None = None
        self.view_of: View | None = None
        self.definition: TableDefinition | None = None
        self.log: Callable[[str], object] | None = None
        self._queries: dict[str, _Query] = {}
        self._views: Recent[tuple[object, ...], SnapshotFiles] = Recent(LISTED_FILES_MAX)
        self._plans: Recent[tuple[object, ...], ScanPlan] = Recent(_PLANS_MAX)
        self._estimates: Recent[tuple[object, ...], TableEstimate] = Recent(_PLANS_MAX)
        self._distinct_values: Recent[tuple[object, ...], int] = Recent(_DISTINCT_MAX)
        self._samples = Samples(metadata)
        self._lock = Lock()

    @property
    def reads_newest(self) -> bool:
        """True if a query reads the newest snapshot."""
        return self._pinned is None and self.view_of is None

    def explain(self, query: str, to: Collection[str]) -> None:
        """See :meth:`mdt.engines.spark.file_index.Lister.explain`."""
        self.query(query).explains = frozenset(to)

    def list(self, query: str, predicate: Predicate, rows: int | None = None) -> Listing:
        """See :meth:`mdt.engines.spark.file_index.Lister.list`."""
        predicate = self._with_hidden(predicate)
        pinned = self.query(query)
        view = self.view(pinned.snapshot)
        if (predicate == _EVERYTHING and rows is None) or not len(view.numbers):
            figures = () if query.startswith(_UNPINNED) else self._explain_everything(pinned)
            return Listing(view.version, view, figures=figures)
        files = None
        if rows is not None:
            files = proofs.files_with_rows(self._matching_files(pinned.snapshot, predicate), rows)
        if files is None:
            scans: Sequence[SegmentScan] = self.plan(pinned, predicate).segments
        else:
            scans = [SegmentScan(file) for file in files.tolist()]
        keep, bitmaps = view.keep(scans)
        return Listing(view.version, view, keep, bitmaps, pinned.figures.get(predicate, ()))

    def estimate(
        self,
        query: str,
        predicate: Predicate,
        columns: Sequence[str],
        *,
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        """Return the estimate after pruning. See :class:`mdt.engines.spark.answers.Optimizing`."""
        snapshot = self.query(query).snapshot
        key = (*snapshot.cache_key, predicate, tuple(columns), histograms, tuple(keys))
        return self._estimates.made(
            key, lambda: self._make_estimate(snapshot, predicate, columns, histograms, keys)
        )

    def _make_estimate(
        self,
        snapshot: Snapshot,
        predicate: Predicate,
        columns: Sequence[str],
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        filters, distinct = self._with_hidden(predicate), partial(self._distinct, snapshot)
        if filters == _EVERYTHING:
            return estimate(snapshot, columns, distinct, histograms=histograms, keys=keys)
        planned = self._cached_plan(snapshot, filters)
        return estimate(planned, columns, distinct, histograms=histograms, keys=keys)

    def totals(self, query: str, predicate: Predicate, columns: Sequence[str]) -> Totals | None:
        """Return aggregates over the matching rows. See
        :class:`mdt.engines.spark.answers.Optimizing`.
        """
        return proofs.totals(
            self._matching_files(self.query(query).snapshot, self._with_hidden(predicate)), columns
        )

    def threshold(self, query: str, predicate: Predicate, key: SortKey, count: int) -> bytes | None:
        """Return a bound of the first ``count`` rows. See
        :class:`mdt.engines.spark.answers.Optimizing`.
        """
        retained = self._matching_files(self.query(query).snapshot, self._with_hidden(predicate))
        bound = proofs.threshold(retained, key, count)
        if bound is not None and proofs.share_behind(retained, key, bound) >= _BEHIND_MIN:
            return bound
        return None

    def type_of(self, column: str) -> pa.DataType:
        """Return the stored type of a column, or of a struct field by its path."""
        assert self.definition is not None, "a frame knows its columns"
        return paths.type_at(self.definition.schema, column)

    def _distinct(self, snapshot: Snapshot, column: str) -> int:
        """Return the number of distinct values of a column: the row count for a key, else from an
        index ``table_stats`` or a sample.
        """
        if snapshot.definition.key == (column,):
            return int(snapshot.live_rows.sum())
        key = *snapshot.cache_key, column
        count = self._distinct_values.get(key)
        if count is None:
            summary = statistics.summary(self.metadata, snapshot, column)
            value = (
                self._samples.distinct(snapshot, column) if summary is None else summary.distinct
            )
            count = self._distinct_values.put(key, value)
        return count

    def _matching_files(self, snapshot: Snapshot, predicate: Predicate) -> QueryFiles:
        if predicate == _EVERYTHING:
            return QueryFiles.all_files(snapshot)
        return QueryFiles.from_plan(self._cached_plan(snapshot, predicate))

    def _cached_plan(self, snapshot: Snapshot, predicate: Predicate) -> ScanPlan:
        """Return the plan of a snapshot for ``predicate``, cached because the optimizer and the
        query both need it.
        """
        key = *snapshot.cache_key, predicate
        made_plan = self._plans.get(key)
        if made_plan is None:
            filters = predicate if predicate != _EVERYTHING else None
            made_plan = self._plans.put(key, plan(self.metadata, snapshot, filters, self._tasks))
        return made_plan

    def _with_hidden(self, predicate: Predicate) -> Predicate:
        if self.hidden_filter is None:
            return predicate
        return And((self.hidden_filter, predicate))

    def release(self, key: str) -> None:
        """Forget the query ``key`` and its pinned snapshot."""
        with self._lock:
            self._queries.pop(key, None)

    def query(self, key: str) -> _Query:
        """Return the state of a query. Equal keys get the same state until they are released."""
        with self._lock:
            state = self._queries.get(key)
            if state is None:
                state = _Query(self._snapshot())
                self._require_same(state.snapshot.definition)
                if not key.startswith(_UNPINNED):
                    self._queries[key] = state
            return state

    def _snapshot(self) -> Snapshot:
        if self._pinned is not None:
            return self._pinned
        try:
            newest = publish.published_snapshot(self.metadata, self.metadata.newest())
        except MdtError as error:
            self._require_same_table(error)
            raise
        if self.view_of is None:
            return newest
        return self.view_of(newest)

    def _require_same_table(self, met: MdtError) -> None:
        """Raise Invalid if the frame's table was replaced by another table. ``met``: the error that
        occurred.
        """
        now = None
        with suppress(MdtError):
            now = Metadata(self.metadata.storage).newest().definition
        if now is not None:
            self._require_id(now, met)

    def _require_id(self, now: TableDefinition, met: MdtError | None = None) -> None:
        """Raise Invalid if ``now`` belongs to another table than the frame."""
        if self.definition is not None and now.table_id != self.definition.table_id:
            raise Invalid(
                f"the table at {self.metadata.storage.url} was replaced after this DataFrame was"
                " created",
                hint=_CREATE_AGAIN,
            ) from met

    def _require_same(self, now: TableDefinition) -> None:
        """Raise Invalid if the table was replaced, or its columns altered, since the frame was
        made.
        """
        self._require_id(now)
        original = self.definition
        if (
            original is not None
            and now.versions
            and (now.version.ids, now.declared) != (original.version.ids, original.declared)
        ):
            raise Invalid(
                "the table's columns were altered after this DataFrame was created",
                hint=_CREATE_AGAIN,
            )

    def view(self, snapshot: Snapshot) -> SnapshotFiles:
        """Return the files of a snapshot."""
        with self._lock:
            refers = self.metadata.cached_snapshot().keeps_checkpoint(snapshot.checkpoint.seq)
            key = *snapshot.cache_key, refers
            view = self._views.get(key)
            if view is None:
                view = SnapshotFiles(
                    snapshot,
                    self.metadata.storage,
                    compares=self.footer_bytes > 0 or not self.is_far,
                    refers=refers,
                )
                self._views.put(key, view, list_size(len(view.numbers), _VIEWS_MAX))
            return view

    def plan(self, query: _Query, predicate: Predicate) -> ScanPlan:
        """Return the plan of a query for ``predicate``. It is made and counted once per query."""
        with query.lock:
            made_plan = query.plans.get(predicate)
            if made_plan is None:
                before = self._cache_counts(query)
                made_plan = self._cached_plan(query.snapshot, predicate)
                if (
                    not query.plans
                    and self.metadata.options(query.snapshot.definition).usage_counts
                ):
                    self.metadata.usage.record(counts_of(self.metadata, made_plan))
                query.plans[predicate] = made_plan
                self._explain_plan(query, predicate, made_plan, before)
            return made_plan

    def _explain_everything(self, query: _Query) -> Sequence[Figure]:
        """Explain once, if requested, that a query reads everything; return its figures."""
        with query.lock:
            if query.explains and _EVERYTHING not in query.figures:
                self._explain_plan(
                    query,
                    _EVERYTHING,
                    plan(self.metadata, query.snapshot, None),
                    self._cache_counts(query),
                )
            return query.figures.get(_EVERYTHING, ())

    def _explain_plan(
        self, query: _Query, predicate: Predicate, made_plan: ScanPlan, before: tuple[int, int]
    ) -> None:
        """Log a plan and store its figures. ``before``: cache hits and misses before it was
        made.
        """
        if not query.explains:
            return
        explained = explain(made_plan, caches=hit_rates(self.metadata))
        if "log" in query.explains and self.log is not None:
            self.log(f"{self.metadata.storage.url}: {explained.line()}")
        hits, misses = self._cache_counts(query)
        cache_figures = [
            Figure("found in caches", max(0, hits - before[0])),
            Figure("not found in caches", max(0, misses - before[1])),
        ]
        query.figures[predicate] = (
            [*explained.figures(), *cache_figures] if "metrics" in query.explains else []
        )

    def _cache_counts(self, query: _Query) -> tuple[int, int]:
        """Return this process's cache hits and misses for the table."""
        if "metrics" not in query.explains:
            return 0, 0
        counts = hit_rates(self.metadata).values()
        return sum(hits for hits, _ in counts), sum(misses for _, misses in counts)

"""A table as a Spark DataFrame: a native Parquet scan whose files, and rows in them, our planner
chooses, query by query.

One relation reads everything: base files, the data blocks of log files where they stand, all
without their dead rows.
"""

from __future__ import annotations

from collections import OrderedDict
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
from mdt.config import SparkSettings
from mdt.engines.index_tasks import IndexTasks
from mdt.engines.spark import private
from mdt.engines.spark.columns import quoted, to_column, to_sort_column
from mdt.engines.spark.engine import SparkEngine
from mdt.engines.spark.failures import named_in_queries
from mdt.engines.spark.file_index import Lister, again, relation
from mdt.engines.spark.listing import Listing
from mdt.engines.spark.native_files import SnapshotFiles, forms_text
from mdt.engines.spark.private import spark_schema
from mdt.engines.spark.session import classic, name
from mdt.errors import Invalid, MdtError
from mdt.filters.order import SortKey
from mdt.hudi.avro_schema import with_meta
from mdt.limits import LISTED_FILES_MAX, RELATIONS_OF_TABLE_MAX
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan import proofs
from mdt.plan.estimates import TableEstimate, estimate
from mdt.plan.planner import Figure, ScanPlan, SegmentScan, explain, hit_rates, plan
from mdt.plan.position_search import RemotePruner, conjuncts_of
from mdt.plan.proofs import Kept, Totals
from mdt.scan.index_use import counts_of
from mdt.scan.sample import Samples
from mdt.schema.declared import local
from mdt.schema.definition import TableDefinition
from mdt.services.indexing import statistics
from mdt.session import Recent

View = Callable[[Snapshot], Snapshot]

_VIEWS_KEPT = 8
_VIEWS_KEPT_MIN = 2
_PLANS_KEPT = 4
_DISTINCT_KEPT = 256
_BEHIND_MIN = 0.1
"""Share of files that a bound of the first rows must leave out: to test it on every row costs up to
half of a scan.
"""
_EVERYTHING = And(())
_UNPINNED = "call:"
_ANEW = "make it anew, as by mdt.read(spark, path); for a table of the catalog: REFRESH TABLE"


def read(
    spark: SparkSession,
    metadata: Metadata,
    pinned: Snapshot | None = None,
    view: View | None = None,
    *,
    reads: SparkSettings | None = None,
    relations: Relations | None = None,
) -> DataFrame:
    """Return a table as a DataFrame; each query is planned against the newest snapshot then, or
    always against ``pinned``.

    ``view``: makes of the newest snapshot what is read.  ``reads``: how, if the session says
    something.  ``relations``: of ``metadata``, if they are kept; one that is pinned is not among
    them.
    """
    definition = (pinned or metadata.newest()).definition

    def made() -> private.PlannedAnew:
        files = _files(spark, metadata, pinned, reads)
        files.seen = view
        return _frame(spark, files, definition, shown(definition))

    if relations is None or pinned is not None:
        return made()
    return relations.frame(classic(spark), (view, reads), definition, made)


class Relations:
    """Relations of one open table, of which further frames are made, with the plans and lists of
    files that they have: those used last.

    Each is of one session, one view and one way to read.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[TableDefinition, private.PlannedAnew]] = (
            OrderedDict()
        )
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def frame(
        self,
        spark: SparkSession,
        how: Hashable,
        definition: TableDefinition,
        make: Callable[[], private.PlannedAnew],
    ) -> DataFrame:
        """Return another frame of a relation that is read in the same way, or what ``make`` makes;
        ``definition``: of the table now.
        """
        key = name(spark), how
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
        if known is not None and known[0] == definition:
            return again(spark, known[1])
        made = make()
        with self._lock:
            self._kept[key] = definition, made
            while len(self._kept) > RELATIONS_OF_TABLE_MAX:
                self._kept.popitem(last=False)
        return made

    def forget_stopped(self) -> None:
        """Forget the relations of sessions that were stopped."""
        with self._lock:
            for key in [
                key
                for key, (_, frame) in self._kept.items()
                if private.is_stopped(frame.sparkSession)
            ]:
                del self._kept[key]


def open_files(
    spark: SparkSession, metadata: Metadata, snapshot: Snapshot, reads: SparkSettings
) -> int:
    """Let the tasks of a query read the footers of all files, and return how many files these are;
    0 where nobody would remember them.

    Executors remember which footers of near files they have compared, and keep those of far ones,
    if the session lets them.
    """
    if (metadata.storage.is_remote and not reads.footers_bytes) or not snapshot.has_rows.any():
        return 0
    read(spark, metadata, snapshot, reads=replace(reads, explain=(), optimize=())).count()
    return int(snapshot.has_rows.sum())


def unreadable(spark: SparkSession, error: MdtError, columns: StructType) -> DataFrame:
    """Return a frame with ``columns`` of which every action fails with ``error``."""
    told = sf.raise_error(sf.lit(f"{type(error).__name__}: {error}")).cast("boolean")
    nothing = [sf.lit(None).cast(field.dataType).alias(field.name) for field in columns]
    return classic(spark).range(1).where(told).select(*nothing)


def shown(definition: TableDefinition) -> pa.Schema:
    """Return the data columns as Spark shows them: as they are stored, but without a time zone
    where none was declared.
    """
    return local(definition.declared, definition.schema)


def spark_versions(definition: TableDefinition) -> list[StructType]:
    """Return the data columns as Spark shows them for each version of the schema, none for a table
    that was never altered.
    """
    shown_of = (local(version.declared, version.schema) for version in definition.versions)
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
    """Return ``columns`` (meta columns may be among them) of the rows of ``snapshot`` that match
    ``predicate``, in ``order``.

    ``reads``: as for :func:`read`.
    """
    schema = with_meta(shown(snapshot.definition))
    files = _files(spark, metadata, snapshot, reads)
    files.hidden = _with_calls(predicate)
    frame: DataFrame = _frame(spark, files, snapshot.definition, schema)
    if predicate is not None:
        frame = frame.where(to_column(predicate, schema))
    if order:
        frame = frame.orderBy(*(to_sort_column(key, schema) for key in order))
    return frame.select(*(quoted(name) for name in columns))


def _files(
    spark: SparkSession, metadata: Metadata, pinned: Snapshot | None, reads: SparkSettings | None
) -> _Files:
    files = _Files(metadata, pinned, IndexTasks(SparkEngine(classic(spark))), reads)
    files.log = lambda line: private.log(spark, "mdt.plan")(line)
    return files


def _frame(
    spark: SparkSession, files: _Files, definition: TableDefinition, schema: pa.Schema
) -> private.PlannedAnew:
    """Return a frame of all rows of ``files``, columns ``schema``, from which the caller takes
    those that match.
    """
    files.definition = definition
    root = files.metadata.storage.uri("").rstrip("/")
    named_in_queries(root)
    columns = spark_schema(schema)
    placed = files.reads.affinity == "on" or (files.reads.affinity == "auto" and files.is_far)
    does = [
        *files.reads.optimize,
        *(["told"] if files.reads.explain else []),
        *(["placed"] if placed else []),
        *(["far"] if files.is_far else []),
    ]
    return relation(
        spark,
        files,
        columns,
        root,
        forms_text(definition),
        does=does,
        footer_bytes=files.footer_bytes,
        vector_bytes=files.reads.vectors_bytes,
    )


def _with_calls(predicate: Predicate | None) -> Predicate | None:
    """Return the conditions of ``predicate`` that call predicate functions, None if none does.

    Spark evaluates them in Python, after the scan, and so tells the planner nothing of them.
    """
    if predicate is None:
        return None
    found = tuple(
        part
        for part in conjuncts_of(predicate)
        if any(isinstance(leaf, Call) for leaf in leaves(part))
    )
    if not found:
        return None
    return And(found)


@dataclass
class _Query:
    """What one running query is pinned to, and the plans that were made for it; ``figures``: of
    each, if they are asked for.

    ``explains``: who is told of the plans, "log" and "metrics".
    """

    snapshot: Snapshot
    plans: dict[Predicate, ScanPlan] = field(default_factory=dict)
    figures: dict[Predicate, list[Figure]] = field(default_factory=dict)
    explains: frozenset[str] = frozenset()
    lock: Lock = field(default_factory=Lock)


class _Files(Lister):
    """The lister of one frame: which snapshot a running query is pinned to, its files and plans.

    ``hidden``: what all queries of the frame filter by without Spark's telling.  ``seen``: makes of
    the newest snapshot what is read. ``definition``: of the table when the frame was made.
    ``log``: is told each plan in a line, if the session of the query wants it. ``footer_bytes``: of
    footers that executors keep: of far stores only, since machines keep what they have read from
    local ones.
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
        self.hidden: Predicate | None = None
        self.seen: View | None = None
        self.definition: TableDefinition | None = None
        self.log: Callable[[str], object] | None = None
        self._queries: dict[str, _Query] = {}
        self._views: OrderedDict[tuple[int, int, bool], SnapshotFiles] = OrderedDict()
        self._plans: Recent[tuple[int, int, Predicate], ScanPlan] = Recent(_PLANS_KEPT)
        self._estimates: Recent[tuple[object, ...], TableEstimate] = Recent(_PLANS_KEPT)
        self._distinct_values: Recent[tuple[int, str], int] = Recent(_DISTINCT_KEPT)
        self._samples = Samples(metadata)
        self._lock = Lock()

    def explain(self, query: str, to: Collection[str]) -> None:
        """See :meth:`mdt.engines.spark.file_index.Lister.explain`."""
        self.query(query).explains = frozenset(to)

    def list(self, query: str, predicate: Predicate, rows: int | None = None) -> Listing:
        """See :meth:`mdt.engines.spark.file_index.Lister.list`."""
        predicate = self._with_hidden(predicate)
        pinned = self.query(query)
        view = self.view(pinned.snapshot)
        if (predicate == _EVERYTHING and rows is None) or not len(view.numbers):
            figures = () if query.startswith(_UNPINNED) else self._everything(pinned)
            return Listing(view.version, view, figures=figures)
        files = None
        if rows is not None:
            files = proofs.enough(self._kept(pinned.snapshot, predicate), rows)
        if files is None:
            scans: Sequence[SegmentScan] = self.plan(pinned, predicate).segments
        else:
            scans = [SegmentScan(file) for file in files.tolist()]
        keep, wanted = view.keep(scans)
        return Listing(view.version, view, keep, wanted, pinned.figures.get(predicate, ()))

    def estimate(
        self,
        query: str,
        predicate: Predicate,
        columns: Sequence[str],
        *,
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        """Return what is left after pruning; see :class:`mdt.engines.spark.answers.Optimizing`."""
        snapshot = self.query(query).snapshot
        asked = (
            snapshot.seq,
            snapshot.checkpoint.seq,
            predicate,
            tuple(columns),
            histograms,
            tuple(keys),
        )
        return self._estimates.made(
            asked, lambda: self._estimated(snapshot, predicate, columns, histograms, keys)
        )

    def _estimated(
        self,
        snapshot: Snapshot,
        predicate: Predicate,
        columns: Sequence[str],
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        wanted, distinct = self._with_hidden(predicate), partial(self._distinct, snapshot)
        if wanted == _EVERYTHING:
            return estimate(snapshot, columns, distinct, histograms=histograms, keys=keys)
        found = self._planned(snapshot, wanted)
        return estimate(found, columns, distinct, histograms=histograms, keys=keys)

    def totals(self, query: str, predicate: Predicate, columns: Sequence[str]) -> Totals | None:
        """Return sums over the rows that match; see
        :class:`mdt.engines.spark.answers.Optimizing`.
        """
        return proofs.totals(
            self._kept(self.query(query).snapshot, self._with_hidden(predicate)), columns
        )

    def threshold(self, query: str, predicate: Predicate, key: SortKey, count: int) -> bytes | None:
        """Return where the first rows end at the latest; see
        :class:`mdt.engines.spark.answers.Optimizing`.
        """
        kept = self._kept(self.query(query).snapshot, self._with_hidden(predicate))
        found = proofs.threshold(kept, key, count)
        if found is not None and proofs.behind(kept, key, found) >= _BEHIND_MIN:
            return found
        return None

    def type_of(self, column: str) -> pa.DataType:
        """Return the type of a column, or of a field by its path, as it is stored."""
        assert self.definition is not None, "a frame knows its columns"
        return paths.type_at(self.definition.schema, column)

    def _distinct(self, snapshot: Snapshot, column: str) -> int:
        """Return how many values a column has: a key as many as there are rows; else an index
        ``table_stats`` knows, or a sample.
        """
        if snapshot.definition.key == (column,):
            return int((snapshot.rows - snapshot.dead_rows).sum())
        key = snapshot.seq, column
        known = self._distinct_values.get(key)
        if known is None:
            found = statistics.summary(self.metadata, snapshot, column)
            told = self._samples.distinct(snapshot, column) if found is None else found.distinct
            known = self._distinct_values.put(key, told)
        return known

    def _kept(self, snapshot: Snapshot, predicate: Predicate) -> Kept:
        if predicate == _EVERYTHING:
            return Kept.everything(snapshot)
        return Kept.of(self._planned(snapshot, predicate))

    def _planned(self, snapshot: Snapshot, predicate: Predicate) -> ScanPlan:
        """Return the plan of a snapshot for ``predicate``: it is made for the optimizer, and again
        for the query.
        """
        key = snapshot.seq, snapshot.checkpoint.seq, predicate
        found = self._plans.get(key)
        if found is None:
            wanted = predicate if predicate != _EVERYTHING else None
            found = self._plans.put(key, plan(self.metadata, snapshot, wanted, self._tasks))
        return found

    def _with_hidden(self, predicate: Predicate) -> Predicate:
        if self.hidden is None:
            return predicate
        return And((self.hidden, predicate))

    def release(self, key: str) -> None:
        """Forget what the query ``key`` was pinned to."""
        with self._lock:
            self._queries.pop(key, None)

    def query(self, key: str) -> _Query:
        """Return the state of a query: equal keys get the same until they are released."""
        with self._lock:
            found = self._queries.get(key)
            if found is None:
                found = _Query(self._snapshot())
                self._require_same(found.snapshot.definition)
                if not key.startswith(_UNPINNED):
                    self._queries[key] = found
            return found

    def _snapshot(self) -> Snapshot:
        if self._pinned is not None:
            return self._pinned
        try:
            newest = self.metadata.newest()
        except MdtError as error:
            self._require_same_table(error)
            raise
        if self.seen is None:
            return newest
        return self.seen(newest)

    def _require_same_table(self, met: MdtError) -> None:
        """Raise Invalid if another table stands where that of the frame stood; ``met``: what it met
        there.
        """
        made, now = self.definition, None
        with suppress(MdtError):
            now = Metadata(self.metadata.storage).newest().definition
        if made is not None and now is not None and now.table_id != made.table_id:
            raise Invalid(
                f"the table at {self.metadata.storage.url} was replaced by another one since this"
                " DataFrame was made",
                hint=_ANEW,
            ) from met

    def _require_same(self, now: TableDefinition) -> None:
        """Raise Invalid if the columns were altered since the frame was made, which names and types
        them.
        """
        made = self.definition
        if (
            made is not None
            and now.versions
            and (now.version.ids, now.declared) != (made.version.ids, made.declared)
        ):
            raise Invalid(
                "the table's columns were altered since this DataFrame was made", hint=_ANEW
            )

    def view(self, snapshot: Snapshot) -> SnapshotFiles:
        """Return the files of a snapshot."""
        with self._lock:
            refers = self.metadata.known().keeps_checkpoint(snapshot.checkpoint.seq)
            key = snapshot.seq, snapshot.checkpoint.seq, refers
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = SnapshotFiles(
                    snapshot,
                    self.metadata.storage,
                    compares=self.footer_bytes > 0 or not self.is_far,
                    refers=refers,
                )
            self._views.move_to_end(key)
            most = max(
                _VIEWS_KEPT_MIN, min(_VIEWS_KEPT, LISTED_FILES_MAX // max(1, len(view.numbers)))
            )
            while len(self._views) > most:
                self._views.popitem(last=False)
            return view

    def plan(self, query: _Query, predicate: Predicate) -> ScanPlan:
        """Return the plan of a query for ``predicate``, made and counted but once, whoever asks."""
        with query.lock:
            found = query.plans.get(predicate)
            if found is None:
                before = self._cache_counts(query)
                found = self._planned(query.snapshot, predicate)
                if (
                    not query.plans
                    and self.metadata.options(query.snapshot.definition).usage_counts
                ):
                    self.metadata.usage.record(counts_of(self.metadata, found))
                query.plans[predicate] = found
                self._tell(query, predicate, found, before)
            return found

    def _everything(self, query: _Query) -> Sequence[Figure]:
        """Tell, if anybody is to be told, that a query reads everything, but once, and return the
        figures.
        """
        with query.lock:
            if query.explains and _EVERYTHING not in query.figures:
                self._tell(
                    query,
                    _EVERYTHING,
                    plan(self.metadata, query.snapshot, None),
                    self._cache_counts(query),
                )
            return query.figures.get(_EVERYTHING, ())

    def _tell(
        self, query: _Query, predicate: Predicate, found: ScanPlan, before: tuple[int, int]
    ) -> None:
        """Tell the log of a plan, and keep its figures; ``before``: what was found in caches, and
        what was not, before it was made.
        """
        if not query.explains:
            return
        told = explain(found, caches=hit_rates(self.metadata))
        if "log" in query.explains and self.log is not None:
            self.log(f"{self.metadata.storage.url}: {told.line()}")
        hits, misses = self._cache_counts(query)
        known = [
            Figure("found in caches", max(0, hits - before[0])),
            Figure("not found in caches", max(0, misses - before[1])),
        ]
        query.figures[predicate] = [*told.figures(), *known] if "metrics" in query.explains else []

    def _cache_counts(self, query: _Query) -> tuple[int, int]:
        """Return how often this process found something of the table in its caches, and how often
        not.
        """
        if "metrics" not in query.explains:
            return 0, 0
        counts = hit_rates(self.metadata).values()
        return sum(hits for hits, _ in counts), sum(misses for _, misses in counts)

"""What users see: create and open a table, write to it, scan it, look after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import logs
from mdt.arguments import one_of, texts, whole_number
from mdt.config import Options, canonical, parse_options
from mdt.display import visible
from mdt.errors import Corrupt, Invalid
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.plan.position_search import warm_index
from mdt.progress import Progress, ProgressOption, shown
from mdt.query import Scan, Where, checked_columns, declared_columns
from mdt.schema.declared import Restoration
from mdt.schema.definition import TableDefinition
from mdt.schema.input import is_spark, is_spark_schema, to_schema, to_table
from mdt.stores.storage import Storage, open_storage
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdt.commit.operation import Operation
    from mdt.commit.recovery import Recovery
    from mdt.commit.transaction import CommitResult
    from mdt.filters.order import OrderBy
    from mdt.services.check import CheckReport
    from mdt.services.index_report import Advice
    from mdt.services.indexing import BuildResult


class Table:
    """A table at a path or URL.  Make one with :func:`mdt.create` or :func:`mdt.open`; safe to use from threads.

    A pickle is where the table is, and the options that it was opened with: who loads it (a worker process, a Spark task)
    opens the table anew, at its newest commit, with the credentials of its own environment.  Secrets are never in it.
    """

    def __init__(self, storage: Storage, options: Mapping[str, Any] | None = None) -> None:
        self._storage = storage
        self._metadata = Metadata(storage, options)
        self._options: Options | None = None
        self._metadata.newest()

    def __reduce__(self) -> Any:
        """Raises Unsupported for a table in memory."""
        return open, (self._storage, dict(self._metadata.overrides))

    @property
    def path(self) -> str:
        """Where the table is: local path or URL."""
        return self._storage.url

    @property
    def storage(self) -> Storage:
        """The storage below the table."""
        return self._storage

    @property
    def metadata(self) -> Metadata:
        """The metadata table."""
        return self._metadata

    @property
    def definition(self) -> TableDefinition:
        """What the table is; fixed at creation."""
        return self._metadata.newest(watched=False).definition

    @property
    def schema(self) -> pa.Schema:
        """The data columns as they were declared, without Hudi's meta columns."""
        return self.definition.declared

    @property
    def options(self) -> Options:
        """The options kept with the table, overridden by those it was opened with."""
        if self._options is None:
            self._options = self._metadata.options(self.definition)
        return self._options

    def snapshot(self, seq: int | None = None) -> Snapshot:
        """Return the newest snapshot, or the one after commit ``seq``.  Raises Invalid if there is no such commit."""
        return self._metadata.newest() if seq is None else self._metadata.at(whole_number("seq", seq))

    def __repr__(self) -> str:
        d = self.definition
        said = (d.name, d.table_type, f"key={','.join(d.key)}", f"at {self.path}")
        return f"<mdt table {' '.join(map(visible, said))}>"

    def _repr_html_(self) -> str:
        from mdt.services import overview

        return overview.table_html(self.path, self.snapshot())

    # Writing

    def upsert(self, data: Any, *, progress: ProgressOption = None) -> WriteResult:
        """Insert new rows and replace rows whose key exists.

        ``data``: pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an iterable of tables or batches, a list
        of dicts, a dict of columns, anything with the Arrow PyCapsule interface (pandas, polars, duckdb), a lazy frame of
        polars, or a Spark DataFrame.  Columns are matched by name and cast where that loses nothing.  Raises Invalid, naming
        column, row and value, if the data does not fit (nothing is written then), Conflict if other writers were faster too often, Unavailable if storage fails.

        ``progress``, here and in every other call that may take long: a function that takes the number of files that are
        done and of all (what it raises ends the call, and a write is rolled back), or True for a bar on the terminal.
        """
        return self._write(data, "upsert", progress)

    def insert(self, data: Any, *, progress: ProgressOption = None) -> WriteResult:
        """Insert rows; as :meth:`upsert`, but raises Invalid if a key exists or occurs twice in ``data``."""
        return self._write(data, "insert", progress)

    def bulk_insert(self, data: Any, *, progress: ProgressOption = None) -> WriteResult:
        """Insert many rows, sorted by key, into new file groups; refuses keys as :meth:`insert` does."""
        return self._write(data, "bulk_insert", progress)

    def delete(self, keys: Any, *, progress: ProgressOption = None) -> WriteResult:
        """Delete the rows with the given keys.

        ``keys``: data that has the key columns and, under partition scope, the partition columns; further columns are
        ignored.  Keys that do not exist are counted in ``missing``.
        """
        from mdt.write.normalize import normalize_keys
        from mdt.write.operations import Delete

        with shown(progress, "delete") as told:
            self._before_rows()
            table = self._driver_table(keys, (*self.definition.key, *self.definition.partition_by))
            batch = normalize_keys(table, self.definition)
            action = self.definition.commit_action
            return WriteResult.of(self._commit(Delete(self._metadata, self.options, batch, "delete", action, told)))

    def _write(self, data: Any, name: str, progress: ProgressOption) -> WriteResult:
        with shown(progress, name) as told:
            return self._write_rows(data, name, told)

    def _write_rows(self, data: Any, name: str, progress: Progress | None) -> WriteResult:
        from mdt.write.normalize import normalize
        from mdt.write.operations import Upsert

        self._before_rows()
        if is_spark(data):
            from mdt.engines.spark import engine  # pyspark takes a second to import; only Spark users pay for it

            small = engine.collect_if_small(data, self.options.spark_local_bytes_max)
            if small is None:
                done = engine.write(self._metadata, self.options, data, name, progress)
                return WriteResult.of(done, engine="spark")
            data = small
        batch = normalize(to_table(data, self.schema), self.definition)
        action = self.definition.commit_action
        return WriteResult.of(self._commit(Upsert(self._metadata, self.options, batch, name, action, progress)))

    def _driver_table(self, data: Any, names: Sequence[str]) -> pa.Table:
        if is_spark(data):
            from mdt.engines.spark import engine  # as above

            return engine.collect(data, names)
        return to_table(data, self.schema)

    def _commit(self, operation: Operation[Any]) -> CommitResult[Any]:
        from mdt.commit.transaction import run

        return run(self._metadata, operation, attempts=self.options.commit_attempts)

    def _before_rows(self) -> None:
        """As :meth:`_before_write`; rows are found by the key index, so it must be there."""
        self._metadata.key_index(self._metadata.newest())
        self._before_write()

    def _before_write(self, *, roll_back: bool = True) -> None:
        """Refuse what cannot be written safely, then finish or remove what crashed writers left (with ``roll_back``)."""
        from mdt.commit.recovery import recover

        self._storage.require_conditional_put()
        self._metadata.newest()
        self._metadata.watch.refuse_to_write()
        if roll_back:
            recover(self._metadata, after_seconds=self.options.rollback_after_seconds or 1)

    # Reading

    def scan(
        self, where: Where = None, columns: Sequence[str] | None = None, *, params: Mapping[str, object] | None = None,
        limit: int | None = None, order_by: OrderBy = None,
    ) -> Scan:  # fmt: skip
        """Return a scan of the newest snapshot.

        ``where``: SQL text such as ``"status = 'done' and fare > 10"``, or a list of (column, op, value) joined by AND.
        ``columns``: names to return, all data columns by default; Hudi's meta columns may be named.  ``params``: values for
        ``:name`` in the text, lists for ``in :names``.  ``limit``: rows at most.  ``order_by``: SQL text such as
        ``"ts desc, id"``, or a list of (column, "asc" or "desc"[, "nulls first" or "nulls last"]); with a limit, what cannot
        hold one of the first rows is not read.  Raises Invalid for unknown columns and SQL that does not parse.
        """
        newest = self._metadata.newest()
        return Scan(self._metadata, newest, where, columns, self.options, params=params, limit=limit, order_by=order_by)

    def get(
        self, keys: Any, columns: Sequence[str] | None = None, *, missing: str = "null"
    ) -> pa.Table | dict[str, Any] | None:
        """Return rows by record key, without SQL: a dict for one key, a table in the order of the keys for several.

        ``keys``: a value (with several key columns a tuple of values, or a dict); or a list, numpy or Arrow array of these; or a table with
        the key columns.  Dicts and tables may name the partition columns, too: under partition scope a key may live in several
        partitions, and Invalid is raised if it does and none was named.  ``columns``: as for :meth:`scan`.

        A key that is not in the table: None for one key; for several ``missing`` says whether there is a row of nulls in its place
        ("null"; its key column is null, too, which no row of the table has), none ("skip"), or Invalid is raised and names the first keys ("error").

        >>> t.get("a"), t.get(["c", "z"], columns=["fare"], missing="skip").to_pylist()
        ({'id': 'a', 'city': 'Oslo', 'fare': 9.5, 'ts': 1}, [{'fare': 7.25}])
        """
        from mdt.scan import keys as read_keys
        from mdt.scan import lookup

        one_of("missing", missing, ("null", "skip", "error"))
        snapshot = self._metadata.newest()
        asked = read_keys.asked_keys(keys, snapshot.definition)
        names = checked_columns(snapshot, columns)
        found = lookup.key_rows(self._metadata, snapshot, asked.table)
        if missing == "error":
            lookup.require_all(snapshot, asked.table, found)
        if missing == "skip" or asked.is_one:
            found = found.those_found()
        read = tuple(dict.fromkeys(names)) or snapshot.definition.key[:1]  # a column may be named twice
        rows = lookup.rows_at(self._metadata, snapshot, found, read, threads=self.options.threads("reader")).select(
            names
        )
        schema = declared_columns(snapshot, names)
        if missing == "null":
            schema = pa.schema([field.with_nullable(True) for field in schema])
        rows = Restoration.of(schema, rows.schema).restored(rows)
        if not asked.is_one:
            return rows
        return rows.to_pylist()[0] if len(rows) else None

    def warm(self, columns: Sequence[str] | None = None) -> None:
        """Load what plans and scans need into this process, so that the first queries are as fast as later ones.

        Files, statistics of ``columns`` (default: all), indexes on them; footers, page maps and, if all key columns are among them, key
        maps (28 bytes a row) of the newest files; each kind until its cache is full.
        """
        from mdt.filters.where import parse_where
        from mdt.scan.warm import warm_files

        snapshot = self._metadata.newest()
        columns = None if columns is None else checked_columns(snapshot, columns)
        self._metadata.warm(columns)
        for spec in snapshot.definition.indexes:
            warm_index(self._metadata, snapshot, spec, columns)
        with_keys = columns is None or set(self.definition.key) <= set(columns)
        warm_files(self._metadata, snapshot, self.options.threads("reader"), with_keys=with_keys)
        # What is loaded at the first use of a filter and of a look-up: modules, and what they prepare for a schema.
        parse_where(f"`{self.definition.key[0]}` is null", self.schema)
        names = dict.fromkeys((*self.definition.key, *self.definition.partition_by))
        with suppress(Corrupt):
            some = self.scan(columns=list(names), limit=1).to_arrow()
            if with_keys and len(some):
                self.get(some)

    # Looking after

    def compact(self, progress: ProgressOption = None) -> WriteResult:
        """Rewrite file groups with log files or deleted rows as base files; rows stay as they are."""
        from mdt.services.compaction import Compaction

        with shown(progress, "compact") as told, logs.service(self._storage, self.definition.name, "compact") as facts:
            self._before_write()
            done = self._commit(Compaction(self._metadata, self.options, told))
            facts["file_groups"] = len(done.plan.groups)
        return WriteResult.of(done)

    def rollback(self) -> Recovery:
        """Roll back every unfinished transaction now, running ones of other writers included (they will retry)."""
        from mdt.commit.recovery import recover

        self._before_write(roll_back=False)
        return recover(self._metadata, after_seconds=0)

    def check(self, progress: ProgressOption = None) -> CheckReport:
        """Recompute everything that can be recomputed and compare; the report names file and byte."""
        from mdt.services.check import check

        with shown(progress, "check") as told, logs.service(self._storage, self.definition.name, "check") as facts:
            report = check(self._metadata, self._metadata.newest(), progress=told)
            facts.update(files=report.files, rows=report.rows, bytes=report.bytes, problems=len(report.problems))
        return report

    # Indexes

    def create_index(
        self,
        specs: str | Sequence[str],
        *,
        mode: str = "sync",
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
    ) -> BuildResult:
        """Add skipping indexes such as ``"bitmap(status)"``; every writer keeps them from the next commit on.

        ``mode``: "sync" covers the existing files before it returns; "async" leaves that to :meth:`build_indexes`, here or
        in another process (``mdt index build --watch``).  Files that are not covered are read.  ``spark``: build in Spark
        tasks instead of this process.  An index that the table has already is only caught up with.  Raises Invalid for an
        unknown kind, column or option.
        """
        from mdt.services import indexing

        one_of("mode", mode, ("sync", "async"))
        with shown(progress, "create_index") as told:
            wanted = indexing.wanted_specs(self._metadata.newest(), specs)
            self._change_indexes(indexing.IndexChange("create_index", added=wanted))
            return indexing.BuildResult() if mode == "async" else self._build(wanted, told, spark)

    def drop_index(self, specs: str | Sequence[str]) -> None:
        """Remove indexes, named as in :meth:`indexes` or by their column.  Raises Invalid if there is none."""
        from mdt.services import indexing

        gone = indexing.known_specs(self._metadata.newest(), specs)
        self._change_indexes(indexing.IndexChange("drop_index", dropped=gone))

    def rebuild_index(
        self,
        specs: str | Sequence[str] | None = None,
        *,
        mode: str = "sync",
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
    ) -> BuildResult:
        """Forget what indexes (default: all) cover and build it again, as after damage; see :meth:`create_index`.

        Raises Invalid if ``specs`` names none, or for an unknown ``mode``.
        """
        from mdt.services import indexing

        one_of("mode", mode, ("sync", "async"))
        with shown(progress, "rebuild_index") as told:
            again = indexing.known_specs(self._metadata.newest(), specs)
            self._change_indexes(indexing.IndexChange("rebuild_index", forgotten=again))
            return indexing.BuildResult() if mode == "async" else self._build(again, told, spark)

    def build_indexes(
        self, specs: str | Sequence[str] | None = None, *,
        progress: ProgressOption = None, spark: SparkSession | None = None,
    ) -> BuildResult:  # fmt: skip
        """Cover the files that indexes (default: all) do not cover yet; safe beside writers and other builders."""
        from mdt.services import indexing

        with shown(progress, "build_indexes") as told:
            self._before_write()
            return self._build(indexing.known_specs(self._metadata.newest(), specs), told, spark)

    def _build(self, specs: Sequence[str], progress: Progress | None, spark: SparkSession | None) -> BuildResult:
        from mdt.services import indexing

        runner = None
        if spark is not None:
            from mdt.engines.indexing import IndexRunner  # as above
            from mdt.engines.spark.engine import SparkEngine
            from mdt.engines.spark.session import classic

            runner = IndexRunner(SparkEngine(classic(spark)))
        return indexing.build(self._metadata, self.options, specs, progress, runner)

    def indexes(self) -> pa.Table:
        """Return one row per index: kind, column, coverage in percent, bytes, use so far (``index_report.INDEXES``)."""
        from mdt.services import index_report

        return index_report.index_table(self._metadata, self._metadata.newest())

    def advise(self) -> list[Advice]:
        """Return indexes that no query uses, with what they cost, and columns that queries filter on without one.

        From the counts of all processes that have reported (each about once a minute); [] until there are enough queries.
        They are counted where the table was created or opened with the option ``mdt.usage.counts``; if none was, this is told.
        """
        from mdt.services import index_report

        return index_report.advise(self._metadata, self._metadata.newest())

    def analyze(
        self, columns: Sequence[str] | None = None, *,
        progress: ProgressOption = None, spark: SparkSession | None = None,
    ) -> pa.Table:  # fmt: skip
        """Keep distinct counts and most common values of ``columns`` (default: all scalar ones) from here on.

        They are indexes of the kind ``table_stats``.  Returns :meth:`stats`.
        """
        from mdt.services import statistics

        names = statistics.analyzable(self.schema) if columns is None else texts("columns", columns, "['fare']")
        self.create_index([statistics.spec(name) for name in names], progress=progress, spark=spark)
        return self.stats()

    def stats(self) -> pa.Table:
        """Return what is known of each column: counts, bounds, bytes and, if analyzed, distinct and common values.

        Schema ``statistics.STATISTICS``.
        """
        from mdt.services import statistics

        return statistics.statistics(self._metadata, self._metadata.newest())

    def _change_indexes(self, change: Operation[Any]) -> None:
        self._before_write()
        self._commit(change)

    def history(self) -> pa.Table:
        """Return one row per commit, oldest first: seq, instant, action, operation, txn and row counts."""
        history = self._metadata.newest().history
        return history.select(history.column_names[: history.column_names.index("rolled_back") + 1])

    def files(self) -> pa.Table:
        """Return the live files with their file group, sizes (bytes) and rows."""
        return self._metadata.newest().listing()


def create(
    path: Any,
    schema: Any,
    key: Sequence[str],
    *,
    partition_by: Sequence[str] = (),
    ordering: str | None = None,
    table_type: str = "MERGE_ON_READ",
    key_index: str = "bloom",
    scope: str = "partition",
    indexes: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Table:
    """Create a table and return it.

    ``path``, ``storage_options``: as for :func:`open`; no table is there yet.  ``schema``: data columns, of pyarrow,
    polars, Spark (``df.schema``) or anything with ``__arrow_c_schema__``; types that cannot come back are refused.  ``key``: record key columns.  ``partition_by``: partition columns (hive style directories).
    ``ordering``: column whose larger value wins when a key is written twice.  ``table_type``: MERGE_ON_READ or
    COPY_ON_WRITE.  ``key_index``: "bloom" or "record".  ``scope``: a key is unique per "partition" or per "table".
    ``indexes``: skipping indexes such as ``"bitmap(status)"``.  ``options``: see :mod:`mdt.config`.

    Raises Invalid if the arguments do not fit together or a table exists, Unsupported for storage without conditional
    put.
    """
    from mdt import create_table

    storage = create_table.place(path, options, storage_options)
    if is_spark_schema(schema):
        from mdt.engines.spark.schema import to_arrow  # pyspark takes a second to import; only Spark users pay for it

        schema = to_arrow(schema)
    definition = create_table.define(
        storage, to_schema(schema), key=key, partition_by=partition_by, ordering=ordering, table_type=table_type,
        key_index=key_index, scope=scope, indexes=indexes, options=options,
    )  # fmt: skip
    create_table.create(storage, definition)
    return Table(storage)


def open(
    path: Any, options: Mapping[str, Any] | None = None, *, storage_options: Mapping[str, object] | None = None
) -> Table:
    """Open the table at ``path``; ``options`` override tuning options for this object.

    ``path``: local path, URL (``s3://bucket/table``, ``gs://…``, ``az://…``), or an obstore store whose root is the table.
    ``storage_options``: endpoint, region, credentials and the like, by the names that object_store, deltalake and polars take;
    what is not given comes from the environment.

    Raises Invalid if there is no table, Unsupported if it was written by a newer version or another Hudi writer has
    committed to it, Corrupt if it is damaged, Unavailable if the storage cannot be reached or lacks credentials.
    """
    storage = open_storage(path, storage_options=storage_options)
    table = Table(storage, options)
    if storage is not path and not table.options.durable:
        table = Table(open_storage(path, durable=False, storage_options=storage_options), options)
    stored = parse_options(table.definition.options).to_mapping("table")
    if parse_options({**table.definition.options, **canonical(options)}).to_mapping("table") != stored:
        raise Invalid("an option that is fixed at creation cannot be changed", hint=f"the table has {stored}")
    return table


def read(
    spark: SparkSession, path: Any, options: Mapping[str, Any] | None = None, *,
    storage_options: Mapping[str, object] | None = None,
) -> DataFrame:  # fmt: skip
    """Return the table at ``path`` as a Spark DataFrame of native Parquet scans.

    Each query on it, or on a view made of it, is planned anew against the newest snapshot.  It cannot be written to.
    ``options``: as for :func:`open`.
    ``storage_options``: for the plans, which the driver makes; Spark reads rows by its own settings (``spark.hadoop.fs.…``).
    """
    from mdt.engines.spark import frame, session  # as above

    return frame.read(session.classic(spark), open(path, options, storage_options=storage_options).metadata)

"""Writing rows and altering columns: upsert, insert, delete, alter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late, logs
from mdt.arguments import flag, mapping, texts
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.config import FORMATS_OPTION, changed_options, parse_options
from mdt.errors import Invalid
from mdt.progress import ProgressOption, progress_callback
from mdt.schema.input import pieces, to_table
from mdt.table.handle import Handle, takes_dry_run
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.engines.engine import Engine
    from mdt.metadata.snapshot.snapshot import Snapshot
    from mdt.query import Where
    from mdt.table.merging import Merging, Runner, Whole
    from mdt.table.writer import Writer
    from mdt.write.blending import BlendOptions
    from mdt.write.by_name import RowWrite
    from mdt.write.conditional import Conditional
    from mdt.write.setting import UpdateAssignments


class Writing(Handle):
    """Methods that change the rows and columns of a table."""

    @takes_metadata
    @takes_dry_run
    def upsert(
        self,
        data: Any,
        *,
        evolve: bool = False,
        partial: bool = False,
        mergers: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Insert new rows and replace rows whose key exists.

        data: A pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an iterable of
            tables or batches, a list of dicts, a dict of columns, any object with the Arrow
            PyCapsule interface (pandas, polars, duckdb), a polars LazyFrame, or a Spark DataFrame.
            Columns are matched by name and cast if no value changes.
        evolve: Alter the table first: new columns and struct fields of the data are added, and
            wider numbers widen columns (see :meth:`alter`, a commit of its own before a reader's
            rows are read). Columns missing in the data are null.
        partial: Existing rows keep their values in columns that the data lack. In new rows these
            columns are null. A column in only some rows or pieces of the data is null in the
            others, and so set to null.
        mergers: Maps columns to "sum", "max", "min", "coalesce", or an associative function of
            older and newer values (Arrow arrays -> Arrow array). It combines values if the row
            exists or the data repeat a key. The row with the smaller ordering value is the older
            one, so late rows are merged too. As with ``partial``, the existing rows are read, on
            Spark by tasks.
        dry_run: In this and all other writes and services, plan the change and write nothing. The
            result has the row counts, files and approximate bytes, and its instant is "".
        progress: In this and all other long calls, a function called with (done, total) counts of
            files, or True for a bar on the terminal. An exception from it ends the call, and a
            write is rolled back.
        metadata: In this and all other writes and services, names and texts stored with the
            commits, such as ``{"run": "nightly-7"}``. :meth:`history` shows them, and Hudi has them
            as ``extraMetadata``.

        Raises Invalid, naming column, row and value, and writes nothing if the data do not fit.
        Raises Conflict if concurrent writers won too often, Unavailable if the storage fails.

        >>> rows = {"id": ["b", "d"], "city": ["Rome", "Oslo"], "fare": [4.5, 6.0], "ts": [2, 2]}
        >>> result = t.upsert(rows)
        >>> result.updated, result.inserted
        (1, 1)
        >>> t.upsert([{"id": "d", "fare": 6.5}], partial=True).updated
        1
        """
        if evolve and partial:
            raise Invalid(
                "evolve=True and partial=True cannot be combined",
                hint="add new columns with t.alter, then write with partial=True",
            )
        if evolve and self._is_dry:
            raise Invalid(
                "evolve=True alters the table and does not support dry_run",
                hint="leave one of them out",
            )
        if evolve and self._batch is not None:
            newest = self._newest_for_write()
            if newest.streams.has(*self._batch):
                return WriteResult(
                    newest.seq,
                    "",
                    warnings=late.idempotent.skipped_batch_warnings(newest.streams, *self._batch),
                )
        table, rows = self, data
        if evolve:
            from mdt.table.evolving import evolve_for

            table, rows = evolve_for(self, data)
        blend = None
        if partial or mergers:
            blend = late.blending.BlendOptions(partial, mapping("mergers", mergers))
        return table._write(rows, "upsert", progress, blend)

    @takes_metadata
    @takes_dry_run
    def insert(
        self,
        data: Any,
        *,
        check: bool = True,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Insert rows. Like :meth:`upsert`, but raises Invalid if a key exists or occurs twice in
        ``data``.

        check: False, in tables with the option ``mdt.keys.repeat``, inserts without a key look-up.
            An existing key then has several rows, which an upsert of the key replaces and a delete
            deletes. Repeated keys in ``data`` are inserted once, and the rest are counted in
            ``late``.

        >>> t.insert([{"id": "e", "city": "Rome", "fare": 5.0, "ts": 2}], dry_run=True).inserted
        1
        """
        if flag("check", check):
            return self._write(data, "insert", progress)
        late.blind_insert.require_repeats(self.definition)
        return self._write(data, late.blind_insert.INSERT_UNCHECKED, progress)

    @takes_metadata
    @takes_dry_run
    def bulk_insert(
        self,
        data: Any,
        *,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Insert many rows, sorted by key, into new file groups. Refuses keys as :meth:`insert`
        does.

        >>> t.bulk_insert(
        ...     [{"id": "e", "city": "Rome", "fare": 5.0, "ts": 2}], dry_run=True
        ... ).inserted
        1
        """
        return self._write(data, "bulk_insert", progress)

    @takes_metadata
    @takes_dry_run
    def delete(
        self,
        keys: Any,
        *,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Delete rows by key.

        keys: Data as for :meth:`upsert` with the key columns and, under partition scope, the
            partition columns. Other columns are ignored. If the key columns are sufficient, also a
            value (with several key columns a tuple of values), or a list, set, array or Series of
            these, as for :meth:`get`.

        Absent keys are counted in ``missing``. A single text that looks like a condition and is not
        a key raises Invalid: use :meth:`delete_where`.

        In tables with the option ``mdt.delete.keeps.ordering``, a later row with a smaller ordering
        value than the delete is dropped and counted in ``late``. The delete has the ordering value
        of the deleted row, or the value in ``keys``. With a value in ``keys``, newer rows stay and
        are counted in ``late``, and keys that do not exist yet are marked as deleted.

        >>> result = t.delete(["a", "z"], dry_run=True)
        >>> result.deleted, result.missing
        (1, 1)
        """
        return self._write(keys, late.by_name.DELETE, progress)

    @takes_metadata
    def writer(
        self, *, max_rows: int = 10_000, max_seconds: float = 0.1, metadata: CommitMetadata = None
    ) -> Writer:
        """Return a context manager that gathers small upserts and deletes of many threads and
        commits them together.

        max_rows: Rows of a commit, unless a single call has more.
        max_seconds: Time that rows wait for other rows.

        >>> with t.writer(max_rows=50_000, max_seconds=1.0) as w:
        ...     futures = [w.delete([{"id": key, "city": "Oslo"}]) for key in "xyz"]
        >>> futures[0].result() is futures[2].result()  # the same commit
        True
        """
        from mdt.table.writer import Writer

        if self._batch is not None:
            raise Invalid(
                "a writer makes several commits, but t.once() requires a single commit",
                hint="write the batch with one call of t.upsert or t.delete",
            )
        self._prepare_row_write()
        return Writer(self, max_rows, max_seconds)

    @takes_metadata
    @takes_dry_run
    def delete_where(
        self,
        where: Where,
        *,
        params: Mapping[str, object] | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Delete the rows that match a filter, in one commit.

        where, params: As for :meth:`scan`. None deletes every row.
        spark: Test rows and write files in tasks of this Spark session.

        Indexes and statistics find the rows, without key look-ups. Raises Conflict if concurrent
        writers change the rows too often.

        >>> t.delete_where("city = 'Oslo' and fare > 9").deleted
        1
        """
        return self._where("delete_where", where, params, None, progress, spark)

    @takes_metadata
    @takes_dry_run
    def update_where(
        self,
        set: Mapping[str, str] | None = None,
        where: Where = None,
        *,
        values: Mapping[str, Any] | None = None,
        params: Mapping[str, object] | None = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Update columns of the rows that match a filter, in one commit.

        set: Maps columns to SQL over the old row such as ``"fare * 1.1"``, with Spark's semantics.
            docs/filters.md lists the supported functions.
        values: Maps columns to Python values.
        where, params: As for :meth:`scan`. None updates every row.
        spark: As for :meth:`delete_where`.

        Key and partition columns cannot be set. Raises Invalid, and writes nothing, for values that
        do not fit. Raises Conflict as :meth:`delete_where` does.

        >>> t.update_where({"fare": "fare * 2"}, "id = 'c'").updated, t.get("c")["fare"]
        (1, 14.5)
        """
        assignments = late.write_setting.parse_assignments(
            self._newest_for_write().definition, mapping("values", values), mapping("set", set)
        )
        return self._where("update_where", where, params, assignments, progress, spark)

    def merge(
        self, source: Any, on: Any = None, *, dedupe: bool = False, ignore: Sequence[str] = ()
    ) -> Merging:
        """Return a merge of ``source`` into the table. Add clauses, then call ``execute()`` to run
        it in one commit.

        source: Rows as for :meth:`upsert`, with any columns. A Spark DataFrame larger than
            ``mdt.spark.local.bytes.max`` is merged in tasks, by key only, and inserted rows must
            have the key they are matched by.
        on: Columns that are equal in both, or SQL such as
            ``"source.trip = target.id and target.city = 'Oslo'"``. The default is the record key,
            plus the partition columns under partition scope. Keys are looked up in the key index.
            Other columns are joined with the rows that indexes leave.
        dedupe: Of source rows with the same key, use the one with the largest ordering value, or
            the last of equal ones. By default, two source rows for one row of the table are
            refused.
        ignore: Source columns that the table lacks and ``"*"`` omits. Other such columns are
            refused unless a clause or ``on`` uses them.

        A row whose column ``_hoodie_is_deleted`` is true deletes the row that it would update, and
        is not inserted.

        >>> rows = {"id": ["b", "x"], "city": ["Rome", "Oslo"], "fare": [2.5, 4.0], "ts": [2, 2]}
        >>> merge = t.merge(rows).when_matched().update({"fare": "target.fare + source.fare"})
        >>> result = merge.when_not_matched().insert().execute()
        >>> result.updated, result.inserted, t.get("b")["fare"]
        (1, 1, 6.5)
        """
        return self._merging(source, on, dedupe=dedupe, ignore=ignore)

    def _merging(
        self,
        source: Any,
        on: Any,
        *,
        looks: bool = False,
        dedupe: bool = False,
        edits: bool = False,
        ignore: Sequence[str] = (),
    ) -> Merging:
        from mdt.table.merging import Merging

        self._require_newest()
        if self._metadata.cached_snapshot().is_shared:
            self._newest_for_write()  # the clauses may name columns that Hudi has just added
        rows, runner, whole = self._to_merge(source, looks=looks)
        return Merging.without_clauses(
            self, rows, on, runner, whole, dedupe=dedupe, edits=edits, ignore=ignore
        )

    def _to_merge(
        self, source: Any, *, looks: bool = False
    ) -> tuple[pa.Table, Runner | None, Whole | None]:
        from mdt.table.merging import source_of

        return source_of(self, source, looks=looks)

    def _where(
        self,
        name: str,
        where: Where,
        params: Mapping[str, object] | None,
        assignments: UpdateAssignments | None,
        progress: ProgressOption,
        spark: SparkSession | None,
    ) -> WriteResult:
        with progress_callback(progress, name) as callback:
            begun = self._prepare_row_write()
            schema = begun.definition.schema
            predicate = late.where_filter.parse_where(where, schema, params)
            action = begun.definition.commit_action
            engine = self._engine(spark)
            operation = self._choosing_on(engine)(
                self._metadata, self.options, predicate, schema, action, assignments, callback
            )
            committed = self._commit_rows(operation, begun)
            result = WriteResult.from_commit(committed, late.choice.name_of(engine))
            if (
                assignments is not None
                and begun.definition.is_mor
                and not set(begun.definition.ordering).isdisjoint(assignments.names)
            ):
                warnings = late.write_bytes.rewriting_warning(
                    result.files_rewritten,
                    result.bytes_written,
                    late.write_bytes.decrease_reason(begun.definition.ordering),
                )
                for warning in warnings:
                    logs.COMMIT.warning("%s: %s", begun.definition.name, warning)
                result = replace(result, warnings=result.warnings + warnings)
            return self._after_write(result)

    def _choosing_on(self, engine: Engine[Any] | None) -> Callable[..., Conditional]:
        """Return the factory of conditional operations, for this process or an engine."""
        if engine is None:
            return late.write_conditional.Conditional
        return partial(late.conditional_tasks.EngineConditional, engine=engine)

    @takes_metadata
    @takes_dry_run
    def insert_overwrite(
        self,
        data: Any,
        *,
        partitions: Any = None,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Replace the partitions that occur in ``data``, or the whole table if it has no
        partitions.

        data: As for :meth:`upsert`. Of rows with the same key only one is kept, and only its
            partition is replaced.
        partitions: Replace exactly these, as for :meth:`delete_partition`. Rows of other partitions
            raise Invalid.

        File groups are replaced in one commit, without reading the old rows. ``deleted`` counts the
        old rows and ``inserted`` the new rows, whether or not the keys existed; :meth:`changes`
        reports updates. Under table scope, a key that exists in another partition moves. Concurrent
        writes to the same partitions restart the operation.

        >>> rows = [{"id": "e", "city": "Rome", "fare": 5.0, "ts": 2}]
        >>> t.insert_overwrite(rows, dry_run=True).inserted
        1
        """
        ends = None if partitions is None else self._patterns(partitions)
        return self._write(data, late.overwriting.INSERT_OVERWRITE, progress, ends=ends)

    @takes_metadata
    @takes_dry_run
    def insert_overwrite_table(
        self,
        data: Any,
        *,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Replace all rows of the table in one commit. Otherwise as :meth:`insert_overwrite`.

        >>> rows = [{"id": "e", "city": "Rome", "fare": 5.0, "ts": 2}]
        >>> t.insert_overwrite_table(rows, dry_run=True).inserted
        1
        """
        return self._write(data, "insert_overwrite_table", progress)

    @takes_metadata
    @takes_dry_run
    def delete_partition(
        self, partitions: Any, *, dry_run: bool = False, metadata: CommitMetadata = None
    ) -> WriteResult:
        """Delete all rows of partitions in one commit, without reading them.

        partitions: A path as in :meth:`files`, with ``*`` as a wildcard; a dict of partition
            columns and values, for all partitions with these values; or a list of these.

        Absent partitions are not an error. Raises Invalid for a path or dict that cannot name a
        partition.

        >>> t.delete_partition({"city": "Oslo"})
        Traceback (most recent call last):
            ...
        mdt.errors.Invalid: the table has no partitions
          hint: use truncate() for all rows, or delete_where() for matching rows
        """
        return self._drop_rows(late.overwriting.DELETE_PARTITION, self._patterns(partitions))

    def _patterns(self, partitions: Any) -> list[str]:
        return late.live_partitions.patterns(self.definition, partitions)

    @takes_metadata
    @takes_dry_run
    def truncate(self, *, dry_run: bool = False, metadata: CommitMetadata = None) -> WriteResult:
        """Delete all rows in one commit, without reading them.

        >>> t.truncate(dry_run=True).deleted == t.scan().count()
        True
        """
        return self._drop_rows("truncate", None)

    def _drop_rows(self, name: str, patterns: Sequence[str] | None) -> WriteResult:
        self._prepare_row_write()
        return self._after_write(
            WriteResult.from_commit(self._commit_rows(late.overwriting.Drop(patterns, name)))
        )

    @takes_metadata
    @takes_dry_run
    def alter(
        self,
        *,
        add: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, Any] | None = None,
        reorder: Sequence[str] = (),
        nullable: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None,
        formats: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        beyond_hudi: bool = False,
        rewrite: bool = False,
        progress: ProgressOption = None,
        spark: SparkSession | None = None,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Alter columns or options of the table in one commit. Older snapshots keep their schema.

        add: Maps paths to types (of Arrow, or their text) or to non-nullable Arrow fields. A new
            column is last in the table or struct. In older rows it is null, or has its value in
            ``defaults``.
        drop: Paths.
        rename: Maps paths to new last names.
        widen: Maps paths to types: integers to larger integers and to double, float to double,
            decimals to more digits, dates to timestamps.
        reorder: Columns that come first.
        nullable: Columns that may be null from now on.
        defaults: Values of new columns in older rows, by path.
        formats: Table formats whose readers can read the table from this commit on: ``"hudi"``
            and any of ``"delta"`` and ``"iceberg"``. The metadata of a format that is left out
            are deleted.
        options: Maps option names to values for all writers, or to None for the default. See
            :mod:`mdt.config`. Other handles use them after their next refresh.
        beyond_hudi: True allows changes that Hudi's readers would not apply correctly.
        rewrite: True writes all rows again in this commit, with the new columns and options. Then
            readers of Hudi and of other formats apply every change correctly. Writes that commit
            meanwhile make it begin again. Otherwise no file is rewritten.
        spark: Write in tasks of this Spark session.

        Paths lead into structs (``"address.zip"``), lists (``"tags.element"``) and maps
        (``"prices.value"``). ``add`` and ``reorder`` use the new names, all other arguments the old
        names. A dropped name can be added again as a new column, without the old values.

        Raises Invalid, with the reason, for key, partition and ordering columns, for changes that
        are not possible, for changes that Hudi's readers would not apply correctly unless
        ``beyond_hudi`` or ``rewrite``, and for options that are fixed at creation or have the scope
        session or machine. Running writers restart.

        >>> t.alter(add={"tip": pa.float64()}, dry_run=True).seq
        1
        >>> t.alter(options={"mdt.clean.retain.commits": 20}).seq
        2
        """
        if formats is not None:
            named = ",".join(texts("formats", formats, "['hudi', 'delta']"))
            options = {**mapping("options", options), FORMATS_OPTION: named}
        given = late.given_options.read(options)
        late.given_options.require(self.definition, given.described)
        changes = changed_options(given.own)
        new_formats = changes.get(FORMATS_OPTION)
        if new_formats:
            late.formats.refuse_folders(self._storage, self.definition, new_formats.split(","))
        provider = changes.get("mdt.lock.provider")
        if provider:  # raises for a lock that this storage does not have
            options_of_lock = parse_options({"mdt.lock.provider": provider})
            late.hudi_locks.lock_of(self._storage, options_of_lock)
        columns = (add, drop, rename, widen, reorder, nullable, defaults)
        alteration = (
            late.schema_alter.Alteration()
            if options and not any(columns)
            else late.schema_alter.alteration(
                add=mapping("add", add),
                drop=drop,
                rename=mapping("rename", rename),
                widen=mapping("widen", widen),
                reorder=reorder,
                nullable=nullable,
                defaults=mapping("defaults", defaults),
            )
        )
        self._prepare_write()
        name = "alter_schema" if alteration else "alter_options"
        engine = self._engine(spark)
        with progress_callback(progress, "alter") as callback:
            rewriting = None
            if flag("rewrite", rewrite):
                rewriting = late.altering.Rewriting(
                    self._metadata, callback, self._rewriting_on(engine)
                )
            operation = late.altering.Alter(
                self._storage,
                lambda _: alteration,
                self.definition.commit_action,
                beyond_hudi,
                name,
                changes,
                rewriting,
            )
            committed = self._commit(operation)
        result = self._after_write(WriteResult.from_commit(committed, late.choice.name_of(engine)))
        if "mdt.durable" in changes:
            self._storage.is_durable = self.options.durable
        return result

    def _write(
        self,
        data: Any,
        name: str,
        progress: ProgressOption,
        blend: BlendOptions | None = None,
        ends: Sequence[str] | None = None,
    ) -> WriteResult:
        with progress_callback(progress, name) as callback:
            begun = self._prepare_row_write()
            request = late.by_name.RowWrite(
                self._metadata, self.options, name, callback, blend, ends
            )
            return self._write_rows(data, request, begun)

    def _write_rows(self, data: Any, request: RowWrite, begun: Snapshot) -> WriteResult:
        definition, is_delete = begun.definition, request.name == late.by_name.DELETE
        frame = self._given(data)
        if frame is not None:
            if is_delete:
                key_columns, ordering_columns = late.normalize.columns_of_deletes(definition)
                frame = frame.select_columns([*key_columns, *ordering_columns])
            data = frame.few(self.options)
            if data is None:
                if definition.has_generated_keys:
                    late.generated_keys.require_keys(request.name, frame.schema.names)
                engine = frame.engine
                operation = late.engine_write.write(request, engine, frame.rows, frame.schema)
                return self._after_write(
                    WriteResult.from_commit(self._commit_rows(operation), engine.name)
                )
        if is_delete:
            late.lookup.refuse_condition(self._metadata, begun, data)
            data = late.scan_keys.as_key_table(data, definition)
        parts = pieces(data, definition.declared)
        with_keys = late.generated_keys.filler(definition, request.name, self._storage)
        if parts is not None:
            parts = map(with_keys, parts)
            engine = late.spilling.engine_of(self.options, request.progress)
            if is_delete:
                data = late.spilling.read_keys(parts, engine, definition)
            else:
                keeps = request.blend is not None and request.blend.partial
                data = late.spilling.read(parts, engine, definition, partial_rows=keeps)
            if not isinstance(data, pa.Table):
                with closing(data.scratch):
                    committed = self._commit_rows(late.spilling.write(request, engine, data))
                return self._after_write(WriteResult.from_commit(committed))
        data = with_keys(to_table(data, definition.declared))
        return self._commit_write(request.in_process(data, definition), len(data), begun)

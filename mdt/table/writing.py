"""Writing rows, and altering the columns that they have: upsert, insert, delete, alter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late, logs
from mdt.arguments import flag, mapping
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.config import changed_options
from mdt.errors import Invalid
from mdt.progress import Progress, ProgressOption, shown
from mdt.schema.input import pieces, to_table
from mdt.table.handle import Handle, takes_dry_run
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mdt.engines.engine import Engine, Given
    from mdt.query import Where
    from mdt.table.merging import Merging, Runner, Whole
    from mdt.table.writer import Writer
    from mdt.write.blending import Kept
    from mdt.write.conditional import Conditional
    from mdt.write.setting import Setting


class Writing(Handle):
    """What changes the rows of a table, and its columns."""

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

        ``data``: pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an iterable of
        tables or batches, a list of dicts, a dict of columns, anything with the Arrow PyCapsule
        interface (pandas, polars, duckdb), a lazy frame of polars, or a Spark DataFrame.  Columns
        are matched by name and cast where that loses nothing.  Raises Invalid, naming column, row
        and value, if the data does not fit (nothing is written then), Conflict if other writers
        were faster too often, Unavailable if storage fails.

        ``evolve``: columns that only the data have, and fields of structs, are added to the table
        first, wider numbers widen its columns (see :meth:`alter`, which is a commit of its own,
        before rows of a reader are read), and columns that only the table has are null.

        ``partial``: rows that exist keep their values in the columns that the data lack; those of
        new rows are null.  A column that one row or piece of the data has is null in all others
        that lack it, and so set to null.  ``mergers``: column -> "sum", "max", "min" or "coalesce",
        or a function of older and newer values (Arrow arrays -> Arrow array, associative): what a
        column becomes where the row exists or the data repeat a key.  The older row is that with
        the smaller ordering value, so one that comes late is merged, too.  Both read these columns
        of the rows that they change; on Spark tasks do.

        ``dry_run``, also of every other write and of services: find out what would change and write
        nothing.  The result has the counts, the files that would be written and rewritten, and
        about how many bytes; its instant is "".

        ``progress``, here and in every other call that may take long: a function that takes the
        number of files that are done and of all (what it raises ends the call, and a write is
        rolled back), or True for a bar on the terminal.

        ``metadata``, here and in every other write and service: names and texts that its commits
        carry, such as ``{"run": "nightly-7"}``. :meth:`history` shows them, and Hudi has them as
        ``extraMetadata``.
        """
        if evolve and partial:
            raise Invalid(
                "evolve makes columns null that the data lack, partial keeps them",
                hint="add columns by t.alter first",
            )
        if evolve and self._is_dry:
            raise Invalid(
                "evolve alters the table, which a dry run does not", hint="leave evolve out"
            )
        if evolve and self._batch is not None and self.snapshot().streams.has(*self._batch):
            seen = self.snapshot()  # nothing of the batch is done again
            return WriteResult(
                seen.seq, "", warnings=late.idempotent.left_out(seen.streams, *self._batch)
            )
        rows = data
        if evolve:
            from mdt.table.evolving import evolved

            rows = evolved(self, data)
        if not partial and not mergers:
            return self._write(rows, "upsert", progress)
        with shown(progress, "upsert") as told:
            return self._write_rows(
                rows, "upsert", told, late.blending.Kept(partial, mapping("mergers", mergers))
            )

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
        """Insert rows; as :meth:`upsert`, but raises Invalid if a key exists or occurs twice in
        ``data``.

        ``check=False``, in tables with the option ``mdt.keys.repeat``: no key is looked for, and
        one that exists lives more than once from then on; an upsert of it replaces all of its rows,
        a delete deletes them.  Of rows of ``data`` with the same key one is inserted, the others
        are counted in ``late``.
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
        """Insert many rows, sorted by key, into new file groups; refuses keys as :meth:`insert`
        does.
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
        """Delete the rows with the given keys.

        ``keys``: data as for :meth:`upsert` that has the key columns and, under partition scope,
        the partition columns; further columns are ignored.  Where the key columns are enough, also
        a value (with several key columns a tuple of values), or a list, set, array (of numpy or
        Arrow) or Series of these, as for :meth:`get`.  Keys that do not exist are counted in
        ``missing``.  One text that reads as a condition and is no row's key raises Invalid:
        conditions are for :meth:`delete_where`.

        In tables with the option ``mdt.delete.keeps.ordering`` a row that comes later with a
        smaller ordering value than the delete had is left out, and counted in ``late``.  A delete
        has the ordering value of the row that it ends, or that of ``keys`` where these have the
        column: then rows that are newer stay, and are counted in ``late``, and keys that do not
        exist yet are deleted all the same.
        """
        return self._write(keys, late.by_name.DELETE, progress)

    @takes_metadata
    def writer(
        self, *, max_rows: int = 10_000, max_seconds: float = 0.1, metadata: CommitMetadata = None
    ) -> Writer:
        """Return a context that gathers small upserts and deletes of any number of threads, and
        commits them together.

        ``max_rows``: rows of a commit, unless one call brings more.  ``max_seconds``: how long rows
        wait for others.

        >>> with t.writer(max_rows=50_000, max_seconds=1.0) as w:
        ...     told = [w.delete([{"id": key, "city": "Oslo"}]) for key in "xyz"]  # futures
        >>> told[0].result() is told[2].result()  # one commit
        True
        """
        from mdt.table.writer import Writer

        if self._batch is not None:
            raise Invalid(
                "a writer makes as many commits as it needs",
                hint="a batch that is written once is one call",
            )
        self._before_rows()
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

        ``where``, ``params``: as for :meth:`scan`; None deletes every row.  The rows are found by
        the indexes and statistics, and no key is looked up.  ``spark``: rows are tested and files
        written in its tasks.  Raises Conflict if other writers change them too often meanwhile.

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
        """Give columns of the rows that match a filter new values, in one commit.

        ``set``: column -> SQL over the row as it was, ``"fare * 1.1"``, with Spark's meaning; see
        :data:`mdt.filters.tokens.SUPPORTED`. ``values``: column -> value of Python.  ``where``,
        ``params``: as for :meth:`scan`; None updates every row.  Columns of the key and of the
        partition cannot be set.  ``spark``: as for :meth:`delete_where`.  Raises Invalid for values
        that do not fit, then nothing is written; Conflict as :meth:`delete_where` does.

        >>> t.update_where({"fare": "fare * 2"}, "id = 'c'").updated, t.get("c")["fare"]
        (1, 14.5)
        """
        given = late.write_setting.setting(
            self.definition, mapping("values", values), mapping("set", set)
        )
        return self._where("update_where", where, params, given, progress, spark)

    def merge(
        self, source: Any, on: Any = None, *, dedupe: bool = False, ignore: Sequence[str] = ()
    ) -> Merging:
        """Return a merge of ``source``, to which clauses are added; ``execute()`` carries it out in
        one commit.

        ``source``: rows as for :meth:`upsert`, with any columns.  A Spark DataFrame above
        ``mdt.spark.local.bytes.max`` is merged in tasks, by key only, and new rows have the key by
        which they are matched.  ``on``: columns that are equal in both, or SQL such as
        ``"source.trip = target.id and target.city = 'Oslo'"``; None: the record key, under
        partition scope with the partition columns.  Keys are found by the key index, other columns
        by a join with the rows that indexes leave.

        ``dedupe``: of rows of the source with the same key merge the one with the largest ordering
        value, of equal ones the last; else two rows for one of the table are refused.  ``ignore``:
        columns of the source that ``"*"`` leaves out because the table lacks them; others are
        refused unless a clause or ``on`` reads them.  A row whose column ``_hoodie_is_deleted`` is
        true deletes the row that it would update, and is not inserted.

        >>> rows = {"id": ["b", "x"], "city": ["Rome", "Oslo"], "fare": [2.5, 4.0], "ts": [2, 2]}
        >>> m = t.merge(rows).when_matched().update({"fare": "target.fare + source.fare"})
        >>> m = m.when_not_matched().insert()
        >>> done = m.execute()
        >>> done.updated, done.inserted, t.get("b")["fare"]
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
        ignore: Sequence[str] = (),
    ) -> Merging:
        from mdt.table.merging import Merging

        self._refuse_the_past()
        rows, runner, whole = self._to_merge(source, looks=looks)
        return Merging.of(self, rows, on, runner, whole, dedupe=dedupe, ignore=ignore)

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
        given: Setting | None,
        progress: ProgressOption,
        spark: SparkSession | None,
    ) -> WriteResult:
        with shown(progress, name) as told:
            begun = self._before_rows()
            schema = begun.definition.schema
            asked = late.where_filter.parse_where(where, schema, params)
            action = begun.definition.commit_action
            engine = self._engine(spark)
            operation = self._choosing_on(engine)(
                self._metadata, self.options, asked, schema, action, given, told
            )
            committed = self._commit_rows(operation, begun)
            done = WriteResult.of(committed, late.choice.name_of(engine))
            if (
                given is not None
                and begun.definition.is_mor
                and begun.definition.ordering in given.names
            ):
                warnings = late.write_bytes.rewriting_warning(
                    done.files_rewritten,
                    done.bytes_written,
                    late.write_bytes.falling(begun.definition.ordering),
                )
                for warning in warnings:
                    logs.COMMIT.warning("%s: %s", begun.definition.name, warning)
                done = replace(done, warnings=done.warnings + warnings)
            return self._tidied(done)

    def _choosing_on(self, engine: Engine[Any] | None) -> Callable[..., Conditional]:
        """Return what makes the operation of a condition: for this process, or for an engine."""
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
        """Let ``data`` stand in the place of the partitions that occur in it; of the whole table
        where it has no partitions.

        ``data``: as for :meth:`upsert`; of rows with the same key one stays, and only its partition
        occurs.  ``partitions``: as for :meth:`delete_partition`: these end, whether or not they
        occur, and rows of others raise Invalid.  File groups are replaced in one commit, and no row
        that goes is read; ``deleted`` counts these, and ``inserted`` the new ones, whether or not
        their keys were there: :meth:`changes` tells updates.  Under table scope a key that lives in
        another partition moves.  Whoever writes into these partitions meanwhile sends it back to
        the start.
        """
        ends = None if partitions is None else self._patterns(partitions)
        with shown(progress, late.overwriting.INSERT_OVERWRITE) as told:
            return self._write_rows(data, late.overwriting.INSERT_OVERWRITE, told, ends=ends)

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
        """Let ``data`` stand in the place of all rows, in one commit; otherwise as
        :meth:`insert_overwrite`.
        """
        return self._write(data, "insert_overwrite_table", progress)

    @takes_metadata
    @takes_dry_run
    def delete_partition(
        self, partitions: Any, *, dry_run: bool = False, metadata: CommitMetadata = None
    ) -> WriteResult:
        """Delete all rows of partitions in one commit; none is read.

        ``partitions``: a path as :meth:`files` has it, in which ``*`` stands for anything; a dict,
        partition column -> value, for all partitions with these values; or a list of such.
        Partitions that are not there are no error.  Raises Invalid for what can name none.

        >>> t.delete_partition({"city": "Oslo"})
        Traceback (most recent call last):
            ...
        mdt.errors.Invalid: the table has no partitions
          hint: truncate() ends all rows, delete_where() those that match
        """
        return self._ended(late.overwriting.DELETE_PARTITION, self._patterns(partitions))

    def _patterns(self, partitions: Any) -> list[str]:
        return late.live_partitions.patterns(self.definition, partitions)

    @takes_metadata
    @takes_dry_run
    def truncate(self, *, dry_run: bool = False, metadata: CommitMetadata = None) -> WriteResult:
        """Delete all rows in one commit; none is read."""
        return self._ended("truncate", None)

    def _ended(self, name: str, patterns: Sequence[str] | None) -> WriteResult:
        self._before_rows()
        return self._tidied(
            WriteResult.of(self._commit_rows(late.overwriting.Drop(patterns, name)))
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
        options: Mapping[str, Any] | None = None,
        beyond_hudi: bool = False,
        dry_run: bool = False,
        metadata: CommitMetadata = None,
    ) -> WriteResult:
        """Alter the columns of the table, or its options, in one commit; no file is rewritten, and
        older snapshots keep their schema.

        ``add``: path -> type (of Arrow, or its text), or a field of Arrow that is required: a new
        column, last in the table or in its struct, null in older rows or what ``defaults`` has for
        its path.  ``drop``: paths.  ``rename``: path -> its new last name. ``widen``: path -> type:
        integers to larger ones and to double, float to double, decimals to more digits, dates to
        timestamps.  ``reorder``: columns that come first.  ``nullable``: columns that may be null
        from now on.  Paths lead into structs (``"address.zip"``), lists (``"tags.element"``) and
        maps (``"prices.value"``); ``add`` and ``reorder`` speak of names as they will be, the
        others of names as they are.

        A name that was dropped may come back: it is another column, without its older values.

        ``options``: name -> value that every writer has from now on, None for the default; see
        :mod:`mdt.config`.  Other handles see it when they look for commits.  Options that are fixed
        at creation, and those of a session or machine, raise Invalid.

        >>> t.alter(options={"mdt.clean.retain.commits": 20}).instant > ""
        True

        Raises Invalid for columns of the key, of the partitions and of the order, with the reason;
        for what does not fit; and for changes that Hudi's readers would answer differently, unless
        ``beyond_hudi``.  Writers that are under way start again.
        """
        changes = changed_options(options)
        columns = (add, drop, rename, widen, reorder, nullable, defaults)
        wanted = (
            late.schema_alter.Alteration()
            if changes and not any(columns)
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
        self._before_write()
        name = "alter_schema" if wanted else "alter_options"
        operation = late.altering.Alter(
            lambda _: wanted, self.definition.commit_action, beyond_hudi, name, changes
        )
        result = self._tidied(WriteResult.of(self._commit(operation)))
        if "mdt.durable" in changes:
            self._storage.is_durable = self.options.durable
        return result

    def _write(self, data: Any, name: str, progress: ProgressOption) -> WriteResult:
        with shown(progress, name) as told:
            return self._write_rows(data, name, told)

    def _write_rows(
        self,
        data: Any,
        name: str,
        progress: Progress | None,
        kept: Kept | None = None,
        ends: Sequence[str] | None = None,
    ) -> WriteResult:
        begun = self._before_rows()
        definition, is_delete = begun.definition, name == late.by_name.DELETE
        given = self._given(data)
        if given is not None:
            if is_delete:
                needed, more = late.normalize.columns_of_deletes(definition)
                given = given.narrowed([*needed, *more])
            data = given.few(self.options)
            if data is None:
                return self._written_by(given, name, progress, kept, ends)
        if is_delete:
            late.lookup.refuse_condition(self._metadata, begun, data)
            data = late.scan_keys.deleted_keys(data, definition)
        found = pieces(data, definition.declared)
        if found is not None:
            here = late.spilling.engine_of(self.options, progress)
            if is_delete:
                data = late.spilling.read_keys(found, here, definition)
            else:
                data = late.spilling.read(
                    found, here, definition, partial_rows=kept is not None and kept.partial
                )
            if not isinstance(data, pa.Table):
                with closing(data.scratch):
                    done = self._commit_rows(
                        late.spilling.write(
                            self._metadata, self.options, data, name, here, kept, ends
                        )
                    )
                return self._tidied(WriteResult.of(done))
        data = to_table(data, definition.declared)
        operation = late.by_name.write_here(
            self._metadata, self.options, data, name, definition, progress, kept, ends
        )
        return self._written(operation, len(data), begun)

    def _written_by(
        self,
        given: Given[Any],
        name: str,
        progress: Progress | None,
        kept: Kept | None,
        ends: Sequence[str] | None,
    ) -> WriteResult:
        """Write rows where their engine has them."""
        engine, rows = given.engine, (given.rows, given.schema)
        operation = late.engine_write.write(
            engine, self._metadata, self.options, *rows, name, progress, kept, ends
        )
        return self._tidied(WriteResult.of(self._commit_rows(operation), engine.name))

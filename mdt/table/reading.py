"""Reading rows and metadata of a table: scans, rows by key, history, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from indexes.predicate import And, Leaf, Predicate
from mdt import late
from mdt.arguments import one_of, texts, whole_number
from mdt.errors import Invalid
from mdt.hudi.avro_schema import COMMIT_TIME, with_meta
from mdt.progress import ProgressOption, progress_callback
from mdt.query import SNAPSHOT, Scan, Where, checked_columns, declared_columns, view_for
from mdt.schema.declared import Restoration
from mdt.schema.python_values import rows_of
from mdt.table.handle import Handle, follows_others

if TYPE_CHECKING:
    from mdt.changes import ChangeStream
    from mdt.filters.order import OrderBy
    from mdt.metadata.snapshot.as_of import Point
    from mdt.scan.warm import WarmResult
    from mdt.services.reports.svg import Picture


_END_OF_TIME = "9"
"""Sorts after every instant."""


class Reading(Handle):
    """Methods that read a table."""

    @follows_others
    def scan(
        self,
        where: Where = None,
        columns: Sequence[str] | None = None,
        *,
        params: Mapping[str, object] | None = None,
        limit: int | None = None,
        order_by: OrderBy = None,
        as_of: Point | None = None,
        since: Point | None = None,
        until: Point | None = None,
        query_type: str = "snapshot",
    ) -> Scan:
        """Return a scan of the newest snapshot, or of a past snapshot.

        where: SQL text such as ``"status = 'done' and fare > 10"``, or a list of (column, operator,
            value) tests joined by AND.
        columns: Names to return, all data columns by default. Hudi's meta columns are allowed.
        params: Values for ``:name`` in the text, and lists for ``in :names``.
        limit: Maximum number of rows.
        order_by: SQL text such as ``"ts desc, id"``, or a list of (column, "asc" or "desc"[, "nulls
            first" or "nulls last"]). With a limit, files that cannot contain the first rows are
            skipped.
        as_of: As for :meth:`snapshot`.
        since: Return only rows that commits after this point wrote, an incremental read.
        until: The last commit of an incremental read. Rows are read as of this commit.
        query_type: "snapshot", or "read_optimized" for base files only, without the changes and
            deletes in log files, as in Hudi.

        Raises Invalid for unknown columns and SQL that does not parse.

        >>> t.scan("city = :city", ["id", "fare"], params={"city": "Oslo"}).count()
        2
        >>> t.scan(order_by="fare desc", limit=1).to_arrow()["id"].to_pylist()
        ['a']
        """
        if until is not None and (since is None or as_of is not None):
            raise Invalid(
                "until requires since, and excludes as_of",
                hint="give since and until for a range, or as_of for a snapshot",
            )
        if self._storage.is_imported and not (as_of is since is None and query_type == SNAPSHOT):
            past = self
            point = until if as_of is None else as_of
            if point is not None:
                past = self._states([point])
            if view_for(query_type) is not view_for(SNAPSHOT):
                past = past._without_log_files()
            if since is not None:
                where, params = past._written_since(since, where, params), None
            return past.scan(where, columns, params=params, limit=limit, order_by=order_by)
        part = self._part_for(where, params)
        if part is not None:
            return part.scan(where, columns, params=params, limit=limit, order_by=order_by)
        snapshot = self.snapshot(as_of if until is None else until)
        since_seq = None
        if since is not None:
            since_seq = late.as_of.seq_in_log(self.snapshot(), since, "since", is_read=True)
        return Scan(
            self._metadata,
            snapshot,
            where,
            columns,
            self.options,
            params=params,
            limit=limit,
            order_by=order_by,
            since=since_seq,
            query_type=query_type,
        )

    @follows_others
    def changes(
        self,
        since: Point,
        until: Point | None = None,
        *,
        mode: str = "net",
        where: Where = None,
        columns: Sequence[str] | None = None,
        params: Mapping[str, object] | None = None,
        before: bool = True,
    ) -> ChangeStream:
        """Return the row changes after commit ``since``, up to and including ``until`` (default:
        the newest commit).

        Rows have the columns ``_change`` (insert, update_before, update_after or delete), ``_seq``
        and ``_instant`` of the commit, and ``columns``. Rows that services moved are not changes.

        since, until: As for :meth:`snapshot`.
        mode: "net" returns a change per key, from its row after ``since`` to its row after
            ``until``, with the last commit that changed it. "all" returns every change of every
            commit.
        where, params: Only rows that match, before or after the change.
        columns: As for :meth:`scan`.
        before: False omits ``update_before``, and returns deleted rows with their last values. Most
            reads then cost as much as the commits wrote. With pre-images, replaced rows all over
            the table cost as much as a scan.

        Raises Invalid if the commits do not exist, Expired if the range begins before the retained
        history.

        >>> t.changes(0, columns=["id"]).to_arrow().select(["_change", "id"]).to_pylist()[0]
        {'_change': 'insert', 'id': 'a'}
        """
        if self._storage.is_imported:
            past = self._states_between(since, until)
            first = late.imported_storage.first_seq(past.storage)
            return past._changes(first, None, mode, where, columns, params, before)
        return self._changes(since, until, mode, where, columns, params, before)

    def _changes(
        self,
        since: Point,
        until: Point | None,
        mode: str,
        where: Where,
        columns: Sequence[str] | None,
        params: Mapping[str, object] | None,
        before: bool,
    ) -> ChangeStream:
        from mdt.changes import ChangeStream

        newest = self.snapshot()
        first = late.as_of.seq_in_log(newest, since, "since", is_read=True)
        last = newest.seq
        if until is not None:
            last = late.as_of.seq_in_log(newest, until, "until", is_read=True)
        threads = self.options.threads("reader")
        return ChangeStream(
            self._metadata,
            first,
            last,
            mode,
            where,
            columns,
            params=params,
            before=before,
            threads=threads,
            newest=None if self._pinned else newest,
        )

    @follows_others
    def get(
        self,
        keys: Any,
        columns: Sequence[str] | None = None,
        *,
        missing: str = "null",
        as_of: Point | None = None,
    ) -> pa.Table | dict[str, Any] | None:
        """Return rows by record key: a dict for a single key, a table in the order of ``keys`` for
        several.

        keys: A value (with several key columns a tuple of values, or a dict); a list, array or
            Series of these; or a table with the key columns. Dicts and tables may include the
            partition columns. Under partition scope this is required for keys that exist in several
            partitions, otherwise Invalid is raised.
        columns, as_of: As for :meth:`scan`.
        missing: For several keys, "null" returns a row of nulls for an absent key, key column
            included, "skip" omits it, and "error" raises Invalid with the first absent keys. A
            single absent key always returns None.

        In a dict, dates and timestamps outside the years 1 to 9999 are ``numpy.datetime64``, and
        durations too large for ``timedelta`` are ``numpy.timedelta64``.

        >>> t.get("a"), t.get(["c", "z"], columns=["fare"], missing="skip").to_pylist()
        ({'id': 'a', 'city': 'Oslo', 'fare': 9.5, 'ts': 1}, [{'fare': 7.25}])
        """
        one_of("missing", missing, ("null", "skip", "error"))
        if self._storage.is_imported and as_of is not None:
            return self._states([as_of]).get(keys, columns, missing=missing)
        snapshot = self.snapshot(as_of)
        request = late.scan_keys.parse_keys(keys, snapshot.definition)
        names = checked_columns(snapshot, columns)
        threads = self.options.threads("reader")
        with self._metadata.reading(snapshot):
            positions, rows = late.lookup.rows_of_keys(
                self._metadata, snapshot, request.table, names, threads=threads
            )
        if missing == "error":
            late.lookup.require_all(snapshot, request.table, positions)
        if missing == "null" and not request.is_one:
            rows = late.lookup.with_nulls(rows, positions)
        rows = rows.select(names)
        schema = declared_columns(snapshot, names)
        if missing == "null":
            schema = pa.schema([field.with_nullable(True) for field in schema])
        rows = Restoration.from_schemas(schema, rows.schema).restore(rows)
        if not request.is_one:
            return rows
        return rows_of(rows)[0] if len(rows) else None

    def _part_for(self, where: Where, params: Mapping[str, object] | None) -> Self | None:
        """Return the files of a table of other writers that may have rows of a filter, or None if
        all of them are opened.
        """
        if where is None or not self._is_unread():
            return None
        schema = with_meta(self._metadata.cached_definition().schema)
        predicate = late.where_filter.parse_where(where, schema, params)
        storage = late.imported_storage.part_of(self._storage, predicate, schema)
        return None if storage is None else type(self)(storage, self._metadata.overrides)

    def _states(self, points: Sequence[Point]) -> Self:
        """Return this table of other writers in its states at ``points``."""
        instants = [late.as_of.instant_of(point) for point in points]
        states = late.imported_storage.at_instants(self._storage, instants)
        return type(self)(states, self._metadata.overrides)

    def _without_log_files(self) -> Self:
        """Return this table of other writers without its log files."""
        base_files = late.imported_storage.without_log_files(self._storage)
        return type(self)(base_files, self._metadata.overrides)

    def _states_between(self, since: Point, until: Point | None) -> Self:
        """Return this table of other writers in its states from ``since`` to ``until``."""
        first = late.as_of.instant_of(since, "since")
        last = _END_OF_TIME
        if until is not None:
            last = late.as_of.instant_of(until, "until")
        instants = late.imported_storage.instants_between(self._storage, first, last)
        return self._states([first, *instants])

    def _written_since(
        self, since: Point, where: Where, params: Mapping[str, object] | None
    ) -> Predicate:
        """Return a test of rows that match ``where`` and were written after ``since``, in a table
        of other writers.
        """
        late.imported_storage.require_meta_columns(self._storage)
        schema = with_meta(self.definition.schema)
        written = Leaf(COMMIT_TIME, ">", late.as_of.instant_of(since, "since"))
        if where is None and not params:
            return written
        return And((written, late.where_filter.parse_where(where, schema, params)))

    @follows_others
    def warm(
        self, columns: Sequence[str] | None = None, *, progress: ProgressOption = None
    ) -> WarmResult:
        """Fill the caches of this process, so that the first queries are as fast as later ones.

        It loads the file list, statistics and indexes of ``columns`` (default: all), footers and
        page maps. If ``columns`` includes all key columns, it also loads the key maps (28 bytes a
        row) of the newest files. Each kind is loaded until its cache is full.

        progress: Called with (done, total) counts of summaries, maps and footers. True shows a bar
            on the terminal.

        The caches belong to this object. :func:`mdt.warm` is the equivalent for Spark queries.

        >>> t.warm(["fare"]).seq
        1
        """
        from mdt.table.warming import warm

        with progress_callback(progress, "warm") as callback:
            return warm(self, columns, late.scan_warm.KINDS, callback)

    @follows_others
    def show(
        self,
        columns: Sequence[str] | None = None,
        *,
        before: Point | None = None,
        commits: int = 60,
    ) -> Picture:
        """Return a summary of the table. Print it, display it in a notebook, or save its ``svg()``.

        It lists commits, sizes of file groups, the share of log files, readable snapshots, indexes
        and due services. The picture shows the newest ``commits`` and the files as rectangles over
        the ranges of two columns. It reads only the metadata.

        columns: The two columns, by default those whose ranges overlap least.
        before: A snapshot to compare with, by default the one before the newest clustering.

        Raises Invalid for columns without an order.

        >>> print(t.show())  # doctest: +ELLIPSIS
        trips: commit ...
        """
        snapshot = self.snapshot()
        names = None if columns is None else texts("columns", columns, "['city', 'ts']")
        older = None if before is None else late.as_of.seq_at(snapshot, before, "before")
        summary = late.summary.summary(
            self._metadata, snapshot, self.options, whole_number("commits", commits)
        )
        return late.svg.picture(self._metadata, snapshot, summary, columns=names, before=older)

    @follows_others
    def history(self) -> pa.Table:
        """Return a row per commit, oldest first.

        time: The instant as a timestamp.
        inserted, updated, deleted, late: Numbers of rows.
        files, rows, bytes: Totals of the data files that the commit wrote, null in records of older
            versions.
        metadata: The user's metadata of the commit.

        >>> t.history().select(["operation", "inserted"]).to_pylist()[1]
        {'operation': 'bulk_insert', 'inserted': 3}
        """
        return late.transactions.with_times(
            self._metadata.history().slice(0, self.snapshot().seq + 1)
        )

    @follows_others
    def files(self) -> pa.Table:
        """Return the live files with their file group, size (bytes) and number of rows.

        >>> t.files()["rows"].to_pylist()
        [3]
        """
        return self.snapshot().listing()

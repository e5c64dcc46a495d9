"""Reading rows and what is known of a table: scans, rows by key, history, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late
from mdt.arguments import one_of, texts, whole_number
from mdt.errors import Invalid
from mdt.progress import ProgressOption, shown
from mdt.query import Scan, Where, checked_columns, declared_columns
from mdt.schema.declared import Restoration
from mdt.schema.python_values import rows_of
from mdt.table.handle import Handle

if TYPE_CHECKING:
    from mdt.changes import ChangeStream
    from mdt.filters.order import OrderBy
    from mdt.metadata.snapshot.as_of import Point
    from mdt.scan.warm import WarmResult
    from mdt.services.reports.svg import Picture


class Reading(Handle):
    """What reads a table."""

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
        """Return a scan of the newest snapshot, or of a past one.

        ``where``: SQL text such as ``"status = 'done' and fare > 10"``, or a list of (column, op,
        value) joined by AND. ``columns``: names to return, all data columns by default; Hudi's meta
        columns may be named.  ``params``: values for ``:name`` in the text, lists for ``in
        :names``.  ``limit``: rows at most.  ``order_by``: SQL text such as ``"ts desc, id"``, or a
        list of (column, "asc" or "desc"[, "nulls first" or "nulls last"]); with a limit, what
        cannot hold one of the first rows is not read.  ``as_of``: as for :meth:`snapshot`.
        ``since``: incremental, only rows that commits after this point wrote, up to and with
        ``until``, as the table was then.  ``query_type``: "snapshot", or "read_optimized": base
        files only, without what log files say, deletes included, as Hudi has it. Raises Invalid for
        unknown columns and SQL that does not parse.
        """
        if until is not None and (since is None or as_of is not None):
            raise Invalid("until is the end of a range", hint="give since, too, or as_of alone")
        snapshot = self.snapshot(as_of if until is None else until)
        first = None if since is None else late.as_of.seq_at(self.snapshot(), since, "since")
        return Scan(
            self._metadata,
            snapshot,
            where,
            columns,
            self.options,
            params=params,
            limit=limit,
            order_by=order_by,
            since=first,
            query_type=query_type,
        )

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
        """Return what changed after commit ``since``, up to and with ``until`` (default: the newest
        commit).

        Rows have the columns ``_change`` (insert, update_before, update_after or delete), ``_seq``
        and ``_instant`` of the commit, and ``columns``, as for :meth:`scan`.  ``mode``: "net": one
        change a key, from what it was after ``since`` to what it is after ``until``, with the
        commit that changed it last; "all": every change of every commit.  ``where``, ``params``:
        only rows that match, each as it was or is.  ``before=False``: no ``update_before``, and
        what was deleted as it last was; most commits then cost what they wrote, where rows that
        were replaced all over the table cost as much as a scan.  ``since``, ``until``: as for
        :meth:`snapshot`.  What services moved has not changed.  Raises Invalid if there are no such
        commits, Expired if the range begins before what is kept.
        """
        from mdt.changes import ChangeStream

        seen = self.snapshot()
        first, last = (
            late.as_of.seq_at(seen, since, "since"),
            (seen.seq if until is None else late.as_of.seq_at(seen, until, "until")),
        )
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
            newest=None if self._pinned else seen,
        )

    def get(
        self,
        keys: Any,
        columns: Sequence[str] | None = None,
        *,
        missing: str = "null",
        as_of: Point | None = None,
    ) -> pa.Table | dict[str, Any] | None:
        """Return rows by record key, without SQL: a dict for one key, a table in the order of the
        keys for several.

        ``keys``: a value (with several key columns a tuple of values, or a dict); or a list, numpy
        or Arrow array, or Series of these; or a table with the key columns.  Dicts and tables may
        name the partition columns, too: under partition scope a key may live in several partitions,
        and Invalid is raised if it does and none was named.  ``columns``, ``as_of``: as for
        :meth:`scan`.

        In a dict, dates and timestamps outside the years 1 to 9999 are ``numpy.datetime64``, and
        durations beyond ``timedelta`` ``numpy.timedelta64``.

        A key that is not in the table: None for one key; for several ``missing`` says whether there
        is a row of nulls in its place ("null"; its key column is null, too, which no row of the
        table has), none ("skip"), or Invalid is raised and names the first keys ("error").

        >>> t.get("a"), t.get(["c", "z"], columns=["fare"], missing="skip").to_pylist()
        ({'id': 'a', 'city': 'Oslo', 'fare': 9.5, 'ts': 1}, [{'fare': 7.25}])
        """
        one_of("missing", missing, ("null", "skip", "error"))
        snapshot = self.snapshot(as_of)
        asked = late.scan_keys.asked_keys(keys, snapshot.definition)
        names = checked_columns(snapshot, columns)
        threads = self.options.threads("reader")
        with self._metadata.reading(snapshot):
            found, rows = late.lookup.rows_of_keys(
                self._metadata, snapshot, asked.table, names, threads=threads
            )
        if missing == "error":
            late.lookup.require_all(snapshot, asked.table, found)
        if missing == "null" and not asked.is_one:
            rows = late.lookup.with_nulls(rows, found)
        rows = rows.select(names)
        schema = declared_columns(snapshot, names)
        if missing == "null":
            schema = pa.schema([field.with_nullable(True) for field in schema])
        rows = Restoration.of(schema, rows.schema).restored(rows)
        if not asked.is_one:
            return rows
        return rows_of(rows)[0] if len(rows) else None

    def warm(
        self, columns: Sequence[str] | None = None, *, progress: ProgressOption = None
    ) -> WarmResult:
        """Load what plans and scans need into this process, so that the first queries are as fast
        as later ones.

        Files, statistics of ``columns`` (default: all), indexes on them; footers, page maps and, if
        all key columns are among them, key maps (28 bytes a row) of the newest files; each kind
        until its cache is full.  ``progress``: a function that takes the number of summaries, maps
        and footers that are loaded and of all, or True for a bar on the terminal.  What it loads
        goes with this object; :func:`mdt.warm` is for queries of Spark.
        """
        from mdt.table.warming import warm

        with shown(progress, "warm") as told:
            return warm(self, columns, late.scan_warm.KINDS, told)

    def show(
        self,
        columns: Sequence[str] | None = None,
        *,
        before: Point | None = None,
        commits: int = 60,
    ) -> Picture:
        """Return the table at a glance: ``print`` it, look at it in a notebook, or write its
        ``svg()`` to a file.

        What was committed, sizes of file groups, the share of log files, what can be read, indexes,
        which services are due; and, as a picture, the newest ``commits`` and the files as
        rectangles over the ranges of two ``columns`` (default: those in which they overlap least),
        beside the state ``before`` (default: the one before the newest clustering).  From the
        metadata alone.  Raises Invalid for columns that have no order.

        >>> print(t.show())  # doctest: +ELLIPSIS
        trips: commit ...
        """
        snapshot = self.snapshot()
        named = None if columns is None else texts("columns", columns, "['city', 'ts']")
        older = None if before is None else late.as_of.seq_at(snapshot, before, "before")
        found = late.summary.summary(
            self._metadata, snapshot, self.options, whole_number("commits", commits)
        )
        return late.svg.picture(self._metadata, snapshot, found, columns=named, before=older)

    def history(self) -> pa.Table:
        """Return one row per commit, oldest first.

        ``time``: that of ``instant``, as a timestamp.  ``inserted``, ``updated``, ``deleted``,
        ``late``: rows.  ``files``, ``rows``, ``bytes``: of the data files that the commit wrote,
        null in records of older versions.  ``metadata``: what its user gave to it.
        """
        return late.transactions.with_times(
            self._metadata.history().slice(0, self.snapshot().seq + 1)
        )

    def files(self) -> pa.Table:
        """Return the live files with their file group, sizes (bytes) and rows."""
        return self.snapshot().listing()

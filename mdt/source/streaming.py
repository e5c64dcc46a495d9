"""Spark streams: commits of a table as batches of rows, and batches of rows as commits, each
exactly once.

An offset identifies a table and a commit, with its instant, because a backup that is put in place
may reach the same number again. Without ``since`` a stream begins with the existing rows of the
table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mdt import late
from mdt import table as tables
from mdt.arguments import one_of
from mdt.changes import ChangeStream
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.snapshot.as_of import seq_at
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.query import SNAPSHOT, Scan
from mdt.source import open_tables, write_frame
from mdt.source.option_keywords import INCREMENTAL, SourceOptions
from mdt.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")

_Place = tuple[str, dict[str, str], dict[str, str]]

_COMPLETE = "insert_overwrite_table"
_MODES = ("Append", "Update", "Complete")


class Stream:
    """The commits of a table as batches of rows.

    The table is opened once. Requests for the next offset look for new commits. After an error the
    table is opened and read again, because another table may now be at the path.

    ``reads``: as for :func:`mdt.engines.spark.frame.read`. Raises Invalid for options that do not
    apply to streams.
    """

    def __init__(self, options: SourceOptions, reads: SparkSettings) -> None:
        if (
            options.until is not None
            or options.as_of is not None
            or options.query_type not in (None, SNAPSHOT, INCREMENTAL)
        ):
            raise Invalid(
                "streaming reads do not accept until, as_of or this query type",
                hint="set since to the point where the stream begins",
            )
        if options.changes is not None and options.since is None:
            raise Invalid(
                "a stream of changes requires the option since",
                hint='set since to a commit, an instant, or "earliest"',
            )
        self._options = options
        self._reads = reads.for_stream()
        self._table = _open(options)
        if self._table.storage.is_imported:
            raise Unsupported(
                "streams read the log of a table, and another Hudi writer's table has none",
                hint="mdt.adopt(path), or read with since = the last instant that was read",
            )

    def columns(self, spark: SparkSession, declared: StructType | None) -> StructType:
        """Return the columns of the stream. Raises Invalid if they differ from the user's schema
        ``declared``.
        """
        newest = self._table.metadata.cached_snapshot()
        schema = self._rows(spark, self._table, newest, newest.seq, newest.seq).schema
        if declared is not None and _simple(declared) != _simple(schema):
            raise Invalid(
                f"the columns of the stream are {schema.simpleString()}, not"
                f" {declared.simpleString()}",
                hint="remove the schema: the table provides it",
            )
        return schema

    def newest(self) -> str:
        """Return the offset of the newest commit, for streams that end with the available rows."""
        return self._with_reopen(lambda table: _offset(table, _newest(table)))

    def offset(self, start: str | None, everything: bool, last: str | None) -> str | None:
        """Return the offset of the newest commit after ``start`` that changed rows, within the
        limits of a batch, or None.

        Raises Invalid if ``start`` is of another table, Expired if commits after it are no longer
        in the log.
        """
        return self._with_reopen(partial(self._next, start, everything, last))

    def batch(
        self, spark: SparkSession, start: str | None, end: str, expected: StructType
    ) -> DataFrame:
        """Return the rows that commits after ``start`` up to ``end`` wrote, or their changes, with
        ``expected`` columns.

        If the rows are no longer available (Expired) or the columns were altered (Invalid), the
        error is raised when the frame is read. Spark requests a batch again when a query is
        resumed, without reading it.
        """
        try:
            return self._with_reopen(partial(self._batch, spark, start, end, expected))
        except MdtError as error:
            return late.spark_frame.failing_frame(spark, error, expected)

    def _with_reopen(self, ask: Callable[[tables.Table], T]) -> T:
        """Apply ``ask`` to the table. After an error, open the table again and repeat."""
        try:
            return ask(self._table)
        except MdtError:
            self._table = _open(self._options)
            return ask(self._table)

    def _next(
        self, start: str | None, everything: bool, last: str | None, table: tables.Table
    ) -> str | None:
        snapshot, options = _newest(table), self._options
        end = snapshot.seq if last is None else _seq(table, snapshot, last)
        begun = _begin(snapshot, options) if start is None else _seq(table, snapshot, start)
        if begun is None:
            return _offset(table, snapshot, end)
        if everything or (options.max_commits is None and options.max_bytes is None):
            last_seq = next(
                (seq for seq in range(end, begun, -1) if _changes_rows(table.metadata.record(seq))),
                begun,
            )
        else:
            last_seq = _last_within_limits(table, snapshot, options, begun, end)
        if last_seq <= begun:
            return None
        # A state that was cleaned or has other columns cannot end a batch of rows. Its rows are in
        # later states.
        if options.changes is None:
            first = max(snapshot.retention.horizon, snapshot.definition.version.since)
            last_seq = max(last_seq, min(end, first))
        return _offset(table, snapshot, last_seq)

    def _batch(
        self,
        spark: SparkSession,
        start: str | None,
        end: str,
        expected: StructType,
        table: tables.Table,
    ) -> DataFrame:
        snapshot = (
            table.metadata.cached_snapshot()
        )  # refreshed when the end of this batch was chosen
        until = _seq(table, snapshot, end)
        begun = _begin(snapshot, self._options) if start is None else _seq(table, snapshot, start)
        rows = self._rows(spark, table, snapshot, begun, until)
        if _simple(rows.schema) != _simple(expected):
            rows = self._rows(spark, table, snapshot, begun, until, has_newest_columns=True)
        if _simple(rows.schema) != _simple(expected):
            raise Invalid(
                "the table's columns were altered after the stream was started:"
                f" {rows.schema.simpleString()}",
                hint="stop the query, and start it again from its checkpoint",
            )
        if rows.columns == expected.names:
            return rows
        return rows.select(*expected.names)

    def _rows(
        self,
        spark: SparkSession,
        table: tables.Table,
        newest: Snapshot,
        since: int | None,
        until: int,
        *,
        has_newest_columns: bool = False,
    ) -> DataFrame:
        """Return the rows of a batch, or its changes, with the columns of its end or the newest
        ones.
        """
        if self._options.changes is not None:
            assert since is not None, "checked when the stream began"
            columns_at = newest.seq if has_newest_columns else until
            return ChangeStream(
                table.metadata,
                since,
                until,
                self._options.changes,
                None,
                None,
                threads=table.options.threads("reader"),
                newest=newest,
                columns_at=columns_at,
            ).to_spark(spark)
        readable = newest.seq if has_newest_columns else max(until, newest.retention.horizon)
        state = table.metadata.at(readable, newest=newest)
        scan = Scan(table.metadata, state, None, None, table.options, since=since)
        return late.spark_frame.scan(
            spark, table.metadata, state, scan.predicate, scan.columns, reads=self._reads
        )


class Sink:
    """The batches of a query as commits of a table, which stays open between batches.

    By the next batch, another table or an older copy of this one may be at the path. Each batch
    therefore first reads the newest known commit again. If it is missing or differs, the table is
    opened as for a first batch.
    """

    def __init__(self) -> None:
        self._cached: _OpenTable | None = None

    def write(
        self, options: SourceOptions, mode: str, number: tuple[str, int], rows: DataFrame
    ) -> tables.Table:
        """Write the batch ``number``, (stream, batch), and return the table, created if it did not
        exist. A batch that the table already has is not written again.

        Raises Invalid if the output mode does not fit the operation, and as
        :func:`mdt.source.write_frame.write` does.
        """
        cached, self._cached = self._cached, None  # stays None after an error
        table = (
            cached.table
            if cached is not None and cached.place == _place(options) and cached.is_current()
            else None
        )
        written = _write(options, mode, number, rows, table)
        self._cached = _OpenTable.from_table(options, written)
        return written


@dataclass(frozen=True, slots=True)
class _OpenTable:
    """The table of the last batch. ``place``: the path and options that it was opened with.
    ``newest``: the newest commit that it knows.
    """

    table: tables.Table
    place: _Place
    newest: CommitRecord

    @classmethod
    def from_table(cls, options: SourceOptions, table: tables.Table) -> _OpenTable | None:
        """Return the table for reuse, or None if its newest commit is no longer in the log."""
        metadata = table.metadata
        newest = metadata.record(metadata.cached_snapshot().seq)
        if newest is None:
            return None
        return cls(table, _place(options), newest)

    def is_current(self) -> bool:
        """Return True if the newest commit is unchanged in the log, which proves that it is still
        the same table and state.

        One request. Errors are left to the code that opens the table.
        """
        with suppress(MdtError):
            record = commit_log.read(self.table.storage, self.newest.seq)
            return record is not None and record.txn == self.newest.txn
        return False


def _place(options: SourceOptions) -> _Place:
    return options.path, dict(options.options), dict(options.storage)


def _write(
    options: SourceOptions,
    mode: str,
    number: tuple[str, int],
    rows: DataFrame,
    table: tables.Table | None,
) -> tables.Table:
    how = one_of("the output mode", mode, _MODES)
    if how == "Complete" and options.operation not in (None, _COMPLETE):
        raise Invalid(
            f"the output mode complete cannot be combined with the operation {options.operation}",
            hint=f"remove the operation: it is always {_COMPLETE}",
        )
    if how == "Complete":
        options.operation = _COMPLETE
    # Computing the rows of a stream twice may be expensive or give other rows.
    cached = rows.persist()
    try:
        return write_frame.write(options, "Append", cached, number, table)[0]
    finally:
        cached.unpersist()


def _open(options: SourceOptions) -> tables.Table:
    return open_tables.open_shared(options.path, options.options, options.storage or None)


def _newest(table: tables.Table) -> Snapshot:
    """Return the newest snapshot of the log that readers see. It lacks commits of the writers that
    share the table until they are imported, because only the log numbers them for good.
    """
    try:
        return table.snapshot()
    except MdtError as error:
        newest = table.metadata.newest(watched=False, to_end=True)
        if not (error.is_of_others and newest.is_shared):
            raise
    return late.publish.published_snapshot(table.metadata, newest)


def _begin(snapshot: Snapshot, options: SourceOptions) -> int | None:
    """Return the commit after which a stream begins, or None to begin with the existing rows.
    Raises Invalid for an unknown commit.
    """
    if options.since is None:
        return None
    seq = seq_at(snapshot, options.since, "since")
    if not 0 <= seq <= snapshot.seq:
        raise Invalid(f"since = {seq}: the table has commits 0 to {snapshot.seq}")
    return seq


def _last_within_limits(
    table: tables.Table, snapshot: Snapshot, options: SourceOptions, begun: int, end: int
) -> int:
    """Return the last commit of a batch within its limits. A batch has at least one commit of any
    size.
    """
    commits, size = 0, 0
    last = max(begun, min(end, snapshot.retention.first - 1))  # older records are unknown
    for seq in range(last + 1, end + 1):
        record = table.metadata.record(seq)
        if record is None or not _changes_rows(record):
            continue
        commits += 1
        size += sum(record.table("files")["size"].to_pylist())
        is_over = commits > (options.max_commits or commits) or size > (options.max_bytes or size)
        if is_over and last > begun:
            break
        last = seq
    return last


def _changes_rows(record: CommitRecord | None) -> bool:
    """Return True if a commit changed rows, or may have: it is no longer in the log, or its counts
    are unknown.
    """
    if record is None or record.header["operation"] in ("restore", IMPORT):
        return True
    return any(record.header["counts"].get(name) for name in ("inserted", "updated", "deleted"))


def _offset(table: tables.Table, snapshot: Snapshot, seq: int | None = None) -> str:
    seq = snapshot.seq if seq is None else seq
    fields: dict[str, Any] = {"seq": seq, "table": snapshot.definition.table_id}
    record = table.metadata.record(seq)
    if record is not None:
        fields["instant"] = record.instant
    return json.dumps(fields)


def _seq(table: tables.Table, newest: Snapshot, text: str) -> int:
    """Return the commit of an offset. Raises Invalid for another table, or a commit that the table
    does not have.
    """
    try:
        fields = json.loads(text)
        seq, table_id, instant = fields["seq"], fields["table"], fields.get("instant")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Invalid(f"{text!r} is not an offset of an mdt stream") from None
    problem = f"{text} is after the newest commit, {newest.seq}"
    if table_id != newest.definition.table_id:
        problem = f"{text} belongs to another table than {newest.definition.table_id}"
    elif isinstance(seq, int) and 0 <= seq <= newest.seq:
        record = table.metadata.record(seq)
        if instant is None or record is None or record.instant == instant:
            return seq
        problem = f"{text} is of a lost commit: commit {seq} is now that of {record.instant}"
    raise Invalid(
        f"{table.path}: the offset {problem}",
        hint=(
            "a stream cannot continue on another table, or after a backup was put in its place:"
            " start a new query with a new checkpoint location"
        ),
    )


def _simple(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types without nullability."""
    return [(field.name, field.dataType.simpleString()) for field in schema]

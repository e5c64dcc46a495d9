"""Streams of the row changes between two versions of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mdt import late
from mdt.arguments import flag, one_of
from mdt.display import visible
from mdt.errors import Invalid, Unsupported
from mdt.familiar_names import CHANGES_NAMES
from mdt.filters.where import parse_where
from mdt.hudi.avro_schema import with_meta
from mdt.limits import BATCH_ROWS_MAX
from mdt.metadata.history.other_tables import require_same
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.query import ArrowStream, Where, checked_columns, declared_columns
from mdt.scan.changed_rows import CHANGE, ChangedRows
from mdt.scan.history_range import history_range
from mdt.schema.declared import Restoration
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexes.predicate import Predicate

MODES = ("net", "all")


class ChangeStream(ArrowStream):
    """The row changes of the commits after ``since``, up to and including ``until``.

    Nothing is read until rows are requested. The stream implements the Arrow stream protocol as
    :class:`mdt.query.Scan` does. ``range`` lists the commits with the rows that each one inserted
    and deleted.

    >>> changes = t.changes(0, 1, columns=["id"])
    >>> changes
    <mdt changes of trips, commits 1 to 1, net: 1 columns>
    >>> sorted(row["id"] for row in changes.to_arrow().to_pylist() if row["_change"] == "insert")
    ['a', 'b', 'c']
    """

    _familiar_names = CHANGES_NAMES

    def __init__(
        self,
        metadata: Metadata,
        since: int,
        until: int,
        mode: str,
        where: Where,
        columns: Sequence[str] | None,
        *,
        params: Mapping[str, object] | None = None,
        before: bool = True,
        threads: int = 1,
        newest: Snapshot | None = None,
        columns_at: int | None = None,
    ) -> None:
        """Arguments are those of :meth:`mdt.Table.changes`.

        newest: The newest snapshot, if the caller has just read it.
        columns_at: The commit whose columns the rows get, ``until`` by default, or a later one.
        """
        if since > until:
            raise Invalid(
                f"the range from commit {since} to commit {until} is reversed",
                hint="give the older commit first",
            )
        self.mode, self.before = one_of("mode", mode, MODES), flag("before", before)
        if not before and metadata.newest(watched=False).definition.keys_repeat:
            raise Unsupported(
                "before=False requires unique keys, but mdt.keys.repeat is true",
                hint="leave before out",
            )
        self.metadata = metadata
        self.since, self.until = since, until
        self.range = history_range(metadata, since, until, newest=newest, columns_at=columns_at)
        snapshot = self.range.view
        self.definition = snapshot.definition
        self.columns = checked_columns(snapshot, columns)
        reserved = set(self.columns) & set(CHANGE.names)
        if reserved:
            raise Invalid(
                f"the columns {', '.join(sorted(reserved))} have names that changes use themselves",
                hint="select other columns with columns=[…]",
            )
        stored = with_meta(self.definition.schema)
        declared = declared_columns(snapshot, self.columns)
        self._restoration = Restoration.from_schemas(
            declared, pa.schema([stored.field(name) for name in self.columns])
        )
        self.schema = pa.schema([*CHANGE, *declared])
        self.predicate: Predicate | None = None
        if where is not None or params:
            self.predicate = parse_where(where, stored, params)
        self.threads = threads

    def __repr__(self) -> str:
        summary = (
            f"commits {self.since + 1} to {self.until}, {self.mode}: {len(self.columns)} columns"
        )
        return f"<mdt changes of {visible(self.definition.name)}, {summary}>"

    def __reduce__(self) -> Any:
        """Pickle the storage, the range and the arguments, not the rows."""
        table = self.metadata.storage, dict(self.metadata.overrides)
        instant = self.range.view.last_instant
        points = self.since, self.until, instant, self.range.columns_at
        arguments = *points, self.mode, self.columns, self.threads, self.before
        return _unpickle, (*table, *arguments), {"predicate": self.predicate}

    def _rows(self) -> ChangedRows:
        is_net = self.mode == "net"
        return ChangedRows(
            self.metadata,
            self.range,
            is_net,
            self.columns,
            self.predicate,
            self.threads,
            self.before,
        )

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the changes as record batches.

        In mode ``all`` the commits follow each other in order, deleted rows first within each. In
        mode ``net`` all pre-images come before all post-images.

        >>> [batch.num_rows for batch in t.changes(0).to_batches()]
        [3]
        """
        rows = self._rows()
        for changed, read in rows.tables():
            columns = [*rows.labels(changed), *self._restoration.restore(read).columns]
            yield from pa.table(columns, schema=self.schema).to_batches(
                max_chunksize=BATCH_ROWS_MAX
            )

    def to_arrow(self) -> pa.Table:
        """Return the changes as a table.

        >>> t.changes(0, columns=["id"]).to_arrow().column_names
        ['_change', '_seq', '_instant', 'id']
        """
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def count(self) -> int:
        """Return the number of changes. Without a filter only keys are read.

        >>> t.changes(0).count(), t.changes(0, where="fare > 5").count()
        (3, 2)
        """
        rows = self._rows()
        if self.predicate is None:
            return sum(map(len, rows.changes()))
        return sum(len(changed) for changed, _ in rows.tables())

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the changes as a Spark DataFrame.

        The changed rows are located in the driver and read by Spark tasks. Those of a table of
        other writers are read in the driver.

        >>> t.changes(0).to_spark(spark).show()  # doctest: +SKIP
        """
        if self.metadata.storage.is_imported:
            return spark.createDataFrame(self.to_arrow())
        return late.spark_changes.frame(spark, self._rows())


def _unpickle(
    storage: Storage,
    overrides: Mapping[str, object],
    since: int,
    until: int,
    instant: str,
    columns_at: int,
    mode: str,
    columns: Sequence[str],
    threads: int,
    before: bool,
) -> ChangeStream:
    """Unpickle a stream, without its predicate. Raises Expired if its range was cleaned, and
    Invalid if its last commit does not exist.
    """
    metadata = Metadata(storage, overrides)
    stream = ChangeStream(
        metadata,
        since,
        until,
        mode,
        None,
        columns,
        before=before,
        threads=threads,
        columns_at=columns_at,
    )
    require_same(storage, stream.range.view, instant)
    return stream

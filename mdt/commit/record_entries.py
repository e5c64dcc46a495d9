"""The entries of a commit record in the partitions of Hudi's metadata table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property

import pyarrow as pa

from mdt.commit import (
    hudi_bloom_filters,
    hudi_column_stats,
    hudi_record_index,
    hudi_secondary_index,
)
from mdt.commit.hudi_column_stats import Bounds, Indexed
from mdt.hudi import metadata_table_files as table_files
from mdt.metadata.files import paths
from mdt.metadata.keys.key_changes import value_changes
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.references import cleaned_hudi_files
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition


class RecordEntries:
    """The entries of a commit record. What several partitions need is made once.

    Attributes:
        record: The record.
    """

    def __init__(
        self,
        metadata: Metadata,
        record: CommitRecord,
        after: Snapshot,
        definition: TableDefinition,
        columns: Mapping[str, pa.Field],
        indexed: Indexed | None = None,
    ) -> None:
        """Prepare the entries of ``record``.

        Args:
            after: The snapshot at the record.
            definition: Of that snapshot.
            columns: Partitions with a secondary index -> its column.
            indexed: The content of the column statistics, by default that of ours.
        """
        self.record = record
        self._metadata, self._after = metadata, after
        self._definition, self._columns, self._indexed = definition, columns, indexed

    @cached_property
    def bounds(self) -> Bounds:
        """Bounds of the files that the record adds."""
        return Bounds.from_record(self.record, self._definition, self._indexed)

    @cached_property
    def _values(self) -> tuple[pa.Table, pa.Table]:
        """Values of all secondary indexes in deleted and inserted rows."""
        columns = self._columns.values()
        return value_changes(self._metadata, self.record, self._after, columns)

    @cached_property
    def _keys(self) -> pa.RecordBatch:
        return hudi_record_index.record_entries(self._metadata, self.record, self._after)

    @cached_property
    def keys_by_partition(self) -> dict[str, pa.RecordBatch]:
        """The entries in a record index of each partition of the table, see
        :func:`mdt.commit.hudi_record_index.entries_by_partition`.
        """
        return hudi_record_index.entries_by_partition(self._metadata, self.record, self._after)

    @cached_property
    def _filters(self) -> pa.RecordBatch:
        return hudi_bloom_filters.record_entries(self._metadata, self.record, self._after)

    def read(self, partitions: Collection[str], *, by_partition: bool) -> None:
        """Read the data files that entries in ``partitions`` need, all at once.

        Args:
            by_partition: True if the record index is one of each partition.

        Raises the errors of :meth:`of`.
        """
        reads: list[Callable[[], object]] = []
        if table_files.RECORD_INDEX in partitions:
            reads.append(lambda: self.keys_by_partition if by_partition else self._keys)
        if table_files.BLOOM_FILTERS in partitions:
            reads.append(lambda: self._filters)
        if not self._columns.keys().isdisjoint(partitions):
            reads.append(lambda: self._values)
        self._metadata.storage.together(*reads)

    def in_partition(self, partition: str, schema: str = table_files.SCHEMA) -> pa.RecordBatch:
        """Return the entries in a partition, sorted by key.

        Args:
            schema: Avro schema of the records of ``files``.

        Raises Corrupt, Missing, and Unsupported for what the partition cannot have.
        """
        match partition:
            case table_files.FILES:
                return table_files.records(*_listing_changes(self.record), schema)
            case table_files.COLUMN_STATS:
                return hudi_column_stats.record_entries(self.bounds, self.record)
            case table_files.PARTITION_STATS:
                return hudi_column_stats.partition_entries([self.bounds])
            case table_files.RECORD_INDEX:
                return self._keys
            case table_files.BLOOM_FILTERS:
                return self._filters
        return hudi_secondary_index.record_entries(*self._values, self._columns[partition])


def _listing_changes(
    record: CommitRecord,
) -> tuple[Mapping[str, dict[str, int | None]], list[str] | None]:
    """Return the names that a record changes, by partition, and the partitions with new names,
    None if there are none.
    """
    changes: dict[str, dict[str, int | None]] = {}
    files = record.table("files")
    columns = (files[name].to_pylist() for name in ("partition", "name", "size"))
    for partition, name, size in zip(*columns, strict=True):
        if not paths.is_merged(name):
            changes.setdefault(partition, {})[name] = size
    written = sorted(changes)
    for partition, name in cleaned_hudi_files(record):
        changes.setdefault(partition, {})[name] = None
    return changes, written or None

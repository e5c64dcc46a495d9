"""Entries of the partition ``record_index`` of Hudi's metadata table: the file group of each record
key.

Hudi looks a key up in the whole table, or in each partition of it. Our own tables have an index of
each partition if a key may be live in several of them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid
from mdt.hudi import record_index_records
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.record_index_records import LOCATIONS
from mdt.limits import HUDI_RECORD_INDEX_ROWS_MAX, LOCATIONS_BYTES_MAX
from mdt.metadata import references
from mdt.metadata.keys.key_changes import KeyChanges, joined, key_changes, live_locations
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition

_BEGIN_SHARE_MAX = 0.8
"""Share of the maximum number of rows up to which a table gets the index."""


def problem(definition: TableDefinition, *, by_partition: bool = False) -> str:
    """Return why a table cannot have the index, or "" if it can.

    Args:
        by_partition: True for an index of each partition.
    """
    if definition.keys_repeat:
        return "a key may be live several times, as mdt.keys.repeat is true"
    if definition.partition_by and not definition.is_global and not by_partition:
        return "a key may be live in several partitions, as scope is not 'table'"
    return ""


def is_by_partition(definition: TableDefinition) -> bool:
    """Return True if the index of a table of ours is one of each partition. Hudi has these since
    version 8.
    """
    is_partitioned = bool(definition.partition_by) and not definition.is_global
    return is_partitioned and definition.hudi_version >= 8


def _own_problem(definition: TableDefinition) -> str:
    """Return why a table of ours cannot have the index, or "" if it can."""
    return problem(definition, by_partition=is_by_partition(definition))


def require_unique_keys(definition: TableDefinition) -> None:
    """Raise Invalid if a table has the options of the index, but cannot have it."""
    options, reason = definition.parsed, _own_problem(definition)
    if options.hudi_metadata and options.hudi_record_index and reason:
        raise Invalid(
            f"mdt.hudi.record.index needs keys that are unique: {reason}",
            hint="leave the option out, or create the table with scope='table' or in version 9",
        )


def is_kept(snapshot: Snapshot) -> bool:
    """Return True if commits keep the index: the table has the option, and not too many rows."""
    definition = snapshot.definition
    if not definition.parsed.hudi_record_index or _own_problem(definition):
        return False
    return _live_rows(snapshot) <= HUDI_RECORD_INDEX_ROWS_MAX


def may_begin(snapshot: Snapshot) -> bool:
    """Return True if a table without the index may get it: it would not lose it again soon."""
    return _live_rows(snapshot) <= _BEGIN_SHARE_MAX * HUDI_RECORD_INDEX_ROWS_MAX


def _live_rows(snapshot: Snapshot) -> int:
    return int((snapshot.rows - snapshot.dead_rows).sum())


def snapshot_entries(metadata: Metadata, snapshot: Snapshot) -> pa.RecordBatch:
    """Return the entries of all live rows, sorted by key. Reads all keys.

    Raises Corrupt, Missing, and Unsupported for keys that the index cannot have, or too many.
    """
    locations = joined(live_locations(metadata, snapshot), LOCATIONS, LOCATIONS_BYTES_MAX)
    return hfile_entries.sort([record_index_records.entries(locations)])


def snapshot_entries_by_partition(
    metadata: Metadata, snapshot: Snapshot
) -> dict[str, pa.RecordBatch]:
    """Return the partitions of a snapshot -> the entries of their live rows, sorted by key, for an
    index of each partition. Reads all keys. Raises the errors of :func:`snapshot_entries`.
    """
    tables: dict[str, list[pa.Table]] = {
        path: [] for path in references.hudi_files(metadata, snapshot)
    }
    for locations in live_locations(metadata, snapshot):
        tables.setdefault(locations["partition"][0].as_py(), []).append(locations)
    entries_of = {}
    for path, parts in sorted(tables.items()):
        locations = joined(parts, LOCATIONS, LOCATIONS_BYTES_MAX)
        entries_of[path] = hfile_entries.sort([record_index_records.entries(locations)])
    return entries_of


def record_entries(metadata: Metadata, record: CommitRecord, after: Snapshot) -> pa.RecordBatch:
    """Return the entries of the keys that a record adds, moves and removes, sorted by key.

    Args:
        after: The snapshot at the record.

    Raises the errors of :func:`snapshot_entries`.
    """
    changes = key_changes(metadata, record, after, by_partition=False)
    return hfile_entries.sort(_entries(changes))


def entries_by_partition(
    metadata: Metadata, record: CommitRecord, after: Snapshot
) -> dict[str, pa.RecordBatch]:
    """Return the partitions that a record writes to or removes keys from -> their entries, sorted
    by key, for an index of each partition.

    Raises the errors of :func:`snapshot_entries`.
    """
    changes = key_changes(metadata, record, after, by_partition=True)
    parts = (changes.located, changes.deleted)  # in the order of the entries
    partitions = pa.concat_tables(part.select(["partition"]) for part in parts)["partition"]
    entries = pa.Table.from_batches(_entries(changes)).append_column("partition", partitions)
    ordered = entries.sort_by([("partition", "ascending"), ("key", "ascending")])
    columns = [plain(ordered[name]) for name in ENTRIES.names]
    batch, start = pa.record_batch(columns, schema=ENTRIES), 0
    found = dict.fromkeys(record.table("files")["partition"].to_pylist(), batch[:0])
    for run in pc.value_counts(ordered["partition"]).to_pylist():  # in the order of the rows
        found[run["values"]] = batch.slice(start, run["counts"])
        start += run["counts"]
    return {partition: found[partition] for partition in sorted(found)}


def _entries(changes: KeyChanges) -> list[pa.RecordBatch]:
    """Return the entries of located keys, and those of deleted ones, unsorted."""
    deleted = hfile_entries.deletions(record_index_records.encoded(plain(changes.deleted["key"])))
    return [record_index_records.entries(changes.located), deleted]

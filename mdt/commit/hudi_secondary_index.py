"""Entries of the partitions ``secondary_index_<name>`` of Hudi's metadata table: the record keys of
each value of a column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi import secondary_index_records
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.key_indexes import SecondaryIndex
from mdt.metadata.keys.key_changes import value_changes
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name


def column_of(definition: TableDefinition, index: SecondaryIndex) -> pa.Field | None:
    """Return the indexed column of the table, or None if its values have no known form."""
    fields = {avro_name(field.name): field for field in definition.schema}
    found = fields.get(index.column)
    if found is None or not secondary_index_records.supports(found.type):
        return None
    return found


def record_entries(
    metadata: Metadata, record: CommitRecord, after: Snapshot, column: pa.Field
) -> pa.RecordBatch:
    """Return the entries of the values that a record adds and removes, sorted by key.

    Args:
        after: The snapshot at the record.
        column: The indexed column.

    Raises Corrupt, Missing, and Unsupported for keys that are too long.
    """
    ended, added = value_changes(metadata, record, after, column)
    old, new = (secondary_index_records.keys(rows) for rows in (ended, added))
    is_new = pc.invert(pc.is_in(new[0], old[0]))
    is_gone = pc.invert(pc.is_in(old[0], new[0]))
    entries = [secondary_index_records.entries(new[0].filter(is_new))]
    for form in old:  # the index may have any of them
        entries.append(hfile_entries.deletions(form.filter(is_gone).cast(pa.large_binary())))
    return hfile_entries.sort(entries)

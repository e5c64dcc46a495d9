"""Entries of the partitions ``secondary_index_<name>`` of Hudi's metadata table: the record keys of
each value of a column.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes.registry import parse_spec
from mdt.commit import hudi_record_index
from mdt.hudi import secondary_index_records
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.key_indexes import SECONDARY_INDEX, SecondaryIndex
from mdt.metadata.keys.key_changes import live_values
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name

_NAME = re.compile(r"\w{1,80}", re.ASCII)
"""Columns whose names can be parts of names of files."""


def columns(definition: TableDefinition) -> dict[str, pa.Field]:
    """Return the columns with a bitmap index that can have a secondary index of Hudi -> by its
    partition of the metadata table. Hudi has these indexes since version 8. They need unique keys:
    rows with one key and one value have one entry.
    """
    found: dict[str, pa.Field] = {}
    if definition.hudi_version < 8 or not definition.parsed.hudi_secondary_index:
        return found
    if hudi_record_index.problem(definition):
        return found
    for spec in map(parse_spec, definition.indexes):
        if spec.kind.partition("/")[0] == "bitmap" and len(spec.columns) == 1:
            field, name = definition.schema.field(spec.columns[0]), avro_name(spec.columns[0])
            if secondary_index_records.supports(field.type) and _NAME.fullmatch(name):
                found[f"{SECONDARY_INDEX}{name}"] = field
    return found


def index_definition(partition: str) -> dict[str, Any]:
    """Return Hudi's definition of an index of :func:`columns`, as JSON values."""
    return {
        "indexName": partition,
        "indexType": "secondary_index",
        "indexFunction": "identity",
        "sourceFields": [partition.removeprefix(SECONDARY_INDEX)],
        "indexOptions": {},
        "version": "V2",
    }


def column_of(definition: TableDefinition, index: SecondaryIndex) -> pa.Field | None:
    """Return the indexed column of the table, or None if its values have no known form."""
    fields = {avro_name(field.name): field for field in definition.schema}
    found = fields.get(index.column)
    if found is None or not secondary_index_records.supports(found.type):
        return None
    return found


def snapshot_entries(
    metadata: Metadata, snapshot: Snapshot, definition: TableDefinition, column: pa.Field
) -> pa.RecordBatch:
    """Return the entries of all live rows, sorted by key. Reads all keys and values of the column.

    Args:
        definition: Of the snapshot, or of a later one.
        column: The indexed column in it.

    Raises Corrupt, Missing, and Unsupported for keys that are too long or too many.
    """
    rows = live_values(metadata, snapshot, definition, column)
    return hfile_entries.sort(
        [secondary_index_records.entries(secondary_index_records.keys(rows)[0])]
    )


def record_entries(deleted: pa.Table, inserted: pa.Table, column: pa.Field) -> pa.RecordBatch:
    """Return the entries of the values that a record adds and removes, sorted by key.

    Args:
        deleted, inserted: See :func:`mdt.metadata.keys.key_changes.value_changes`.
        column: The indexed column.

    Raises Unsupported for keys that are too long.
    """
    tables = (table.select([RECORD_KEY, column.name]) for table in (deleted, inserted))
    rows = (table.rename_columns(["key", "value"]) for table in tables)
    old, new = map(secondary_index_records.keys, rows)
    is_new = pc.invert(pc.is_in(new[0], old[0]))
    is_gone = pc.invert(pc.is_in(old[0], new[0]))
    entries = [secondary_index_records.entries(new[0].filter(is_new))]
    for form in old:  # the index may have any of them
        entries.append(hfile_entries.deletions(form.filter(is_gone).cast(pa.large_binary())))
    return hfile_entries.sort(entries)

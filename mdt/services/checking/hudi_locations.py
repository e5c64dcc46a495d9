"""Check of the record index and the secondary indexes in Hudi's metadata table: they have the file
group and the values of each live key, and no other keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mdt.commit import hudi_secondary_index
from mdt.hudi.metadata_table_files import RECORD_INDEX
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import KeyIndexes, SecondaryIndex, load_secondary_indexes
from mdt.hudi.read.metadata_state import FOLDER, MetadataTable
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.record_index_records import LOCATIONS
from mdt.metadata.keys.key_changes import live_locations, live_values
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.checking.hudi_indexes import compare_records, compare_values
from mdt.services.checking.problems import Kind, Problem

_SHOWN = 20


def compare(
    metadata: Metadata,
    snapshot: Snapshot,
    table: MetadataTable,
    timeline: Timeline,
    properties: TableProperties,
) -> Iterator[Problem]:
    """Compare the record index and the secondary indexes that ``properties`` name with the live
    rows of ``snapshot``. O(rows).

    Args:
        timeline: Of the data table, with which the metadata table is in step.

    Raises Corrupt and Unsupported.
    """
    if RECORD_INDEX in properties.metadata_partitions:
        rows = pa.concat_tables([LOCATIONS.empty_table(), *live_locations(metadata, snapshot)])
        indexes = KeyIndexes(metadata.storage, table, timeline, {})
        yield from _problems(RECORD_INDEX, "the record index", compare_records(indexes, rows))
    for index in load_secondary_indexes(metadata.storage, properties).values():
        yield from _compare_secondary(metadata, snapshot, table, timeline, index)


def _compare_secondary(
    metadata: Metadata,
    snapshot: Snapshot,
    table: MetadataTable,
    timeline: Timeline,
    index: SecondaryIndex,
) -> Iterator[Problem]:
    column = hudi_secondary_index.column_of(snapshot.definition, index)
    if column is None:
        return
    indexes = KeyIndexes(metadata.storage, table, timeline, {})
    rows = live_values(metadata, snapshot, snapshot.definition, column)
    contradictions = compare_values(indexes, index, rows)
    yield from _problems(index.name, "a secondary index", contradictions)


def _problems(
    name: str, shown: str, contradictions: Iterator[tuple[str, pa.Array]]
) -> Iterator[Problem]:
    for text, keys in contradictions:
        for key in keys[:_SHOWN].to_pylist():
            text = f"{shown} of Hudi has {text}: {str(key)[:200]!r}"
            yield Problem(f"{FOLDER}/{name}", text, Kind.LISTING)

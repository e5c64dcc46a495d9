"""Check of the record index and the secondary indexes in Hudi's metadata table: they have the file
group and the values of each live key, and no other keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mdt.commit import hudi_secondary_index
from mdt.hudi.metadata_table_files import RECORD_INDEX
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import KeyIndexes, SecondaryIndex, load_secondary_indexes
from mdt.hudi.read.metadata_state import FOLDER, MetadataTable
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.record_index_records import LOCATIONS
from mdt.metadata.keys.key_changes import live_locations, live_values
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.checking.hudi_indexes import compare_values
from mdt.services.checking.problems import Kind, Problem

_PATH = f"{FOLDER}/{RECORD_INDEX}"
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
        yield from _compare_locations(metadata, snapshot, table, timeline)
    for index in load_secondary_indexes(metadata.storage, properties).values():
        yield from _compare_secondary(metadata, snapshot, table, timeline, index)


def _compare_locations(
    metadata: Metadata, snapshot: Snapshot, table: MetadataTable, timeline: Timeline
) -> Iterator[Problem]:
    indexes = KeyIndexes(metadata.storage, table, timeline, {})
    stored = indexes.records(RECORD_INDEX)
    live = pa.concat_tables([LOCATIONS.empty_table(), *live_locations(metadata, snapshot)])
    known, keys = plain(stored["key"]), plain(live["key"])
    if indexes.is_partitioned:  # a key may be in several
        known, keys = (_with_partition(rows) for rows in (stored, live))
    place = pc.index_in(keys, known)
    is_right = place.is_valid()
    for name in ("partition", "file_id"):
        found = plain(stored[name]).take(place)
        is_right = pc.and_(is_right, pc.equal(found, plain(live[name])).fill_null(False))
    for key in keys.filter(pc.invert(is_right))[:_SHOWN].to_pylist():
        text = f"Hudi's metadata table has another file group, or none, for the key {key[:200]!r}"
        yield Problem(_PATH, -1, text, Kind.LISTING)
    is_dead = pc.invert(pc.is_in(known, keys))
    for key in known.filter(is_dead)[:_SHOWN].to_pylist():
        text = f"Hudi's metadata table has the key {key[:200]!r}, which no row has"
        yield Problem(_PATH, -1, text, Kind.LISTING)


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
    for text, keys in compare_values(indexes, index, rows):
        for key in keys[:_SHOWN].to_pylist():
            text = f"a secondary index of Hudi has {text}: {key[:200]!r}"
            yield Problem(f"{FOLDER}/{index.name}", -1, text, Kind.LISTING)


def _with_partition(rows: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(plain(rows["partition"]), plain(rows["key"]), "\0")

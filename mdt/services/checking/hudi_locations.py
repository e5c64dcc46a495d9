"""Check of the record index in Hudi's metadata table: it has the file group of each live key, and
no other keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.metadata_table_files import RECORD_INDEX
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import KeyIndexes
from mdt.hudi.read.metadata_state import FOLDER, MetadataTable
from mdt.hudi.record_index_records import LOCATIONS
from mdt.metadata.keys.key_changes import live_locations
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.checking.problems import Kind, Problem

_PATH = f"{FOLDER}/{RECORD_INDEX}"
_SHOWN = 20


def compare(
    metadata: Metadata, snapshot: Snapshot, table: MetadataTable, timeline: Timeline
) -> Iterator[Problem]:
    """Compare the stored locations with the live rows of ``snapshot``. O(rows).

    Args:
        timeline: Of the data table, with which the metadata table is in step.
    """
    stored = KeyIndexes(metadata.storage, table, timeline, {}).records(RECORD_INDEX)
    live = pa.concat_tables([LOCATIONS.empty_table(), *live_locations(metadata, snapshot)])
    place = pc.index_in(plain(live["key"]), plain(stored["key"]))
    is_right = place.is_valid()
    for name in ("partition", "file_id"):
        found = plain(stored[name]).take(place)
        is_right = pc.and_(is_right, pc.equal(found, plain(live[name])).fill_null(False))
    for key in plain(live["key"]).filter(pc.invert(is_right))[:_SHOWN].to_pylist():
        text = f"Hudi's metadata table has another file group, or none, for the key {key[:200]!r}"
        yield Problem(_PATH, -1, text, Kind.LISTING)
    is_dead = pc.invert(pc.is_in(plain(stored["key"]), plain(live["key"])))
    for key in plain(stored["key"]).filter(is_dead)[:_SHOWN].to_pylist():
        text = f"Hudi's metadata table has the key {key[:200]!r}, which no row has"
        yield Problem(_PATH, -1, text, Kind.LISTING)

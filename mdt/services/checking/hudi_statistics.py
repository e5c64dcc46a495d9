"""Check of the column statistics in Hudi's metadata table: they equal those made from ours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mdt.commit import hudi_column_stats
from mdt.hudi import column_stats_records
from mdt.hudi.column_stats_records import FileKeys
from mdt.hudi.metadata_table_files import COLUMN_STATS
from mdt.hudi.read.index_partition import IndexGroup, IndexPartition
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.metadata_state import FOLDER, MetadataTable
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.checking.problems import Kind, Problem

_PATH = f"{FOLDER}/{COLUMN_STATS}"
_SHOWN = 20


def compare(
    metadata: Metadata, snapshot: Snapshot, table: MetadataTable, timeline: Timeline
) -> Iterator[Problem]:
    """Compare the stored entries with those made from the statistics of ``snapshot``. O(files).

    Entries of files that are not live do no harm, and are not compared if they are left over.

    Args:
        timeline: Of the data table, with which the metadata table is in step.
    """
    expected = hudi_column_stats.snapshot_entries(metadata, snapshot, snapshot.definition)
    made = dict(zip(expected["key"].to_pylist(), expected["value"].to_pylist(), strict=True))
    stored = _stored(IndexPartition(metadata.storage, table, timeline, COLUMN_STATS))
    live = snapshot.files.take(["partition", "name"], snapshot.live_numbers)
    columns = live["partition"].to_pylist(), live["name"].to_pylist()
    suffixes = set(FileKeys.of(*columns).suffixes.to_pylist())
    wrong = [key for key in made if stored.get(key) != made[key]]
    wrong += [
        key
        for key in stored.keys() - made.keys()
        if column_stats_records.suffix_of(key) in suffixes
    ]
    for key in islice(sorted(wrong), _SHOWN):
        name = column_stats_records.name_in(made.get(key) or stored[key])
        text = f"Hudi's metadata table has other column statistics of {name[:200]}"
        yield Problem(_PATH, -1, text, Kind.LISTING)


def _stored(partition: IndexPartition) -> dict[bytes, bytes]:
    """Return the newest entries of the partition."""
    entries: dict[bytes, bytes] = {}
    for group in partition.each(_entries):
        entries |= group
    return entries


def _entries(group: IndexGroup) -> dict[bytes, bytes]:
    files = [group.base] if group.base is not None else []
    files += [block[0] for block in group.blocks if isinstance(block, tuple)]
    merged = column_stats_records.merge(file.all() for file in files)
    return dict(zip(merged["key"].to_pylist(), merged["value"].to_pylist(), strict=True))

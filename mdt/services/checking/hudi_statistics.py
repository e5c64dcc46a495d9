"""Check of the column statistics and Bloom filters in Hudi's metadata table: they equal those made
from our statistics and from the footers of base files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from mdt.commit import hudi_bloom_filters, hudi_column_stats
from mdt.hudi import column_stats_records
from mdt.hudi.column_stats_records import FileKeys
from mdt.hudi.metadata_table_files import BLOOM_FILTERS, COLUMN_STATS
from mdt.hudi.read import hfile_entries
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
    made = _by_key([expected])
    stored = _by_key(
        IndexPartition(metadata.storage, table, timeline, COLUMN_STATS).each(_statistics)
    )
    live = snapshot.files.take(["partition", "name"], snapshot.live_numbers)
    columns = live["partition"].to_pylist(), live["name"].to_pylist()
    suffixes = set(FileKeys.from_files(*columns).suffixes.to_pylist())
    wrong = [key for key in made if stored.get(key) != made[key]]
    wrong += [
        key
        for key in stored.keys() - made.keys()
        if column_stats_records.suffix_of(key) in suffixes
    ]
    for key in islice(sorted(wrong), _SHOWN):
        name = column_stats_records.name_in(made.get(key) or stored[key])
        text = f"Hudi's metadata table has other column statistics of {name[:200]}"
        yield Problem(_PATH, text, Kind.LISTING)


def compare_filters(
    metadata: Metadata, snapshot: Snapshot, table: MetadataTable, timeline: Timeline
) -> Iterator[Problem]:
    """Compare the stored Bloom filters of live base files with those in their footers, which are
    read. Hudi's writers miss keys that a filter lacks.

    Args:
        timeline: Of the data table, with which the metadata table is in step.
    """
    expected = hudi_bloom_filters.snapshot_entries(metadata, snapshot)
    stored = _by_key(
        IndexPartition(metadata.storage, table, timeline, BLOOM_FILTERS).each(_filters)
    )
    made = _by_key([expected])
    wrong = sum(stored.get(key) != value for key, value in made.items())
    if wrong:
        text = f"Hudi's metadata table has other Bloom filters, or none, of {wrong:,} base files"
        yield Problem(f"{FOLDER}/{BLOOM_FILTERS}", text, Kind.LISTING)


def _filters(group: IndexGroup) -> pa.RecordBatch:
    """Return the newest entries of a file group of Bloom filters."""
    parts = [] if group.base is None else [group.base.all()]
    for block in group.blocks:
        if isinstance(block, pa.Array):
            parts.append(hfile_entries.deletions(block.cast(pa.large_binary())))
        else:
            parts.append(block[0].all())
    return hfile_entries.merge(parts)


def _by_key(groups: Iterable[pa.RecordBatch]) -> dict[bytes, bytes]:
    entries: dict[bytes, bytes] = {}
    for group in groups:
        entries |= zip(group["key"].to_pylist(), group["value"].to_pylist(), strict=True)
    return entries


def _statistics(group: IndexGroup) -> pa.RecordBatch:
    """Return the newest entries of a file group of column statistics."""
    files = [group.base] if group.base is not None else []
    files += [block[0] for block in group.blocks if isinstance(block, tuple)]
    return column_stats_records.merge(file.all() for file in files)

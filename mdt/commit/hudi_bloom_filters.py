"""Entries of the partition ``bloom_filters`` of Hudi's metadata table: the Bloom filters of record
keys in the footers of base files.

Hudi's writers fail if a base file has no entry, so each must have a filter. An entry begins with
no key, its type, and no names (Apache Hudi, ``HoodieMetadata.avsc``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from mdt.errors import Unsupported
from mdt.hudi import avro_values
from mdt.hudi.base_file import FILTER, FILTER_TYPE
from mdt.hudi.column_stats_records import FileKeys
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.keys.key_changes import added_numbers
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.references import cleaned_hudi_files
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import open_segment

_HEAD, _NOT_DELETED = b"\0\x08\0\2", b"\0"


def snapshot_entries(metadata: Metadata, snapshot: Snapshot) -> pa.RecordBatch:
    """Return the entries of all live base files, sorted by key. Reads their footers.

    Raises Unsupported for a file without a filter, Corrupt, and Missing.
    """
    segments = map(snapshot.segment, snapshot.live_numbers.tolist())
    return hfile_entries.sort([_entries(metadata, segments)])


def record_entries(metadata: Metadata, record: CommitRecord, after: Snapshot) -> pa.RecordBatch:
    """Return the entries of the base files that a record adds and cleans, sorted by key.

    Args:
        after: The snapshot at the record.

    Raises the errors of :func:`snapshot_entries`.
    """
    entries = _entries(metadata, map(after.segment, added_numbers(record, after)))
    folders, names = [], []
    for folder, name in cleaned_hudi_files(record):
        if name.endswith(".parquet"):
            folders.append(folder)
            names.append(name)
    deleted = FileKeys.from_files(folders, names)
    return hfile_entries.sort([entries, hfile_entries.deletions(deleted.suffixes)])


def _entries(metadata: Metadata, segments: Iterable[Segment]) -> pa.RecordBatch:
    folders, names, reads = [], [], []
    for segment in segments:
        folder, _, name = segment.path.rpartition("/")
        if segment.kind == BASE and paths.MERGED_MARK not in name:
            folders.append(folder)
            names.append(name)
            reads.append(partial(_value, metadata, segment))
    filters = pa.array(list(metadata.storage.each(reads)), pa.large_binary())
    return pa.record_batch([FileKeys.from_files(folders, names).suffixes, filters], schema=ENTRIES)


def _value(metadata: Metadata, segment: Segment) -> bytes:
    """Return the value of the entry of a base file."""
    parquet = open_segment(metadata.storage, segment, footers=metadata.objects.footers)
    footer = parquet.metadata.metadata or {}
    kind, content = (footer.get(name.encode()) for name in (FILTER_TYPE, FILTER))
    if kind is None or content is None:
        raise Unsupported(
            f"{segment.path} has no Bloom filter",
            hint="create the table with mdt.write.footer.bloom=true",
        )
    parts = avro_values.texts(pa.array([kind, segment.instant.encode(), content]))
    return b"".join([_HEAD, *parts.to_pylist(), _NOT_DELETED])

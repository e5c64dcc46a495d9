"""Listings from Hudi's metadata table (:mod:`mdt.hudi.read.metadata_state`).

In the partition ``files``, the record of a partition of the data table has names of files. Later
records add names and remove them. The names of partitions are in a record of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi import log_file
from mdt.hudi.read import hfile, hfile_entries
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import open_block, schema_of
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.log_blocks import LogBlock
from mdt.hudi.read.metadata_records import decode_listings
from mdt.hudi.read.metadata_state import (
    FOLDER,
    HINT,
    load_live_blocks,
    load_metadata_table,
    pending_instants,
)
from mdt.limits import HFILE_ENTRIES_BYTES_MAX
from mdt.stores.contract import is_path
from mdt.stores.storage import Storage

FILES = "files"
"""The partition with the names of all files."""
_PATH = f"{FOLDER}/{FILES}"
_PARTITIONS = "__all_partitions__"
"""Key of the record with the names of all partitions."""
_NO_PARTITION = "."
"""Key of the record of a table without partitions."""

_FILE_BYTES_MAX = HFILE_ENTRIES_BYTES_MAX
_UNKNOWN_SIZE = 1
"""Size in bytes of a dead writer's log file for Hudi 0.15, when it rolls the write back."""

Listing = dict[str, dict[str, int]]
"""Partition path -> file name -> size in bytes."""


def load_files_from_metadata(objects: Storage, timeline: Timeline) -> Listing | None:
    """Return the names and sizes of the data files in every partition.

    Returns None if the metadata table is absent, is out of step with ``timeline``, or cannot be
    read by this version. Then files have to be listed. Call this only if the table's properties
    say that its partition ``files`` is complete.

    Args:
        timeline: Of the data table, loaded before this call.

    Raises Corrupt and Missing. After Missing, a new call may succeed if a writer is active.
    """
    try:
        metadata = load_metadata_table(objects)
        if metadata is None or metadata.missing_instants(timeline):
            return None
        state, pending = metadata.state(objects, FILES), pending_instants(timeline)
        listing: Listing = {}
        for file_slice in state.slices:
            _add_slice(listing, objects, state, file_slice, pending)
        files = _of_data_table(listing)
        _set_unknown_sizes(objects, files)
        return files
    except Unsupported:
        return None
    except Missing:
        raise
    except Corrupt as error:
        # this message has the path of the object
        raise Corrupt(f"Hudi's metadata table: {error.message}", hint=HINT) from error


def load_slice(objects: Storage, base_path: str, log_paths: Sequence[str]) -> Listing:
    """Return the names and sizes of the data files in a slice of the partition ``files``.

    Args:
        log_paths: Log files in order. All their blocks count.

    Raises Corrupt, Missing, and Unsupported, also for more than HFILE_ENTRIES_BYTES_MAX.
    """
    listing: Listing = {}
    for part, schema in _parts_of(objects, base_path, log_paths):
        if isinstance(part, pa.Array):
            raise Unsupported(f"a log file of {base_path} deletes keys")
        _add_entries(listing, part, schema, base_path)
    return _of_data_table(listing)


def load_entries(
    objects: Storage, base_path: str, log_paths: Sequence[str], schema: str
) -> list[pa.RecordBatch]:
    """Return the entries of each file and each delete block in a slice, as
    :data:`mdt.hudi.read.hfile_format.ENTRIES`. Deleted keys have no value.

    Args:
        log_paths: Log files in order. All their blocks count.
        schema: Avro schema of the values.

    Raises Corrupt, Missing, and Unsupported, also for another schema and for more than
    HFILE_ENTRIES_BYTES_MAX.
    """
    parts = []
    for part, stored in _parts_of(objects, base_path, log_paths):
        if isinstance(part, pa.Array):
            parts.append(hfile_entries.deletions(part.cast(pa.large_binary())))
            continue
        if stored != schema:
            raise Unsupported(f"a file of {base_path} has records with another schema")
        parts.append(part)
    return parts


def _parts_of(
    objects: Storage, base_path: str, log_paths: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch | pa.Array, str]]:
    """Yield the entries in a slice with the Avro schemas of their values, and deleted keys, in
    order.
    """
    total = 0
    for part in _files_of(objects, base_path, log_paths):
        if isinstance(part, pa.Array):
            content, schema = part, ""
        else:
            content, schema = part[0].all(), part[1]
        total += content.nbytes
        if total > HFILE_ENTRIES_BYTES_MAX:
            raise Unsupported(f"the slice of {base_path} has more than {HFILE_ENTRIES_BYTES_MAX} B")
        yield content, schema


def _files_of(
    objects: Storage, base_path: str, log_paths: Sequence[str]
) -> Iterator[tuple[HFile, str] | pa.Array]:
    """Yield the HFiles in a slice with the Avro schemas of their values, and deleted keys."""
    file = hfile.open_bytes(objects.read_whole(base_path, _FILE_BYTES_MAX), base_path)
    yield file, schema_of(file)
    for path in log_paths:
        for block in log_file.parse(objects.read_whole(path, _FILE_BYTES_MAX), path=path):
            yield open_block(block, path)


def _add_slice(
    listing: Listing,
    objects: Storage,
    state: TableState,
    file_slice: FileSlice,
    pending: Collection[str],
) -> None:
    """Add the names in a slice to ``listing``, by key."""
    if file_slice.base is not None:
        path = f"{FOLDER}/{file_slice.path(file_slice.base)}"
        file = hfile.open_object(objects, path, file_slice.base.size)
        _add_entries(listing, file.all(), schema_of(file), path)
    for block in load_live_blocks(objects, state, file_slice, pending):
        _add_block(listing, block)


def _add_block(listing: Listing, block: LogBlock) -> None:
    opened = open_block(block.block, block.path)
    if isinstance(opened, pa.Array):
        for key in opened.to_pylist():
            listing.pop(key, None)
    else:
        file, schema = opened
        _add_entries(listing, file.all(), schema, block.path)


def _add_entries(listing: Listing, entries: pa.RecordBatch, schema: str, path: str) -> None:
    for key, changes in decode_listings(entries, schema, path):
        if changes is None:
            listing.pop(key, None)
            continue
        names = listing.setdefault(key, {})
        for name, size in changes.items():
            if size is None:
                names.pop(name, None)
            else:
                # log files may grow
                names[name] = max(names.get(name, 0), size)


def _of_data_table(listing: Listing) -> Listing:
    """Return the names of all partitions. Raises Corrupt if the names of partitions are missing."""
    if _PARTITIONS not in listing:
        raise Corrupt("the names of partitions are missing", path=_PATH)
    files: Listing = {}
    for key in listing[_PARTITIONS]:
        partition = "" if key == _NO_PARTITION else key
        if partition and not is_path(partition):
            raise Corrupt(f"{partition[:200]!r} is not the path of a partition", path=_PATH)
        files[partition] = listing.get(key, {})
    return files


def _set_unknown_sizes(objects: Storage, files: Listing) -> None:
    """Replace the sizes of log files that the metadata table does not have."""
    for partition, names in files.items():
        for name in [name for name, size in names.items() if size == _UNKNOWN_SIZE]:
            path = f"{partition}/{name}" if partition else name
            if is_path(path):
                names[name] = objects.size(path) or _UNKNOWN_SIZE

"""One segment's rows: the Parquet bytes of a base file or of a log file's data block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt import paths
from mdt.errors import Corrupt
from mdt.file_group import BASE
from mdt.recent import Recent
from mdt.snapshot import Snapshot
from mdt.storage import Storage

_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises for damaged Parquet: besides its own errors, names that are no UTF-8 and columns that are gone."""


Footers = Recent[tuple[str, int], pq.FileMetaData]
"""Parsed Parquet footers by path and offset of the Parquet bytes; files never change, so none goes stale."""

_PARSED_BYTES = 8
"""What a parsed footer takes in memory for each byte that it has in the file: 278 KB for 37 KB of 31 row groups of 10
columns, 24 KB for 2.6 KB of one row group."""


def open_segment(
    storage: Storage, snapshot: Snapshot, i: int, *, verify: bool = False, footers: Footers | None = None
) -> pq.ParquetFile:
    """Open the Parquet bytes of segment row ``i``.  Raises Corrupt (Missing) if they are not what was written.

    ``verify``: compare pages with their checksums when they are read; a difference raises OSError then.
    ``footers``: where to look for the footer before it is read and parsed, and to leave it.
    """
    files = snapshot.files
    path = paths.partition_file(files["partition"][i].as_py(), files["name"][i].as_py())
    size, offset, length = (int(files[name][i].as_py()) for name in ("size", "block_offset", "block_length"))
    source = storage.open(path)
    if source.size() != size:
        raise Corrupt("a data file has another size", path=path, expected=str(size), got=str(source.size()))
    if snapshot.kind[i] != BASE:
        source.seek(offset)
        source = pa.BufferReader(source.read_buffer(length))
    known = None if footers is None else footers.get((path, offset))
    try:
        opened = pq.ParquetFile(source, metadata=known, pre_buffer=False, page_checksum_verification=verify)
    except _UNREADABLE as error:
        raise Corrupt(f"a data file cannot be read: {error}", path=path, offset=offset) from error
    if opened.metadata.num_rows != snapshot.rows[i]:
        raise Corrupt(
            "a data file has another number of rows", path=path, offset=offset,
            expected=str(snapshot.rows[i]), got=str(opened.metadata.num_rows),
        )  # fmt: skip
    if footers is not None and known is None:
        footers.put((path, offset), opened.metadata, _PARSED_BYTES * opened.metadata.serialized_size)
    return opened


def live_mask(rows: int, dead: BitMap | None, first: int = 0) -> npt.NDArray[np.bool_] | None:
    """Return which of the positions first .. first + rows are live -> bool[rows], or None if all are."""
    if dead is None or dead.range_cardinality(first, first + rows) == 0:
        return None
    gone = np.asarray(dead.to_array()).astype(np.int64) - first
    mask = np.ones(rows, dtype=np.bool_)
    mask[gone[(gone >= 0) & (gone < rows)]] = False
    return mask


def read_rows(
    storage: Storage,
    snapshot: Snapshot,
    i: int,
    schema: pa.Schema,
    *,
    zones: Sequence[int] | None = None,
    use_threads: bool = True,
    verify: bool = False,
    footers: Footers | None = None,
) -> pa.Table:
    """Return the columns ``schema`` of segment row ``i``, dead rows included: its row groups ``zones``, or all.

    ``verify``: compare every page with its checksum.  ``footers``: see :func:`open_segment`.  Raises Corrupt (Missing) if the bytes are not what was written.
    """
    parquet = open_segment(storage, snapshot, i, verify=verify, footers=footers)
    rows = snapshot.files["zone_rows"][i].as_py()
    try:
        if zones is None:
            table = parquet.read(schema.names, use_threads=use_threads)
        else:
            table = parquet.read_row_groups(list(zones), schema.names, use_threads=use_threads)
        if table.schema != schema:
            table = table.select(schema.names).cast(schema)
    except _UNREADABLE as error:
        raise _corrupt(snapshot, i, str(error)) from error
    expected = sum(rows) if zones is None else sum(rows[zone] for zone in zones)
    if len(table) != expected:
        raise _corrupt(snapshot, i, f"{len(table)} rows instead of {expected}")
    return table


def _corrupt(snapshot: Snapshot, i: int, what: str) -> Corrupt:
    file = snapshot.file(i)
    path = paths.partition_file(file["partition"], file["name"])
    return Corrupt(f"a data file cannot be read: {what}", path=path, offset=file["block_offset"])

"""One segment's rows: the Parquet bytes of a base file or of a log file's data block.

Nothing is decoded before it was checked: a footer against the CRC-32 that the metadata have of it, a column chunk against
its digest in the footer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt.errors import Corrupt
from mdt.metadata import paths
from mdt.metadata.file_group import BASE
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.digests import Footer, digests, parse_footer
from mdt.stores.storage import Storage

_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)
"""What pyarrow raises for damaged Parquet: besides its own errors, names that are no UTF-8 and columns that are gone."""


Footers = Recent[tuple[str, int], Footer]
"""Parsed Parquet footers by path and offset of the Parquet bytes; files never change, so none goes stale."""

_PARSED_BYTES = 8
"""What a parsed footer takes in memory for each byte that it has in the file: 278 KB for 37 KB of 31 row groups of 10
columns, 24 KB for 2.6 KB of one row group."""


class _Chunks:
    """The file object that pyarrow decodes: it gives whole column chunks that are as they were written, and nothing else.

    ``source``: the Parquet bytes, which begin at ``offset`` of the file ``path``.
    """

    def __init__(self, source: Any, footer: Footer, path: str, offset: int) -> None:
        self._source, self._footer, self._path, self._offset = source, footer, path, offset
        self._at = 0
        self.closed = False

    def read_buffer(self, count: int) -> pa.Buffer:
        """Return the column chunk that begins here and has ``count`` bytes.  Raises Corrupt if it is not as it was written."""
        start = self._at
        self._source.seek(start)
        data = self._source.read_buffer(count)
        self._at += data.size
        expected = self._footer.digest_of(start, count)
        got = int(digests(data, [0], [data.size])[0]) if count else expected
        if expected != got:
            raise Corrupt(
                f"a column chunk of {count} bytes is not as it was written", path=self._path, offset=self._offset + start,
                expected="a column chunk" if expected is None else f"{expected:08x}", got=f"{got:08x}",
            )  # fmt: skip
        return data

    def read(self, count: int) -> bytes:
        return bytes(self.read_buffer(count).to_pybytes())

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._source.size())[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def open_segment(storage: Storage, snapshot: Snapshot, i: int, *, footers: Footers | None = None) -> pq.ParquetFile:
    """Open the Parquet bytes of segment row ``i``.  Raises Corrupt (Missing) if they are not what was written.

    What is read from it later is compared with the digests in the footer; a difference raises Corrupt, too.
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
    footer = None if footers is None else footers.get((path, offset))
    if footer is None:
        footer = _footer(snapshot, i, source, path, offset + length)
        if footers is not None:
            footers.put((path, offset), footer, _PARSED_BYTES * footer.metadata.serialized_size)
    checked = pa.PythonFile(_Chunks(source, footer, path, offset), mode="r")
    return pq.ParquetFile(checked, metadata=footer.metadata, pre_buffer=False)


def _footer(snapshot: Snapshot, i: int, source: Any, path: str, end: int) -> Footer:
    """Return the footer of segment row ``i``, whose Parquet bytes are ``source`` and end at ``end`` of the file."""
    length, crc = (int(snapshot.files[name][i].as_py()) for name in ("footer_length", "footer_crc"))
    source.seek(source.size() - length)
    tail = source.read_buffer(length)
    _require_footer(tail, crc, path, end - length)
    try:
        footer = parse_footer(tail)
    except _UNREADABLE as error:
        raise Corrupt(f"the footer of a data file cannot be read: {error}", path=path, offset=end - length) from error
    if footer.metadata.num_rows != snapshot.rows[i]:
        raise Corrupt(
            "a data file has another number of rows", path=path, offset=end - length,
            expected=str(snapshot.rows[i]), got=str(footer.metadata.num_rows),
        )  # fmt: skip
    return footer


def _require_footer(tail: bytes | pa.Buffer, crc: int, path: str, offset: int) -> None:
    got = zlib.crc32(tail)
    if got != crc:
        raise Corrupt(
            "the footer of a data file is not as it was written", path=path, offset=offset,
            expected=f"{crc:08x}", got=f"{got:08x}",
        )  # fmt: skip


def check_footers(storage: Storage, snapshot: Snapshot, rows: Sequence[int]) -> None:
    """Compare the footers of segment ``rows`` with what was written, without parsing them.  Raises Corrupt (Missing)."""
    names = ("partition", "name", "block_offset", "block_length", "footer_length", "footer_crc")
    for partition, name, offset, length, footer, crc in zip(
        *snapshot.files.select(names).take(pa.array(rows, pa.int64())).to_pydict().values(), strict=True
    ):
        path, start = paths.partition_file(partition, name), offset + length - footer
        _require_footer(storage.read(path, start, footer), crc, path, start)


def parquet_bytes(storage: Storage, snapshot: Snapshot, i: int) -> memoryview:
    """Return the Parquet bytes of segment row ``i``.  Raises Corrupt (Missing) if its file is not as it was written."""
    file = snapshot.file(i)
    path = paths.partition_file(file["partition"], file["name"])
    data = storage.read(path)
    crc = zlib.crc32(data)
    if (len(data), crc) != (file["size"], file["crc"]):
        raise Corrupt(
            "a data file is not as it was written", path=path,
            expected=f"{file['size']} bytes, {file['crc']:08x}", got=f"{len(data)} bytes, {crc:08x}",
        )  # fmt: skip
    return memoryview(data)[file["block_offset"] : file["block_offset"] + file["block_length"]]


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
    footers: Footers | None = None,
) -> pa.Table:
    """Return the columns ``schema`` of segment row ``i``, dead rows included: its row groups ``zones``, or all.

    ``footers``: see :func:`open_segment`.  Raises Corrupt (Missing) if the bytes are not what was written.
    """
    parquet = open_segment(storage, snapshot, i, footers=footers)
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

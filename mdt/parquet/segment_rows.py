"""Reads the rows of one segment: Parquet data of a base file or of a log file's data block, of any
schema version.

Everything is verified before it is decoded: the footer by the CRC-32 in the metadata, and each
column chunk by its digest in the footer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt.errors import Corrupt
from mdt.limits import FAR_OBJECT_WHOLE_BYTES_MAX, FAR_RANGE_BYTES
from mdt.parquet.decoded import decode_strings
from mdt.parquet.digests import Footer, adjacent_chunks, digests, parse_footer
from mdt.parquet.segment import Segment
from mdt.schema.convert import convert, fill_required
from mdt.schema.definition import TableDefinition
from mdt.schema.older_files import form_of, widen
from mdt.session import Recent
from mdt.stores.positioned_file import PositionedFile
from mdt.stores.storage import Storage

_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)
"""Errors that pyarrow raises for damaged Parquet data. Besides its own errors, these include names
that are not UTF-8 and missing columns.
"""


Footers = Recent[tuple[str, int], Footer]
"""A cache of parsed Parquet footers by path and offset. Entries stay valid: files never change."""

_FEW_ROWS_MIN = 1 << 16
"""Strings of files with fewer rows are decoded directly. Late decoding has a fixed cost and gains
nothing for 15,000 rows.
"""
_PARSED_BYTES = 8
"""Memory of a parsed footer per byte in the file. Measured: 278 KB for 37 KB (31 row groups of 10
columns), and 24 KB for 2.6 KB (1 row group).
"""


class _Chunks(PositionedFile):
    """The file object that pyarrow decodes. It only returns whole, verified column chunks.

    Args:
        source: The Parquet data, which begins at ``offset`` of the file ``path``.
    """

    def __init__(self, source: Any, footer: Footer, path: str, offset: int) -> None:
        super().__init__(source.size())
        self._source, self._footer, self._path, self._offset = source, footer, path, offset
        self._ahead: dict[int, pa.Buffer] = {}

    def read_ahead(self, storage: Storage, row_groups: Sequence[int], names: Sequence[str]) -> None:
        """Read the chunks of the columns ``names`` at once, with one request for adjacent chunks.

        The Parquet data must be a whole file.
        """
        ranges = adjacent_chunks(self._footer.chunks_of(row_groups, names), FAR_RANGE_BYTES)
        reads = (
            partial(storage.read, self._path, group[0][0], sum(group[-1]) - group[0][0])
            for group in ranges
        )
        for group, data in zip(ranges, storage.each(reads), strict=True):
            buffer = pa.py_buffer(data)
            self._ahead |= {start: buffer.slice(start - group[0][0], size) for start, size in group}

    def read_buffer(self, count: int) -> pa.Buffer:
        """Return the column chunk of ``count`` bytes at the current position.

        Raises Corrupt if it does not match its digest.
        """
        start = self.at
        data = self._ahead.pop(start, None)
        if data is None or data.size != count:
            self._source.seek(start)
            data = self._source.read_buffer(count)
        self.at += data.size
        if self._footer.digests is None:
            return data
        expected = self._footer.digest_of(start, count)
        actual = int(digests(data, [0], [data.size])[0]) if count else expected
        if expected != actual:
            expected_text = "a column chunk"
            if expected is not None:
                expected_text = f"{expected:08x}"
            raise Corrupt(
                f"a column chunk of {count} bytes is not as it was written",
                path=self._path,
                offset=self._offset + start,
                expected=expected_text,
                got=f"{actual:08x}",
            )
        return data

    def read(self, count: int) -> bytes:  # type: ignore[override]  # pyarrow always passes a size
        return bytes(self.read_buffer(count).to_pybytes())


@dataclass(frozen=True, slots=True)
class _OpenSegment:
    """Parquet data opened for reading.

    Attributes:
        far: The storage if each read costs a request, else None.
    """

    parquet: pq.ParquetFile
    chunks: _Chunks
    far: Storage | None

    def read(self, row_groups: Sequence[int], names: Sequence[str], use_threads: bool) -> pa.Table:
        """Return columns of the given row groups."""
        if self.far is not None:
            self.chunks.read_ahead(self.far, row_groups, names)
        return self.parquet.read_row_groups(list(row_groups), names, use_threads=use_threads)


def open_segment(
    storage: Storage, segment: Segment, *, footers: Footers | None = None
) -> pq.ParquetFile:
    """Open the Parquet data of ``segment`` for access to its footer.

    Args:
        footers: Cache of footers.

    Raises Missing, or Corrupt if the data has changed since it was written.
    """
    return _open(storage, segment, pa.schema([]), footers).parquet


def _open(
    storage: Storage, segment: Segment, schema: pa.Schema, footers: Footers | None
) -> _OpenSegment:
    """Open the Parquet data of ``segment``.

    Later reads verify the digests in the footer and raise Corrupt on a mismatch.

    Args:
        schema: Columns to read. Columns with few distinct strings get a dictionary
            (:mod:`mdt.parquet.decoded`).
    """
    path, offset = segment.path, segment.block_offset
    source = _source(storage, segment)
    if source.size() != segment.size:
        raise Corrupt(
            "a data file has the wrong size",
            path=path,
            expected=str(segment.size),
            got=str(source.size()),
        )
    if not segment.is_whole_file:
        source.seek(offset)
        source = pa.BufferReader(source.read_buffer(segment.block_length))
    footer = None if footers is None else footers.get((path, offset))
    if footer is None:
        footer = _footer(segment, source)
        if footers is not None:
            footers.put((path, offset), footer, _PARSED_BYTES * footer.metadata.serialized_size)
    chunks = _Chunks(source, footer, path, offset)
    texts = () if segment.rows < _FEW_ROWS_MIN else schema
    dictionary_columns = [
        field.name for field in texts if pa.types.is_string(field.type) and field.name in footer.few
    ]
    parquet = pq.ParquetFile(
        pa.PythonFile(chunks, mode="r"),
        metadata=footer.metadata,
        read_dictionary=dictionary_columns,
        coerce_int96_timestamp_unit="us",  # nanoseconds end in 2262
        pre_buffer=False,
        page_checksum_verification=footer.digests is None,
    )
    if segment.is_whole_file and not _is_near(storage, segment):
        return _OpenSegment(parquet, chunks, storage)
    return _OpenSegment(parquet, chunks, None)


def _source(storage: Storage, segment: Segment) -> Any:
    """Open the file of ``segment`` for random access. A small file on a remote storage is read at
    once.
    """
    if storage.is_remote and _is_near(storage, segment):
        return pa.BufferReader(storage.read_whole(segment.path, segment.size))
    return storage.open(segment.path)


def _is_near(storage: Storage, segment: Segment) -> bool:
    """Return True if reading from the open file of ``segment`` needs no requests."""
    return not storage.is_remote or segment.size <= FAR_OBJECT_WHOLE_BYTES_MAX


def _footer(segment: Segment, source: Any) -> Footer:
    """Return the verified footer of ``segment``.

    Args:
        source: Its Parquet data.
    """
    path, offset = segment.path, segment.footer_offset
    source.seek(source.size() - segment.footer_length)
    tail = source.read_buffer(segment.footer_length)
    _require_footer(tail, segment)
    try:
        footer = parse_footer(tail)
    except _UNREADABLE as error:
        raise Corrupt(
            f"the footer of a data file cannot be read: {error}", path=path, offset=offset
        ) from error
    if footer.metadata.num_rows != segment.rows:
        raise Corrupt(
            "a data file has the wrong number of rows",
            path=path,
            offset=offset,
            expected=str(segment.rows),
            got=str(footer.metadata.num_rows),
        )
    return footer


def _require_footer(tail: bytes | pa.Buffer, segment: Segment) -> None:
    actual = zlib.crc32(tail)
    if actual != segment.footer_crc:
        raise Corrupt(
            "the footer of a data file is not as it was written",
            path=segment.path,
            offset=segment.footer_offset,
            expected=f"{segment.footer_crc:08x}",
            got=f"{actual:08x}",
        )


def live_mask(rows: int, dead: BitMap | None, first: int = 0) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the live rows among ``rows`` positions from ``first``, or None if all are
    live.

    >>> live_mask(3, BitMap([11]), first=10).tolist()
    [True, False, True]
    """
    if dead is None or dead.range_cardinality(first, first + rows) == 0:
        return None
    deleted = np.asarray(dead.to_array()).astype(np.int64) - first
    mask = np.ones(rows, dtype=np.bool_)
    mask[deleted[(deleted >= 0) & (deleted < rows)]] = False
    return mask


def read_columns(
    storage: Storage,
    definition: TableDefinition,
    segment: Segment,
    schema: pa.Schema,
    *,
    row_groups: Sequence[int] | None = None,
    mask: npt.NDArray[np.bool_] | None = None,
    use_threads: bool = True,
    footers: Footers | None = None,
) -> pa.Table:
    """Return the columns ``schema`` of ``segment``, including deleted rows.

    Args:
        definition: The table. Files of its older schema versions are read as the newest version.
        schema: Columns of the table.
        row_groups: Row groups to read, or None for all.
        mask: Mask of the rows to return, or None for all, bool[rows in these row groups].
        footers: Cache of footers.

    Raises Missing, or Corrupt if the data has changed since it was written.
    """
    form = form_of(definition, segment.id, schema)
    if form is not None:
        schema = form.stored
    reader = _open(storage, segment, schema, footers)
    table = _read(reader, segment, schema, row_groups, mask, use_threads)
    if form is None:
        return table
    return form.convert(table)


def _read(
    reader: _OpenSegment,
    segment: Segment,
    schema: pa.Schema,
    row_groups: Sequence[int] | None,
    mask: npt.NDArray[np.bool_] | None,
    use_threads: bool,
) -> pa.Table:
    """Return the stored columns ``schema``. Other arguments as for :func:`read_columns`."""
    numbers = range(len(segment.row_groups)) if row_groups is None else row_groups
    try:
        if mask is None:
            return _decode(reader, segment, numbers, schema, use_threads)
        ends = np.cumsum([segment.row_groups[number] for number in numbers])
        masks = np.split(mask, ends[:-1])
        # Filter row group by row group, so that each reuses the memory that the previous one was
        # decoded into.
        parts = zip(numbers, masks, strict=True)
        return pa.concat_tables(
            _decode(reader, segment, [n], schema, use_threads, mask) for n, mask in parts
        )
    except _UNREADABLE as error:
        raise _corrupt(segment, str(error)) from error


def _decode(
    reader: _OpenSegment,
    segment: Segment,
    row_groups: Sequence[int],
    schema: pa.Schema,
    use_threads: bool,
    mask: npt.NDArray[np.bool_] | None = None,
) -> pa.Table:
    """Return the rows of ``row_groups``.

    Args:
        mask: Mask of rows, or None for all.
    """
    names = schema.names
    if segment.is_imported:
        names = [name for name in names if name in reader.parquet.schema_arrow.names]
    table = reader.read(row_groups, names, use_threads)
    expected = sum(segment.row_groups[row_group] for row_group in row_groups)
    if len(table) != expected:
        raise _corrupt(segment, f"{len(table)} rows instead of {expected}")
    if mask is not None and not mask.all():
        table = table.filter(pa.array(mask))
    if segment.is_imported:
        table = _converted(table, schema)
    return decode_strings(table, schema)


def _converted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of an imported file as the columns ``schema``.

    Missing columns are null, and values that are narrower become wider. Fields of structs that the
    table requires may be optional in the file.
    """
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            column = pa.chunked_array([pa.nulls(len(table), field.type)])
        else:
            column = table[field.name]
        if not pa.types.is_dictionary(column.type):
            change = _nested if field.type.num_fields else widen
            chunks = [change(chunk, field.type) for chunk in column.chunks]
            column = pa.chunked_array(chunks, field.type)
        columns.append(column)
    return pa.table(dict(zip(schema.names, columns, strict=True)))


def _nested(array: pa.Array, type: pa.DataType) -> pa.Array:
    return fill_required(convert(array, type), type)


def _corrupt(segment: Segment, problem: str) -> Corrupt:
    return Corrupt(
        f"a data file cannot be read: {problem}", path=segment.path, offset=segment.block_offset
    )

"""Parquet structures that pyarrow does not expose: reads page locations, and writes footers.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. A
*chunk* is one column of one row group. A *page* is a range of bytes in it that can be decoded on
its own, apart from the chunk's dictionary page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indexes.arrays import run_starts
from mdt.errors import Corrupt
from mdt.limits import FOOTER_BYTES_MAX
from mdt.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST_FIELD,
    STOP,
    STRUCT,
    Malformed,
    find,
    integer,
    list_field,
    read_integer,
    read_list,
    read_varint,
    skip,
)
from mdt.parquet.thrift import text as thrift_text
from mdt.session import memo
from mdt.stores.contract import check_size
from mdt.stores.storage import Storage

MAGIC = b"PAR1"
SNAPPY, LZ4 = 1, 7
CODECS: Mapping[str, int] = {"UNCOMPRESSED": 0, "SNAPPY": SNAPPY, "GZIP": 2, "ZSTD": 6, "LZ4": LZ4}
"""pyarrow's name of a codec -> ``CompressionCodec``. pyarrow's LZ4 is LZ4_RAW."""
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
"""``Encoding``."""

FOOTER_TAIL_BYTES = 8
"""The length of the footer and the magic."""
_TAIL_BYTES = 1 << 16
"""Bytes read first from the end of a file. Most footers are smaller."""
_TOKENS_OF_LOCATION = 7
_FIELD_BYTES = 8
_INT32_BYTES_MAX = 5
_SHIFTS = 7 * np.arange(_FIELD_BYTES - 1)
_STEP = 0x10

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Locations:
    """Pages of many chunks, chunk by chunk.

    Attributes:
        offset, size: Bytes, including the header, int64[pages].
        row: First row of the page in its row group, int64[pages].
        pages: Number of pages per chunk, int64[chunks].
    """

    offset: Int64Array
    size: Int64Array
    row: Int64Array
    pages: Int64Array


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column with a single leaf, as described in a footer.

    Attributes:
        elements: Thrift bytes of its schema elements, outermost first.
        type: Physical type.
        path: Names of the elements.
    """

    elements: tuple[bytes, ...]
    type: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chunks:
    """n chunks for a new footer, at most one per column and row group. Each field is int64[n].

    Attributes:
        column, group: Column and row group.
        rows: Number of rows.
        values: Number of values, which differs for lists.
        offset, size: Byte range in the file.
        dictionary: Size of the dictionary page, 0 without.
        codec: Parquet's number of the codec.
    """

    column: Int64Array
    group: Int64Array
    rows: Int64Array
    values: Int64Array
    offset: Int64Array
    size: Int64Array
    dictionary: Int64Array
    codec: Int64Array


def footer_length(parquet: pa.Buffer) -> int:
    """Return the size of the footer at the end of Parquet bytes, including its length and the
    magic.

    Raises Malformed if there is no footer.
    """
    tail = parquet.slice(max(0, parquet.size - FOOTER_TAIL_BYTES)).to_pybytes()
    length = int.from_bytes(tail[:4], "little") + FOOTER_TAIL_BYTES
    if tail[4:] != MAGIC or length > parquet.size:
        raise Malformed("no Parquet footer")
    return length


def read_footer(storage: Storage, path: str, size: int) -> bytes:
    """Return the footer at the end of a file of ``size`` bytes, including its length and the magic.

    Raises Corrupt if there is no footer, and Missing.
    """
    start = max(0, size - _TAIL_BYTES)
    tail = storage.read(path, start, size - start)
    length = int.from_bytes(tail[-FOOTER_TAIL_BYTES:-4], "little") + FOOTER_TAIL_BYTES
    if tail[-4:] != MAGIC or length > size:
        raise Corrupt("a file does not end with a Parquet footer", path=path, offset=size)
    check_size(path, length, FOOTER_BYTES_MAX)
    if length > len(tail):
        tail = storage.read(path, size - length, length)
    return tail[-length:]


def footer_of(parquet: pa.Buffer) -> bytes:
    """Return the footer at the end of Parquet bytes, without its length and the magic.

    Raises Malformed if there is no footer.
    """
    length = footer_length(parquet)
    return bytes(parquet.slice(parquet.size - length, length - FOOTER_TAIL_BYTES).to_pybytes())


# -- offset indexes


def locations(parquet: pa.Buffer, chunks: int) -> Locations:
    """Return the pages of all ``chunks``, row group by row group, of a file with parquet-cpp page
    indexes.

    parquet-cpp writes the offset indexes of all chunks consecutively, right before the footer. They
    are decoded together. Raises Malformed, IndexError or KeyError if they are not at this place.
    """
    footer = footer_of(parquet)
    start = _first_offset_index(footer)
    data = parquet.slice(start, parquet.size - FOOTER_TAIL_BYTES - len(footer) - start).to_pybytes()
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) < 0x80)
    tokens = _Tokens(data, ends)
    first, pages = [], []
    for _ in range(chunks):
        token, count = tokens.offset_index()
        first.append(token)
        pages.append(count)
    if tokens.at != len(data):
        raise Malformed("unexpected bytes after the offset indexes")
    counts = np.array(pages, dtype=np.int64)
    begin = np.repeat(np.array(first, np.int64) - _TOKENS_OF_LOCATION * run_starts(counts), counts)
    at = begin + _TOKENS_OF_LOCATION * np.arange(counts.sum())
    offset, size, row = (_values(data, ends, at + field) for field in (1, 3, 5))
    return Locations(offset, size, row, counts)


def _first_offset_index(footer: bytes) -> int:
    """Return the file offset of the first chunk's offset index."""
    group = read_list(footer, find(footer, 0, 4))[2]
    chunk = read_list(footer, find(footer, group, 1))[2]
    return read_integer(footer, find(footer, chunk, 4))


def value_counts(parquet: pa.Buffer, offset: Int64Array) -> Int64Array:
    """Return the number of values in each data page at ``offset``, as int64[pages].

    The pages must have version 1 and checksums. PageHeader: 1 type, 2 and 3 sizes, 4 checksum, 5
    data page header, which begins with the number of values. An empty list counts as a value.
    Raises Malformed or IndexError for another header.
    """
    data, at = np.frombuffer(parquet, np.uint8), offset
    for kind in (I32, I32, I32, I32, STRUCT, I32):
        if bool((data[at] != _STEP | kind).any()):
            raise Malformed("a page header has unexpected fields")
        at = at + 1
        if kind == I32:
            value, at = _numbers(data, at)
    return value


def _numbers(data: npt.NDArray[np.uint8], at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the non-negative I32 numbers at the positions ``at``, and the positions after them."""
    value, unfinished = np.zeros(len(at), np.int64), np.ones(len(at), np.bool_)
    for byte in range(_INT32_BYTES_MAX):
        value |= np.where(unfinished, data[at] & 0x7F, 0).astype(np.int64) << (7 * byte)
        unfinished &= data[at] >= 0x80
        at = at + unfinished
    return value >> 1, at + 1


@dataclass(slots=True)
class _Tokens:
    """A parser of offset indexes as a sequence of varints.

    Attributes:
        ends: Positions of their last bytes.
    """

    data: bytes
    ends: Int64Array
    at: int = 0
    token: int = 0

    def offset_index(self) -> tuple[int, int]:
        """Return the first varint of the first location and the number of locations. Skips the
        structure.

        OffsetIndex: 1 list<PageLocation>, 2 list<i64> (sizes of byte arrays). PageLocation: 1 i64
        offset, 2 i32 size, 3 i64 row. Each field is one varint of header and one of value, followed
        by a stop byte: seven in all.
        """
        count = self._list(STRUCT)
        first = self.token
        self._pass(_TOKENS_OF_LOCATION * count)
        if self.data[self.at] == LIST_FIELD:
            self._pass(self._list(I64))
        if self.data[self.at] != STOP:
            raise Malformed("an offset index has an unknown field")
        self._pass(1)
        return first, count

    def _list(self, kind: int) -> int:
        """Return the length of the list at the current field header, and move to its first
        element.
        """
        if self.data[self.at] != LIST_FIELD:
            raise Malformed("a list is missing")
        element, count, self.at = read_list(self.data, self.at + 1)
        if element != kind or count == 0:
            raise Malformed("a list is empty or has another element type")
        self.token = int(np.searchsorted(self.ends, self.at))
        return count

    def _pass(self, count: int) -> None:
        """Skip ``count`` varints."""
        self.token += count
        self.at = int(self.ends[self.token - 1]) + 1


def _values(data: bytes, ends: Int64Array, token: Int64Array) -> Int64Array:
    """Return the signed numbers in the varints ``token`` as int64[len(token)]. Varint 0 is not
    allowed.
    """
    codes = np.frombuffer(data, np.uint8)
    first, last = ends[token - 1] + 1, ends[token]
    value = np.zeros(len(token), dtype=np.int64)
    for byte in range(int((last - first).max(initial=-1)) + 1):
        in_range = first + byte <= last
        value[in_range] |= (codes[first[in_range] + byte].astype(np.int64) & 0x7F) << (7 * byte)
    return (value >> 1) ^ -(value & 1)


# -- footers


def leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return pyarrow's footer description of the columns of ``schema``, which have one leaf
    each.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, store_schema=False)
    footer = footer_of(sink.getvalue())
    _, count, at = read_list(footer, find(footer, 0, 2))
    at = skip(footer, at, STRUCT)  # the root
    columns: list[Leaf] = []
    elements, path = list[bytes](), list[str]()
    for _ in range(count - 1):
        begin, (length, name) = at, read_varint(footer, find(footer, at, 4))
        at = skip(footer, begin, STRUCT)
        elements.append(footer[begin:at])
        path.append(footer[name : name + length].decode())
        if footer[begin] >> 4 == 1:  # only leaves have field 1, the physical type
            columns.append(Leaf(tuple(elements), read_integer(footer, begin + 1), tuple(path)))
            elements, path = [], []
    return tuple(columns)


def footer(columns: Sequence[Leaf], chunks: Chunks) -> bytes:
    """Return the footer of a file of ``columns``, with its length and the magic.

    Row groups without a chunk for a column get an empty chunk. The chunks of a row group may have
    different row counts. Each must then be read separately.
    """
    root = bytes((4 << 4 | BINARY,)) + thrift_text("schema") + integer(1, I32, len(columns))
    elements = [element for leaf in columns for element in leaf.elements]
    rows, groups = _row_groups(columns, chunks)
    body = b"".join(
        (
            integer(1, I32, 2),
            list_field(STRUCT, [root + bytes((STOP,)), *elements]),
            integer(1, I64, rows),
            list_field(STRUCT, groups),
            bytes((STOP,)),
        )
    )
    return body + len(body).to_bytes(4, "little") + MAGIC


def row_group(chunks: Sequence[bytes], size: int, rows: int) -> bytes:
    """Return a RowGroup of ``size`` bytes. ``chunks`` are its ColumnChunks."""
    numbers = integer(1, I64, size) + integer(1, I64, rows)
    return list_field(STRUCT, chunks) + numbers + bytes((STOP,))


def chunk_head(type: int, encodings: Iterable[int], path: Sequence[str]) -> bytes:
    """Return the beginning of a ColumnMetaData: physical type, encodings and path."""
    return b"".join(
        (
            integer(1, I32, type),
            list_field(I32, [bytes((encoding << 1,)) for encoding in encodings]),
            list_field(BINARY, [thrift_text(name) for name in path]),
        )
    )


def _row_groups(columns: Sequence[Leaf], chunks: Chunks) -> tuple[int, list[bytes]]:
    """Return the number of rows and the RowGroups.

    The longest chunk determines the row count of a row group and the value count of its first
    column. pyarrow limits all columns to that number: since version 26 by the row count, before by
    the value count.
    """
    count = int(chunks.group.max(initial=-1)) + 1
    rows, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.maximum.at(rows, chunks.group, chunks.rows)
    np.add.at(sizes, chunks.group, chunks.size)
    complete = _with_first_column(chunks, rows)
    parts_of_chunks = _column_chunks(columns, complete)
    if count == 1 and len(parts_of_chunks) == len(columns):
        # one chunk of each column, in their order
        groups = [parts_of_chunks]
    else:
        absent = _empty_chunks(tuple(columns))
        groups = [list(absent) for _ in range(count)]
        for group, column, data in zip(
            complete.group.tolist(), complete.column.tolist(), parts_of_chunks, strict=True
        ):
            groups[group][column] = data
    return int(rows.sum()), list(map(row_group, groups, sizes.tolist(), rows.tolist()))


def _with_first_column(chunks: Chunks, rows: Int64Array) -> Chunks:
    """Return ``chunks`` with a chunk of the first column in each row group that claims all its
    ``rows``.
    """
    leads = chunks.column == 0
    extended = replace(
        chunks, values=np.where(leads, np.maximum(chunks.values, rows[chunks.group]), chunks.values)
    )
    if np.count_nonzero(leads) == len(rows):
        return extended
    groups_without = np.setdiff1d(np.arange(len(rows)), chunks.group[leads])
    zeros = np.zeros_like(groups_without)
    added = Chunks(
        zeros, groups_without, zeros, rows[groups_without], zeros + len(MAGIC), zeros, zeros, zeros
    )
    return Chunks(
        *(
            np.concatenate([getattr(part, f.name) for part in (extended, added)])
            for f in fields(Chunks)
        )
    )


@memo(64)
def _empty_chunks(columns: tuple[Leaf, ...]) -> list[bytes]:
    """Return an empty chunk of each column."""
    zeros = np.zeros(len(columns), np.int64)
    chunks = Chunks(
        np.arange(len(columns)), zeros, zeros, zeros, zeros + len(MAGIC), zeros, zeros, zeros
    )
    return _column_chunks(columns, chunks)


def _column_chunks(columns: Sequence[Leaf], chunks: Chunks) -> list[bytes]:
    """Return the ColumnChunk, with ColumnMetaData, of each chunk.

    Both size fields contain the size in the file, because readers use no other size.
    """
    heads = _heads(tuple(columns))
    pages = chunks.offset + chunks.dictionary
    # file_offset; num_values, both sizes, data_page_offset, dictionary_page_offset
    lead = _integers([(2, chunks.offset)])
    tail = _integers(
        [(1, chunks.values), (1, chunks.size), (1, chunks.size), (2, pages), (2, chunks.offset)]
    )
    struct, stops = bytes((_STEP | STRUCT,)), bytes((STOP, STOP))
    encoded = []
    rows = zip(
        chunks.column.tolist(), chunks.dictionary.tolist(), chunks.codec.tolist(), strict=True
    )
    for number, (column, dictionary, codec) in enumerate(rows):
        at, end = 5 * _FIELD_BYTES * number, (5 if dictionary else 4) * _FIELD_BYTES
        offset = lead[_FIELD_BYTES * number : _FIELD_BYTES * (number + 1)]
        encoded.append(
            b"".join(
                (
                    offset,
                    struct,
                    heads[column][dictionary > 0],
                    _codec(codec),
                    tail[at : at + end],
                    stops,
                )
            )
        )
    return encoded


def _integers(fields: Sequence[tuple[int, Int64Array]]) -> bytes:
    """Return n sequences of I64 fields with _FIELD_BYTES bytes each.

    Varints are padded to equal length with zero bits, which all readers accept.

    Args:
        fields: (difference to the previous field id, values int64[n] >= 0).
    """
    out = np.empty((len(fields[0][1]), len(fields), _FIELD_BYTES), np.uint8)
    for place, (step, values) in enumerate(fields):
        out[:, place, 0] = step << 4 | I64
        out[:, place, 1:] = ((values << 1)[:, None] >> _SHIFTS) & 0x7F
    out[:, :, 1:-1] |= 0x80
    return out.tobytes()


@memo(64)
def _heads(columns: tuple[Leaf, ...]) -> list[tuple[bytes, bytes]]:
    """Return the heads of the chunks of each column, without and with a dictionary.

    Pages specify their own encodings.
    """
    return [
        (
            chunk_head(leaf.type, (PLAIN, RLE), leaf.path),
            chunk_head(leaf.type, (PLAIN, RLE, RLE_DICTIONARY), leaf.path),
        )
        for leaf in columns
    ]


@memo(256)
def _codec(codec: int) -> bytes:
    return integer(1, I32, codec)

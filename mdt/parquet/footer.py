"""Parquet's own structures below what pyarrow shows: page locations in, footers out.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.  A *chunk* is one column of
one row group, a *page* a run of bytes in it that decodes on its own (after the chunk's dictionary page, if it has one).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mdt.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    Malformed,
    find,
    integer,
    list_head,
    read_integer,
    read_list,
    skip,
)
from mdt.parquet.thrift import text as thrift_text

MAGIC = b"PAR1"
SNAPPY, LZ4 = 1, 7
CODECS: Mapping[str, int] = {"UNCOMPRESSED": 0, "SNAPPY": SNAPPY, "GZIP": 2, "ZSTD": 6, "LZ4": LZ4}
"""pyarrow's name of a codec -> ``CompressionCodec``; what pyarrow calls LZ4 is LZ4_RAW."""
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
"""``Encoding``."""

_FOOTER_TAIL_BYTES = 8
_TOKENS_OF_LOCATION = 7
_FIELD_BYTES = 8
_SHIFTS = 7 * np.arange(_FIELD_BYTES - 1)
_STEP = 0x10

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Locations:
    """Pages of many chunks, chunk by chunk: offset and size (with header) in bytes, number of the first row in its row
    group, all int64[pages]; ``pages``: how many each chunk has.
    """

    offset: Int64Array
    size: Int64Array
    row: Int64Array
    pages: Int64Array


@dataclass(frozen=True, slots=True)
class Leaf:
    """A flat column as a footer describes it: its schema element, physical type and name, as Thrift bytes."""

    element: bytes
    type: int
    path: bytes


@dataclass(frozen=True, slots=True)
class Chunks:
    """n chunks of a footer to write, int64[n] each, at most one for each column and row group.

    ``column``, ``group``: which; ``values``: number of values; ``offset``, ``size``: where its first byte is, and bytes;
    ``dictionary``: bytes of its dictionary page, 0 for none; ``codec``: Parquet's number of its compression.
    """

    column: Int64Array
    group: Int64Array
    values: Int64Array
    offset: Int64Array
    size: Int64Array
    dictionary: Int64Array
    codec: Int64Array


def footer_length(parquet: pa.Buffer) -> int:
    """Return the bytes of the footer at the end of Parquet bytes, with its length and the magic.

    Raises Malformed if there is none.
    """
    tail = parquet.slice(max(0, parquet.size - _FOOTER_TAIL_BYTES)).to_pybytes()
    length = int.from_bytes(tail[:4], "little") + _FOOTER_TAIL_BYTES
    if tail[4:] != MAGIC or length > parquet.size:
        raise Malformed("no Parquet footer")
    return length


def _footer(parquet: pa.Buffer) -> bytes:
    length = footer_length(parquet)
    return bytes(parquet.slice(parquet.size - length, length - _FOOTER_TAIL_BYTES).to_pybytes())


# -- offset indexes


def locations(parquet: pa.Buffer, chunks: int) -> Locations:
    """Return the pages of all ``chunks`` (row group by row group) of a file that parquet-cpp wrote with page indexes.

    parquet-cpp writes the offset indexes of all chunks one after the other, right before the footer; they are decoded
    together.  Raises Malformed, IndexError or KeyError if they are not found there.
    """
    footer = _footer(parquet)
    start = _first_offset_index(footer)
    data = parquet.slice(start, parquet.size - _FOOTER_TAIL_BYTES - len(footer) - start).to_pybytes()
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) < 0x80)
    tokens = _Tokens(data, ends)
    first, pages = [], []
    for _ in range(chunks):
        token, count = tokens.offset_index()
        first.append(token)
        pages.append(count)
    if tokens.at != len(data):
        raise Malformed("something else stands behind the offset indexes")
    counts = np.array(pages, dtype=np.int64)
    begin = np.repeat(np.array(first, np.int64) - _TOKENS_OF_LOCATION * (np.cumsum(counts) - counts), counts)
    at = begin + _TOKENS_OF_LOCATION * np.arange(counts.sum())
    offset, size, row = (_values(data, ends, at + field) for field in (1, 3, 5))
    return Locations(offset, size, row, counts)


def _first_offset_index(footer: bytes) -> int:
    """Return where the offset index of the first chunk stands in the file."""
    group = read_list(footer, find(footer, 0, 4))[2]
    chunk = read_list(footer, find(footer, group, 1))[2]
    return read_integer(footer, find(footer, chunk, 4))


@dataclass(slots=True)
class _Tokens:
    """Walks over offset indexes as a row of varints; ``ends``: positions of their last bytes."""

    data: bytes
    ends: Int64Array
    at: int = 0
    token: int = 0

    def offset_index(self) -> tuple[int, int]:
        """Return the first varint of the first location and the number of locations; moves behind the structure.

        OffsetIndex: 1 list<PageLocation>, 2 list<i64> (sizes of byte arrays).  PageLocation: 1 i64 offset, 2 i32 size,
        3 i64 row, each field one varint of header and one of value, and a stop byte: seven in all.
        """
        count = self._list(STRUCT)
        first = self.token
        self._pass(_TOKENS_OF_LOCATION * count)
        if self.data[self.at] == _STEP | LIST:
            self._pass(self._list(I64))
        if self.data[self.at] != STOP:
            raise Malformed("an offset index has an unknown field")
        self._pass(1)
        return first, count

    def _list(self, kind: int) -> int:
        """Return the number of elements of the list whose field header stands here; moves to the first of them."""
        if self.data[self.at] != _STEP | LIST:
            raise Malformed("no list where one should be")
        found, count, self.at = read_list(self.data, self.at + 1)
        if found != kind or count == 0:
            raise Malformed("a list of something else, or an empty one")
        self.token = int(np.searchsorted(self.ends, self.at))
        return count

    def _pass(self, count: int) -> None:
        """Move behind ``count`` varints."""
        self.token += count
        self.at = int(self.ends[self.token - 1]) + 1


def _values(data: bytes, ends: Int64Array, token: Int64Array) -> Int64Array:
    """Return the signed numbers that the varints ``token`` (not the first of all) hold -> int64[len(token)]."""
    codes = np.frombuffer(data, np.uint8)
    first, last = ends[token - 1] + 1, ends[token]
    value = np.zeros(len(token), dtype=np.int64)
    for byte in range(int((last - first).max(initial=-1)) + 1):
        here = first + byte <= last
        value[here] |= (codes[first[here] + byte].astype(np.int64) & 0x7F) << (7 * byte)
    return (value >> 1) ^ -(value & 1)


# -- footers


@lru_cache(maxsize=64)
def leaves(schema: pa.Schema) -> Mapping[str, Leaf]:
    """Return how pyarrow describes the flat columns of ``schema`` in a footer, by name; nested ones are left out."""
    sink = pa.BufferOutputStream()
    flat = pa.schema([f for f in schema if not pa.types.is_nested(f.type)])
    pq.write_table(flat.empty_table(), sink, store_schema=False)
    footer = _footer(sink.getvalue())
    _, count, at = read_list(footer, find(footer, 0, 2))
    found = {}
    for number in range(count):
        end = skip(footer, at, STRUCT)
        if number:
            name = flat.field(number - 1).name
            found[name] = Leaf(footer[at:end], read_integer(footer, find(footer, at, 1)), thrift_text(name))
        at = end
    return found


def footer(columns: Sequence[Leaf], chunks: Chunks) -> bytes:
    """Return footer, its length and the magic of a file of ``columns``; row groups that lack a chunk of one have an empty one.

    The chunks of a row group may differ in length; each is then to be read on its own.
    """
    root = bytes((4 << 4 | BINARY,)) + thrift_text("schema") + integer(1, I32, len(columns)) + bytes((STOP,))
    groups = list(_row_groups(columns, chunks))
    body = b"".join(
        [
            integer(1, I32, 2),
            bytes((_STEP | LIST,)),
            list_head(STRUCT, len(columns) + 1),
            root,
            *(leaf.element for leaf in columns),
            integer(1, I64, sum(rows for rows, _ in groups)),
            bytes((_STEP | LIST,)),
            list_head(STRUCT, len(groups)),
            *(data for _, data in groups),
            bytes((STOP,)),
        ]
    )
    return body + len(body).to_bytes(4, "little") + MAGIC


def _row_groups(columns: Sequence[Leaf], chunks: Chunks) -> Iterator[tuple[int, bytes]]:
    """Yield rows and bytes of each row group.

    Its rows, and the values of its first column, are those of its longest chunk: pyarrow reads no more of any column, by the one number
    from version 26 on, by the other before.
    """
    count = int(chunks.group.max(initial=-1)) + 1
    rows, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.maximum.at(rows, chunks.group, chunks.values)
    np.add.at(sizes, chunks.group, chunks.size)
    led = _led(chunks, rows)
    parts_of_chunks = _column_chunks(columns, led)
    if count == 1 and len(parts_of_chunks) == len(columns):  # one chunk of each column, in their order
        groups = [parts_of_chunks]
    else:
        absent = _absent(tuple(columns))
        groups = [list(absent) for _ in range(count)]
        for group, column, data in zip(led.group.tolist(), led.column.tolist(), parts_of_chunks, strict=True):
            groups[group][column] = data
    head = bytes((_STEP | LIST,)) + list_head(STRUCT, len(columns))
    for parts, size, length in zip(groups, sizes.tolist(), rows.tolist(), strict=True):
        yield length, b"".join([head, *parts, integer(1, I64, size), integer(1, I64, length), bytes((STOP,))])


def _led(chunks: Chunks, rows: Int64Array) -> Chunks:
    """Return ``chunks`` with one of the first column in each row group, which claims all ``rows`` of that."""
    leads = chunks.column == 0
    led = replace(chunks, values=np.where(leads, rows[chunks.group], chunks.values))
    if np.count_nonzero(leads) == len(rows):
        return led
    lacking = np.setdiff1d(np.arange(len(rows)), chunks.group[leads])
    none = np.zeros_like(lacking)
    added = Chunks(none, lacking, rows[lacking], none + len(MAGIC), none, none, none)
    return Chunks(*(np.concatenate([getattr(of, f.name) for of in (led, added)]) for f in fields(Chunks)))


@lru_cache(maxsize=64)
def _absent(columns: tuple[Leaf, ...]) -> list[bytes]:
    """Return an empty chunk of each column."""
    nothing = np.zeros(len(columns), np.int64)
    return _column_chunks(
        columns, Chunks(np.arange(len(columns)), nothing, nothing, nothing + len(MAGIC), nothing, nothing, nothing)
    )


def _column_chunks(columns: Sequence[Leaf], chunks: Chunks) -> list[bytes]:
    """Return a ColumnChunk with its ColumnMetaData for each chunk.  Sizes are those in the file: readers use no others."""
    heads = _heads(tuple(columns))
    pages = chunks.offset + chunks.dictionary
    # file_offset; num_values, both sizes, data_page_offset, dictionary_page_offset
    lead = _integers([(2, chunks.offset)])
    rest = _integers([(1, chunks.values), (1, chunks.size), (1, chunks.size), (2, pages), (2, chunks.offset)])
    struct, stops = bytes((_STEP | STRUCT,)), bytes((STOP, STOP))
    found = []
    told = zip(chunks.column.tolist(), chunks.dictionary.tolist(), chunks.codec.tolist(), strict=True)
    for number, (column, dictionary, codec) in enumerate(told):
        at, end = 5 * _FIELD_BYTES * number, (5 if dictionary else 4) * _FIELD_BYTES
        offset = lead[_FIELD_BYTES * number : _FIELD_BYTES * (number + 1)]
        found.append(
            b"".join((offset, struct, heads[column][dictionary > 0], _codec(codec), rest[at : at + end], stops))
        )
    return found


def _integers(fields: Sequence[tuple[int, Int64Array]]) -> bytes:
    """Return n runs of I64 fields of _FIELD_BYTES each; ``fields``: (step from the field before, values, int64[n] >= 0).

    Numbers are written with zeros in front, which every reader of varints takes.
    """
    out = np.empty((len(fields[0][1]), len(fields), _FIELD_BYTES), np.uint8)
    for place, (step, values) in enumerate(fields):
        out[:, place, 0] = step << 4 | I64
        out[:, place, 1:] = ((values << 1)[:, None] >> _SHIFTS) & 0x7F
    out[:, :, 1:-1] |= 0x80
    return out.tobytes()


@lru_cache(maxsize=64)
def _heads(columns: tuple[Leaf, ...]) -> list[tuple[bytes, bytes]]:
    return [(_chunk_head(leaf, False), _chunk_head(leaf, True)) for leaf in columns]


@lru_cache(maxsize=256)
def _codec(codec: int) -> bytes:
    return integer(1, I32, codec)


def _chunk_head(leaf: Leaf, has_dictionary: bool) -> bytes:
    """Return the ColumnMetaData that all chunks of a column begin with: type, encodings, path.  Pages say which encoding they have."""
    encodings = (PLAIN, RLE, RLE_DICTIONARY) if has_dictionary else (PLAIN, RLE)
    parts = [
        integer(1, I32, leaf.type),
        bytes((_STEP | LIST,)) + list_head(I32, len(encodings)) + bytes(e << 1 for e in encodings),
        bytes((_STEP | LIST,)) + list_head(BINARY, 1) + leaf.path,
    ]
    return b"".join(parts)

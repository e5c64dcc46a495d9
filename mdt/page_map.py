"""Page maps: for one segment, where every page of every flat column stands and which rows it holds.

With it a reader fetches single rows without reading row groups, or the Parquet footer.  Nested columns are left out.

Bytes, little-endian (see FORMAT.md): ``b"MPM1" | u32 codec | u32 columns c | u32 row groups g | u32 pages p | u32 rows |
u32 bytes of names n | u32 0 | u64 start[c g] | u32 dictionary[c g] | u32 pages[c g] | u32 size[p] | u32 row[p] | names``.
Chunks are in the order of columns, then of row groups.  Integrity is the reference's CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mdt.errors import Corrupt
from mdt.hudi.parquet_footer import CODECS, LZ4, SNAPPY, locations

MAGIC = b"MPM1"
_HEADER = struct.Struct("<4s7I")
_SEPARATOR = "\n"

Int64Array = npt.NDArray[np.int64]

OFFSET, SIZE, ROW, ROWS, CHUNK, START, DICTIONARY = range(7)
"""Columns of :attr:`PageMap.pages`."""


@dataclass(frozen=True, slots=True)
class PageMap:
    """The pages of one segment.

    ``columns``: names of the flat columns; ``codec``: Parquet's number of the compression, and that of chunks with a
    dictionary << 8; ``rows``: of the segment.
    ``start``, ``dictionary``: for each chunk (columns, then row groups) where it begins and how many bytes its dictionary
    page has, int64[chunks].  ``pages``: for each page, chunk by chunk, its offset, size with header, first row, number of
    rows, chunk, and the latter's start and dictionary -> int64[p, 7].  ``keys``: column number << 32 | first row of each
    page, rising -> int64[p].
    Offsets count from the first byte of the Parquet file.
    """

    columns: tuple[str, ...]
    codec: int
    rows: int
    groups: int
    start: Int64Array
    dictionary: Int64Array
    pages: Int64Array
    keys: Int64Array

    @property
    def nbytes(self) -> int:
        """Bytes that this map takes in memory."""
        return int(self.start.nbytes + self.dictionary.nbytes + self.pages.nbytes + self.keys.nbytes)

    def touched(self, columns: Int64Array, positions: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the pages of some columns that hold any of ``positions``, which rise and are not empty.

        Three arrays with an item for each page, by columns as given, then rows: number of the page, place of its column in
        ``columns``, and how many of ``positions`` it holds.  O(c n log p), or O(p log n) where that is less.
        """
        if len(self.pages) == len(self.columns):
            return columns, np.arange(len(columns)), np.full(len(columns), len(positions))
        return (self._by_row if len(columns) * len(positions) <= len(self.pages) else self._by_page)(columns, positions)

    def _by_row(self, columns: Int64Array, positions: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        wanted = (columns[:, None] << 32) | positions[None, :]
        page = np.searchsorted(self.keys, wanted.ravel(), side="right") - 1
        fresh = np.empty(len(page), np.bool_)
        fresh[0] = True
        np.not_equal(page[1:], page[:-1], out=fresh[1:])
        first = np.flatnonzero(fresh)
        held = np.empty(len(first), np.int64)
        np.subtract(first[1:], first[:-1], out=held[:-1])
        held[-1] = len(page) - first[-1]
        return page[first], first // len(positions), held

    def _by_page(self, columns: Int64Array, positions: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        first, last = np.searchsorted(self.keys, columns << 32), np.searchsorted(self.keys, (columns + 1) << 32)
        count = last - first
        place = np.repeat(np.arange(len(columns)), count)
        page = np.arange(len(place)) + np.repeat(first - (np.cumsum(count) - count), count)
        begin, end = self.pages[page, ROW], self.pages[page, ROW] + self.pages[page, ROWS]
        held = np.searchsorted(positions, end) - np.searchsorted(positions, begin)
        some = held > 0
        return page[some], place[some], held[some]

    def check(self) -> None:
        """Assert the invariants: pages follow each other in their chunks, and together hold every row of each column."""
        offset, size, _, rows, chunk, _, _ = self.pages.T
        same = chunk[1:] == chunk[:-1]
        assert bool(np.all(offset[1:][same] == (offset + size)[:-1][same])), "pages must follow each other"
        first = np.append(True, ~same)
        assert bool(np.all(offset[first] == (self.start + self.dictionary)[chunk[first]])), "pages begin after dictionaries"
        assert bool(np.all(np.diff(self.keys) > 0)) and bool(np.all(rows > 0)), "rows must rise"
        total = np.bincount(chunk // self.groups, weights=rows, minlength=len(self.columns))
        assert bool(np.all(total == self.rows)), "every column has every row"


def build(parquet: pa.Buffer) -> PageMap:
    """Return the page map of Parquet bytes that :func:`mdt.hudi.base_file.encode` wrote; there is at least one row.

    A file without offset indexes has one page in each chunk.  Raises ValueError, IndexError or KeyError if the offset
    indexes are not where parquet-cpp writes them.
    """
    metadata = pq.read_metadata(pa.BufferReader(parquet))
    groups, leaves = metadata.num_row_groups, metadata.num_columns
    by_group = [[metadata.row_group(g).column(c) for c in range(leaves)] for g in range(groups)]
    flat = [c for c, column in enumerate(by_group[0]) if "." not in column.path_in_schema]
    chunks = [by_group[g][c] for c in flat for g in range(groups)]
    data = np.array([chunk.data_page_offset for chunk in chunks], dtype=np.int64)
    start = np.array(
        [chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset for chunk in chunks], np.int64
    )
    end = start + np.array([chunk.total_compressed_size for chunk in chunks], dtype=np.int64)
    group_rows = np.array([metadata.row_group(g).num_rows for g in range(groups)], dtype=np.int64)
    first_row = np.tile(np.cumsum(group_rows) - group_rows, len(flat))
    if chunks and not chunks[0].has_offset_index:
        count, size, row = np.ones(len(chunks), np.int64), end - data, first_row
    else:
        count, size, row = _indexed(parquet, groups, leaves, np.array(flat, np.int64))
        row = row + np.repeat(first_row, count)
    names = tuple(by_group[0][c].path_in_schema for c in flat)
    codec = _codec(chunks)
    found = _page_map(names, codec, int(metadata.num_rows), groups, start, data - start, count, size, row)
    found.check()
    return found


def _codec(chunks: Sequence[Any]) -> int:
    """Return the codecs of chunks without and with a dictionary, as :attr:`PageMap.codec`.

    What the file does not show is what the writer would have taken (``mdt.hudi.base_file``), so that page maps of files
    with and without dictionaries agree.  Raises ValueError if chunks of one kind differ.
    """
    plain = {CODECS[chunk.compression] for chunk in chunks if not chunk.has_dictionary_page}
    encoded = {CODECS[chunk.compression] for chunk in chunks if chunk.has_dictionary_page}
    if len(plain) > 1 or len(encoded) > 1:
        raise ValueError("chunks of one kind are compressed in several ways")
    first = min(plain) if plain else LZ4 if encoded == {SNAPPY} else min(encoded, default=0)
    second = min(encoded) if encoded else SNAPPY if first == LZ4 else first
    return first | second << 8


def encoded(parquet: pa.Buffer) -> bytes | None:
    """Return the bytes of the page map of ``parquet``, None if this release of pyarrow lays its files out differently.

    Readers do without one; they are slower then.
    """
    try:
        return encode(build(parquet))
    except (ValueError, IndexError, KeyError, AssertionError):
        return None


def _indexed(
    parquet: pa.Buffer, groups: int, leaves: int, flat: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return pages of each chunk, sizes and first rows (in the row group) of the pages of the columns ``flat``."""
    found = locations(parquet, groups * leaves)
    order = (np.arange(groups)[None, :] * leaves + flat[:, None]).ravel()
    first = (np.cumsum(found.pages) - found.pages)[order]
    count = found.pages[order]
    pages = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return count, found.size[pages], found.row[pages]


def _page_map(
    names: tuple[str, ...], codec: int, rows: int, groups: int, start: Int64Array, dictionary: Int64Array,
    count: Int64Array, size: Int64Array, row: Int64Array,
) -> PageMap:  # fmt: skip
    """Return the page map whose chunks have ``count`` pages each; sizes and first rows page by page."""
    chunk = np.repeat(np.arange(len(start)), count)
    before = np.cumsum(size) - size
    first = np.cumsum(count) - count
    offset = np.repeat(start + dictionary - before[first], count) + before
    column = chunk // groups
    following = np.append(row[1:], rows)
    following[np.append(column[1:] != column[:-1], True)] = rows
    pages = np.stack([offset, size, row, following - row, chunk, start[chunk], dictionary[chunk]], axis=1)
    return PageMap(names, codec, rows, groups, start, dictionary, pages, (column << 32) | row)


def encode(page_map: PageMap) -> bytes:
    """Return the bytes of ``page_map``."""
    names = _SEPARATOR.join(page_map.columns).encode()
    counts = len(page_map.columns), page_map.groups, len(page_map.pages), page_map.rows, len(names), 0
    count = np.bincount(page_map.pages[:, CHUNK], minlength=len(page_map.start))
    parts = [page_map.dictionary, count, page_map.pages[:, SIZE], page_map.pages[:, ROW]]
    arrays = [page_map.start.astype("<u8").tobytes(), *(part.astype("<u4").tobytes() for part in parts)]
    return b"".join([_HEADER.pack(MAGIC, page_map.codec, *counts), *arrays, names])


def decode(data: Any, *, path: str, offset: int) -> PageMap:
    """Return the page map in the buffer ``data``; ``path`` and ``offset`` name it in errors.

    Raises Corrupt if it is none: nothing is allocated that its length does not pay for.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEADER.size or bytes(view[:4]) != MAGIC:
        raise Corrupt("not a page map", path=path, offset=offset, expected=MAGIC.decode(), got=repr(bytes(view[:4])))
    _, codec, columns, groups, pages, rows, name_bytes, _ = _HEADER.unpack_from(view)
    chunks = columns * groups
    expected = _HEADER.size + 16 * chunks + 8 * pages + name_bytes
    if len(view) != expected:
        raise Corrupt("a page map has the wrong length", path=path, offset=offset, expected=str(expected), got=str(len(view)))
    start = np.frombuffer(view, "<u8", chunks, _HEADER.size).astype(np.int64)
    words = np.frombuffer(view, "<u4", 2 * (chunks + pages), _HEADER.size + 8 * chunks).astype(np.int64)
    dictionary, count, size, row = np.split(words, (chunks, 2 * chunks, 2 * chunks + pages))
    try:
        names = _names(bytes(view[expected - name_bytes :]))
        if len(names) != columns or int(count.sum()) != pages or (chunks and int(count.min()) < 1):
            raise ValueError("its counts disagree")
        found = _page_map(names, codec, rows, groups, start, dictionary, count, size, row)
        found.check()
    except (ValueError, AssertionError) as error:
        raise Corrupt(f"a page map is damaged: {error}", path=path, offset=offset) from error
    return found


@lru_cache(maxsize=256)
def _names(data: bytes) -> tuple[str, ...]:
    """Return column names; the same object for the same names, so that comparing them is quick."""
    return tuple(data.decode().split(_SEPARATOR)) if data else ()

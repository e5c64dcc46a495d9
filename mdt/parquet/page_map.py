"""Page maps: location and rows of every page of every leaf column in a segment.

With a page map a reader fetches single rows without reading row groups or the Parquet footer.
Columns are named by leaf paths. Pages of lists and maps begin with whole rows, because parquet-cpp
writes them so if there is an offset index.

Bytes, little-endian (see FORMAT.md): ``b"MPM3" | u32 0 | u32 columns c | u32 row groups g | u32
pages p | u32 rows | u32 bytes of names n | u32 0 | u64 start[c g] | u32 dictionary[c g] | u32
pages[c g] | u32 size[p] | u32 row[p] | u32 dictionary digest[c g] | u32 digest[p] | u8 codec[c g] |
names``. ``MPM4``, used if a leaf is in a list or map, has ``u32 values[p]`` before the codecs.
Chunks are ordered by column, then by row group. The reference to a page map contains its CRC, and
digests protect the pages (:mod:`mdt.parquet.digests`).
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indexes.arrays import expand_runs, run_starts
from mdt.errors import Corrupt
from mdt.forking import cached_property
from mdt.limits import PAGE_VALUES_MAX
from mdt.parquet.digests import digests, place_of
from mdt.parquet.footer import CODECS, locations, value_counts
from mdt.session import memo

MAGIC = b"MPM3"
_MAGIC_LISTS = b"MPM4"
_HEADER = struct.Struct("<4s7I")
_SEPARATOR = "\n"
_INFO_COLUMNS = 11

Int64Array = npt.NDArray[np.int64]

BoolArray = npt.NDArray[np.bool_]
UInt32Array = npt.NDArray[np.uint32]
UInt8Array = npt.NDArray[np.uint8]

OFFSET, SIZE, ROW, ROWS, CHUNK, START, DICTIONARY, DIGEST, DICTIONARY_DIGEST, CODEC, VALUES = range(
    _INFO_COLUMNS
)
"""Columns of :attr:`PageMap.info`."""

UNKNOWN_LAYOUT = (ValueError, IndexError, KeyError)
"""Errors that :func:`build` raises for files with another layout."""


class LayoutWarning(UserWarning):
    """This release of pyarrow writes files with an unknown page layout. Reads stay correct, but are
    slower.
    """


@dataclass(frozen=True)
class PageMap:
    """The pages of one segment.

    Chunks are ordered by column, then by row group. Pages are ordered by chunk.

    Attributes:
        columns: Paths of the leaf columns. A flat column has its name.
        codec: Parquet's number of each chunk's codec, uint8[chunks].
        rows: Rows of the segment.
        groups: Number of row groups.
        start: Offset of each chunk, int64[chunks].
        dictionary: Size of each chunk's dictionary page, int64[chunks].
        pages: Number of each chunk's pages, int64[chunks].
        size: Bytes of each page, including its header, int64[p].
        row: First row of each page, int64[p].
        dictionary_digest: Digest of each chunk's dictionary page, uint32[chunks].
        digest: Digest of each page, including its header, uint32[p].
        values: Number of values in each page, or 0 if it equals the number of rows, int64[p]. None
            if it is 0 for all pages.
    """

    columns: tuple[str, ...]
    codec: UInt8Array
    rows: int
    groups: int
    start: Int64Array
    dictionary: Int64Array
    pages: Int64Array
    size: Int64Array
    row: Int64Array
    dictionary_digest: UInt32Array
    digest: UInt32Array
    values: Int64Array | None = None

    @property
    def count(self) -> int:
        """Number of pages."""
        return len(self.size)

    @property
    def nbytes(self) -> int:
        """Size of this map in memory, in bytes."""
        digests = self.dictionary_digest.nbytes + self.digest.nbytes + self.codec.nbytes
        words = 4 * len(self.start) + (4 + _INFO_COLUMNS) * self.count
        return 8 * words + digests + (0 if self.values is None else self.values.nbytes)

    @cached_property
    def first(self) -> Int64Array:
        """Number of each chunk's first page, int64[chunks]."""
        return run_starts(self.pages)

    @cached_property
    def keys(self) -> Int64Array:
        """Column number << 32 | first row of each page, ascending, int64[p]."""
        page_counts = self.pages
        if len(page_counts):
            page_counts = np.add.reduceat(page_counts, np.arange(0, len(page_counts), self.groups))
        return np.repeat(np.arange(len(self.columns)) << 32, page_counts) | self.row

    @cached_property
    def before(self) -> Int64Array:
        """Total bytes of all earlier pages, including headers, int64[p + 1]."""
        before = np.zeros(self.count + 1, np.int64)
        np.cumsum(self.size, out=before[1:])
        return before

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns that have leaves in this map."""
        return frozenset(path.partition(".")[0] for path in self.columns)

    @cached_property
    def info(self) -> Int64Array:
        """A row per page, int64[p, 11]: offset, size with header, first row, number of rows, chunk,
        the chunk's start and dictionary size, the digests of page and dictionary, codec, and number
        of values.

        Offsets are relative to the Parquet data.
        """
        chunk = np.repeat(np.arange(len(self.first)), self.pages)
        start, dictionary, before = self.start[chunk], self.dictionary[chunk], self.before[:-1]
        offset = start + dictionary + before - before[self.first][chunk]
        column = self.keys >> 32
        end = (column << 32) | self.rows
        following = np.append(self.keys[1:], -1)
        rows = np.where(following >> 32 == column, following, end) - self.keys
        places = offset, self.size, self.row, rows, chunk, start, dictionary
        digests = self.digest, self.dictionary_digest[chunk]
        last = self.codec[chunk], rows if self.values is None else np.maximum(rows, self.values)
        return np.stack([*places, *digests, *last], axis=1)

    def pages_with(
        self, columns: Int64Array, positions: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the pages of ``columns`` that contain any of ``positions``.

        The result is three arrays with an item per page, ordered by column as given, then by row:
        page number, index of its column in ``columns``, and number of ``positions`` in it. O(c n
        log p), or O(p log n) if that is less.

        Args:
            positions: Ascending and not empty.
        """
        if self.count == len(self.columns):
            return columns, np.arange(len(columns)), np.full(len(columns), len(positions))
        if len(positions) == 1:
            page = self.keys.searchsorted((columns << 32) | positions, side="right") - 1
            return page, np.arange(len(columns)), np.ones(len(columns), np.int64)
        if len(columns) * len(positions) <= self.count:
            return self._by_row(columns, positions)
        return self._by_page(columns, positions)

    def _by_row(
        self, columns: Int64Array, positions: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        keys = (columns[:, None] << 32) | positions[None, :]
        page = np.searchsorted(self.keys, keys.ravel(), side="right") - 1
        is_new = np.empty(len(page), np.bool_)
        is_new[0] = True
        np.not_equal(page[1:], page[:-1], out=is_new[1:])
        first = np.flatnonzero(is_new)
        held = np.empty(len(first), np.int64)
        np.subtract(first[1:], first[:-1], out=held[:-1])
        held[-1] = len(page) - first[-1]
        return page[first], first // len(positions), held

    def _by_page(
        self, columns: Int64Array, positions: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        first, last = (
            np.searchsorted(self.keys, columns << 32),
            np.searchsorted(self.keys, (columns + 1) << 32),
        )
        count = last - first
        place = np.repeat(np.arange(len(columns)), count)
        page = expand_runs(first, count)
        _, _, begin, rows, *_ = self.info[page].T
        held = np.searchsorted(positions, begin + rows) - np.searchsorted(positions, begin)
        nonempty = held > 0
        return page[nonempty], place[nonempty], held[nonempty]

    def check(self) -> PageMap:
        """Return this map. Raises ValueError unless the pages of each column cover its rows in
        ascending order.
        """
        column = np.arange(len(self.columns)) << 32
        begin = self.first[:: self.groups] if len(self.first) else self.first
        last = np.append(begin[1:], self.count) - 1
        if not np.array_equal(self.keys[begin], column) or bool(
            (self.keys[1:] <= self.keys[:-1]).any()
        ):
            raise ValueError("rows must ascend from 0")
        if bool((self.keys[last] >= column + self.rows).any()) or bool(
            (self.before[1:] < self.before[:-1]).any()
        ):
            raise ValueError("pages must have rows and bytes")
        if (
            self.values is not None
            and len(self.values)
            and int(self.values.max()) > PAGE_VALUES_MAX
        ):
            raise ValueError(f"a page has {self.values.max()} values")
        return self


def build(
    parquet: pa.Buffer, metadata: pq.FileMetaData | None = None, *, nested: bool = True
) -> PageMap:
    """Return the page map of Parquet bytes from :func:`mdt.hudi.base_file.encode`, with at least
    one row.

    Args:
        metadata: Their footer. Read if None.
        nested: False to skip nested columns, as older versions did.

    A file without offset indexes has a single page per chunk. Raises an error of `UNKNOWN_LAYOUT`
    if the offset indexes are not at parquet-cpp's usual place.
    """
    if metadata is None:
        metadata = pq.read_metadata(pa.BufferReader(parquet))
    paths = [column.path for column in metadata.schema]
    leaves = [leaf for leaf, path in enumerate(paths) if nested or "." not in path]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(leaf) for leaf in leaves for group in groups]
    names = tuple(paths[leaf] for leaf in leaves)
    data = np.array([chunk.data_page_offset for chunk in chunks], dtype=np.int64)
    start, size = np.array([place_of(chunk) for chunk in chunks], np.int64).reshape(-1, 2).T
    end = start + size
    lists = np.repeat(_in_lists(metadata, names), len(groups))
    values = np.where(lists, [chunk.num_values for chunk in chunks], 0)
    group_rows = np.array([group.num_rows for group in groups], dtype=np.int64)
    first_row = np.tile(run_starts(group_rows), len(leaves))
    count, size, row, of_pages = np.ones(len(chunks), np.int64), end - data, first_row, values
    if not chunks or chunks[0].has_offset_index:
        count, size, row, of_pages = _index_pages(
            parquet, len(groups), len(paths), np.array(leaves, np.int64), lists
        )
        row = row + np.repeat(first_row, count)
    first = run_starts(count)
    if not np.array_equal(np.add.reduceat(of_pages, first), values):
        raise ValueError("pages and chunks have different numbers of values")
    before = run_starts(size)
    offset = np.repeat(data - before[first], count) + before
    return PageMap(
        names,
        np.array([CODECS[chunk.compression] for chunk in chunks], np.uint8),
        int(metadata.num_rows),
        len(groups),
        start,
        data - start,
        count,
        size,
        row,
        digests(parquet, start.tolist(), data.tolist()),
        digests(parquet, offset.tolist(), (offset + size).tolist()),
        of_pages if lists.any() else None,
    ).check()


def _in_lists(metadata: pq.FileMetaData, paths: Sequence[str]) -> BoolArray:
    """Return True for each of the leaves ``paths`` of a file that is in a list or map, as
    bool[leaves].
    """
    nested = [number for number, path in enumerate(paths) if "." in path]
    in_list = np.zeros(len(paths), np.bool_)
    in_list[nested] = [metadata.schema.column(leaf).max_repetition_level > 0 for leaf in nested]
    return in_list


def encode_file(
    parquet: pa.Buffer, metadata: pq.FileMetaData | None = None, *, nested: bool = True
) -> bytes | None:
    """Return the encoded page map of the newly written ``parquet``. Arguments as for :func:`build`.

    Returns None with a `LayoutWarning` if this release of pyarrow uses an unknown file layout.
    Readers then work without a page map, but slower.
    """
    try:
        return encode(build(parquet, metadata, nested=nested))
    except UNKNOWN_LAYOUT as error:
        warnings.warn(
            f"pyarrow {pa.__version__} writes Parquet files in an unknown layout ({error}):"
            " single rows of this file cannot be read by page, which is slower; use a supported"
            " release of pyarrow",
            LayoutWarning,
            stacklevel=2,
        )
        return None


def _index_pages(
    parquet: pa.Buffer, groups: int, leaves: int, taken: Int64Array, lists: BoolArray
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return the page count of each chunk, and the size, first row in the row group and values per
    page.

    parquet-cpp may write a page without values before the last row of lists. It is merged into the
    page before it.

    Args:
        taken: Leaf columns to include.
        lists: True for chunks of leaves in lists. For other pages the number of values is 0.
    """
    page_locations = locations(parquet, groups * leaves)
    order = (np.arange(groups)[None, :] * leaves + taken[:, None]).ravel()
    first = run_starts(page_locations.pages)[order]
    count = page_locations.pages[order]
    begin, pages = run_starts(count), expand_runs(first, count)
    offset, size, row = (
        page_locations.offset[pages],
        page_locations.size[pages],
        page_locations.row[pages],
    )
    in_list = np.repeat(lists, count)
    values = np.zeros(len(pages), np.int64)
    values[in_list] = value_counts(parquet, offset[in_list])
    has_rows = np.append(row[1:] != row[:-1], True)
    has_rows[begin + count - 1] = True
    if not has_rows[begin].all():
        raise ValueError("a chunk begins with a page without rows")
    starts = np.flatnonzero(has_rows)
    size, values = np.add.reduceat(size, starts), np.add.reduceat(values, starts)
    return np.add.reduceat(has_rows, begin, dtype=np.int64), size, row[starts], values


def encode(page_map: PageMap) -> bytes:
    """Encode ``page_map``."""
    names = _SEPARATOR.join(page_map.columns).encode()
    codec = page_map.codec.tobytes()
    magic = MAGIC if page_map.values is None else _MAGIC_LISTS
    counts = len(page_map.columns), page_map.groups, page_map.count, page_map.rows, len(names), 0
    parts: list[npt.NDArray[Any]] = [page_map.dictionary, page_map.pages]
    parts += [page_map.size, page_map.row, page_map.dictionary_digest, page_map.digest]
    parts += [] if page_map.values is None else [page_map.values]
    arrays = [
        page_map.start.astype("<u8").tobytes(),
        *(part.astype("<u4").tobytes() for part in parts),
    ]
    return b"".join([_HEADER.pack(magic, 0, *counts), *arrays, codec, names])


def decode(data: Any, *, path: str, offset: int) -> PageMap:
    """Decode a page map. ``path`` and ``offset`` locate it in error messages.

    Raises Corrupt for invalid data. Allocates no more memory than the length of the data justifies.
    """
    view = memoryview(data).cast("B")
    magic = bytes(view[:4])
    if len(view) < _HEADER.size or magic not in (MAGIC, _MAGIC_LISTS):
        raise Corrupt(
            "not a page map", path=path, offset=offset, expected=MAGIC.decode(), got=repr(magic)
        )
    _, _, columns, groups, pages, rows, name_bytes, _ = _HEADER.unpack_from(view)
    chunks = columns * groups
    values_at = _HEADER.size + 20 * chunks + 12 * pages
    codecs_at = values_at + (4 * pages if magic == _MAGIC_LISTS else 0)
    expected = codecs_at + chunks + name_bytes
    if len(view) != expected:
        raise Corrupt(
            "a page map has the wrong length",
            path=path,
            offset=offset,
            expected=str(expected),
            got=str(len(view)),
        )
    start = np.frombuffer(view, "<u8", chunks, _HEADER.size).astype(np.int64)
    words = np.frombuffer(view, "<u4", 2 * (chunks + pages), _HEADER.size + 8 * chunks).astype(
        np.int64
    )
    dictionary, count, size, row = np.split(words, (chunks, 2 * chunks, 2 * chunks + pages))
    dictionary_digest, digest = np.split(
        np.frombuffer(view, "<u4", chunks + pages, _HEADER.size + 16 * chunks + 8 * pages),
        (chunks,),
    )
    values = None
    if magic == _MAGIC_LISTS:
        values = np.frombuffer(view, "<u4", pages, values_at).astype(np.int64)
    codec = np.frombuffer(view, np.uint8, chunks, codecs_at)
    try:
        names = _names(bytes(view[expected - name_bytes :]))
        if len(names) != columns or int(count.sum()) != pages or (chunks and int(count.min()) < 1):
            raise ValueError("its counts disagree")
        return PageMap(
            names,
            codec,
            rows,
            groups,
            start,
            dictionary,
            count,
            size,
            row,
            dictionary_digest,
            digest,
            values,
        ).check()
    except ValueError as error:
        raise Corrupt(f"a page map is damaged: {error}", path=path, offset=offset) from error


@memo(256)
def _names(data: bytes) -> tuple[str, ...]:
    """Return column names. Equal bytes give the same object, which makes comparisons fast."""
    if data:
        return tuple(data.decode().split(_SEPARATOR))
    return ()

"""Reads single rows: only the pages that contain them, for many segments and columns at once.

The selected pages are copied, column by column, into one Parquet file in memory under a new footer,
and pyarrow decodes that file. Pages without a dictionary share a chunk if they have the same codec,
even from different segments and with different encodings. Pages with a dictionary keep a chunk of
their own after that dictionary. Strings of many rows stay dictionary-encoded until the selected
rows are taken.

Everything is verified before it is decoded: the copied bytes, including headers and dictionaries,
must match the digests in the page map, and the footer is our own.

A nested column is read leaf by leaf, as if each leaf were its only one (:mod:`mdt.parquet.nested`),
because the pages of its leaves contain different rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mdt.errors import Corrupt
from mdt.parquet.decimals import as_decimals, as_stored
from mdt.parquet.digests import digests
from mdt.parquet.footer import MAGIC, Chunks, Leaf, footer, leaves
from mdt.parquet.nested import LeafColumn, assemble, leaf_columns
from mdt.parquet.page_map import (
    CODEC,
    DICTIONARY,
    DICTIONARY_DIGEST,
    DIGEST,
    OFFSET,
    ROW,
    ROWS,
    SIZE,
    START,
    VALUES,
    PageMap,
)
from mdt.session import memo
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.schema.older_files import Form

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PAGE_BYTES_MIN = 13
"""Minimum size of a page header."""
_ENCODED_GROUPS_MIN = 16
"""With fewer dictionary chunks, strings are decoded immediately. That is faster than a second
reader, which late decoding needs.
"""
_ENCODED_VALUES_MIN = 4_096
"""Average number of string values per dictionary chunk above which a nested column is decoded late.

parquet-cpp keeps dictionaries for only one chunk per call. Such a call costs as much as decoding
about 3,000 short strings.
"""
_GAP_BYTES_MAX = 64 << 10
"""Gaps up to this size between pages are read, too, because another request would take longer."""
_RANGE_BYTES = 64 << 20
"""Ranges are split near multiples of this size, to read long ranges with several concurrent
requests.
"""
_CODEC_BITS = 8
"""Page maps store codec numbers as bytes."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Selected rows of a segment.

    Attributes:
        path, offset, length: The file and the byte range of its Parquet data.
        parquet: That data, or None if the storage reads ranges.
        page_map: Page map of the segment.
        positions: Strictly ascending int64[n], n > 0.
        file: Number of the file in the snapshot, for callers that need the origin of rows.
        form: Conversion from the segment's columns to the requested columns, or None. All segments
            of one read share it.
    """

    path: str
    offset: int
    length: int
    parquet: pa.Buffer | None
    page_map: PageMap
    positions: Int64Array
    file: int = -1
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """The leaves of the requested columns.

    Attributes:
        leaves: The leaves.
        first: Number of each column's first leaf, followed by the number of leaves.
        schema: The leaves as columns, named by numbers.
        described: Their footer descriptions.
    """

    leaves: tuple[LeafColumn, ...]
    first: tuple[int, ...]
    schema: pa.Schema
    described: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class _Pages:
    """Distinct pages, ordered by leaf column, segment and row. Arrays have one item per page.

    Attributes:
        column: Number of the leaf in the request.
        segment: Number of the segment in the request.
        info: See :meth:`PageMap.info`.
        wanted: Number of selected rows in the page.
        order: Order in which the pages are copied: by column, pages without dictionary first, then
            by codec.
        start: Index of the page's first row among the decoded rows of its column, counted
            separately for pages with and without dictionary.
    """

    column: Int64Array
    segment: Int64Array
    info: Int64Array
    wanted: Int64Array
    order: Int64Array
    start: Int64Array


def read_pages(storage: Storage, selections: Sequence[RowSelection], schema: pa.Schema) -> pa.Table:
    """Return the columns ``schema`` of the selected rows, in the given order.

    All page maps must have the same columns, including those of ``schema``. Raises Corrupt if the
    bytes have changed since they were written.
    """
    request = _request(schema)
    pages = _select_pages(selections, _numbers(selections[0], request))
    before = _dictionaries(pages)
    end, groups = _footer(pages, before, request.described)
    data = _copy_pages(storage, selections, pages, before, end)
    position = np.concatenate([w.positions for w in selections])
    try:
        reader = _ColumnReader(data, groups, request, pages, position)
        # Sequential: two threads on two processors took as long for 20 to 3,000 rows, and 25 %
        # more CPU time.
        leaf_values = [reader.column(number) for number in range(len(request.leaves))]
        parts = [leaf_values[first:end] for first, end in pairwise(request.first)]
        columns = [
            assemble(type, part) for type, part in zip(as_stored(schema).types, parts, strict=True)
        ]
    except (pa.ArrowException, OSError, ValueError) as error:
        several = f" and {len(selections) - 1} others" if len(selections) > 1 else ""
        raise Corrupt(
            f"pages of a data file{several} cannot be read: {error}", path=selections[0].path
        ) from error
    converted = [
        as_decimals(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(converted, schema=schema)


@memo(64)
def _request(schema: pa.Schema) -> _Request:
    stored = as_stored(schema)
    stored_leaves = leaf_columns(stored)
    first = np.searchsorted([leaf.column for leaf in stored_leaves], np.arange(len(schema) + 1))
    chains = pa.schema(
        [leaf.chain.with_name(str(number)) for number, leaf in enumerate(stored_leaves)]
    )
    return _Request(stored_leaves, tuple(first.tolist()), chains, leaves(chains))


def _numbers(selection: RowSelection, request: _Request) -> Int64Array:
    """Return the numbers of the requested leaves in the page maps."""
    number_of = {path: number for number, path in enumerate(selection.page_map.columns)}
    try:
        return np.array([number_of[leaf.path] for leaf in request.leaves], dtype=np.int64)
    except KeyError as error:
        raise Corrupt(
            f"a page map lacks the column {error}", path=selection.path, offset=selection.offset
        ) from error


def _select_pages(selections: Sequence[RowSelection], numbers: Int64Array) -> _Pages:
    """Return the pages with selected rows of the columns ``numbers`` of the page maps."""
    touched = [w.page_map.pages_with(numbers, w.positions) for w in selections]
    column = np.concatenate([columns for _, columns, _ in touched])
    natural = np.argsort(column, kind="stable")
    column = column[natural]
    segment = np.repeat(np.arange(len(selections)), [len(pages) for pages, _, _ in touched])[
        natural
    ]
    info = np.concatenate(
        [w.page_map.info[pages] for w, (pages, _, _) in zip(selections, touched, strict=True)]
    )[natural]
    kind = 2 * column + (info[:, DICTIONARY] > 0)
    order = np.argsort(kind << _CODEC_BITS | info[:, CODEC], kind="stable")
    rows = info[order, ROWS]
    ends = np.cumsum(rows)
    first = np.flatnonzero(np.append(True, np.diff(kind[order]) > 0))
    ends -= np.repeat((ends - rows)[first], np.diff(np.append(first, len(order))))
    start = np.empty(len(order), dtype=np.int64)
    start[order] = ends - rows
    return _Pages(
        column,
        segment,
        info,
        np.concatenate([counts for _, _, counts in touched])[natural],
        order,
        start,
    )


def _dictionaries(pages: _Pages) -> Int64Array:
    """Return the bytes of dictionary before each copied page as int64[p], -1 within a chunk."""
    column, segment = pages.column[pages.order], pages.segment[pages.order]
    start, dictionary = pages.info[pages.order, START], pages.info[pages.order, DICTIONARY]
    codec = pages.info[pages.order, CODEC]
    continues = (
        (column[1:] == column[:-1])
        & (codec[1:] == codec[:-1])
        & ((dictionary[1:] > 0) == (dictionary[:-1] > 0))
    )
    continues &= (dictionary[1:] == 0) | ((segment[1:] == segment[:-1]) & (start[1:] == start[:-1]))
    return np.where(np.append(False, continues), -1, dictionary)


def _footer(
    pages: _Pages, before: Int64Array, columns: Sequence[Leaf]
) -> tuple[bytes, list[tuple[list[int], list[int]]]]:
    """Return the footer of the Parquet file of copied ``pages``, and the row groups of each column.

    The row groups of a column are two lists: without and with a dictionary.

    Args:
        before: Bytes of dictionary before each page, or -1 if the page continues a chunk.
    """
    info = pages.info[pages.order]
    sizes = info[:, SIZE] + np.maximum(before, 0)
    ends = len(MAGIC) + np.cumsum(sizes)
    first = np.flatnonzero(before >= 0)
    size = np.add.reduceat(sizes, first)
    rows, values = np.add.reduceat(info[:, ROWS], first), np.add.reduceat(info[:, VALUES], first)
    offset = (ends - sizes)[first]
    column = pages.column[pages.order][first]
    begins = np.searchsorted(column, np.arange(len(columns)))
    group = np.arange(len(column)) - begins[column]
    encoded: list[tuple[list[int], list[int]]] = [([], []) for _ in columns]
    for number, place, dictionary in zip(
        column.tolist(), group.tolist(), before[first].tolist(), strict=True
    ):
        encoded[number][dictionary > 0].append(place)
    return (
        footer(
            columns,
            Chunks(column, group, rows, values, offset, size, before[first], info[first, CODEC]),
        ),
        encoded,
    )


def _copy_pages(
    storage: Storage,
    selections: Sequence[RowSelection],
    pages: _Pages,
    before: Int64Array,
    end: bytes,
) -> pa.Buffer:
    """Return the Parquet file: magic, all pages with their dictionaries, and the footer ``end``.

    Copies each byte once. Raises Corrupt if a page or dictionary does not match its digest in the
    page map.
    """
    segment, info = pages.segment[pages.order], pages.info[pages.order]
    extra = before > 0
    at = np.arange(len(extra)) + np.cumsum(extra)
    pieces = len(extra) + int(extra.sum())
    table, digest = np.empty((pieces, 3), dtype=np.int64), np.empty(pieces, dtype=np.int64)
    table[at] = np.stack([segment, info[:, OFFSET], info[:, SIZE]], axis=1)
    table[at[extra] - 1] = np.stack([segment, info[:, START], before], axis=1)[extra]
    digest[at], digest[at[extra] - 1] = info[:, DIGEST], info[extra, DICTIONARY_DIGEST]
    invalid = (
        table[:, 1] + table[:, 2]
        > np.array([w.length for w in selections], dtype=np.int64)[table[:, 0]]
    )
    invalid |= table[:, 2] < _PAGE_BYTES_MIN
    if bool(invalid.any()):
        owner, offset, size = table[int(np.argmax(invalid))].tolist()
        raise Corrupt(
            f"a page map has an impossible page of {size} bytes",
            path=selections[owner].path,
            offset=offset,
        )
    owners, offsets = table[:, 0].copy(), table[:, 1].copy()
    sources = _sources(storage, selections, table)
    parts = [sources[n][start : start + size] for n, start, size in table.tolist()]
    file = pa.py_buffer(b"".join([MAGIC, *parts, end]))
    ends = len(MAGIC) + np.cumsum(table[:, 2])
    invalid = digests(file, (ends - table[:, 2]).tolist(), ends.tolist()) != digest
    if bool(invalid.any()):
        first = int(np.argmax(invalid))
        owner = selections[int(owners[first])]
        raise Corrupt(
            f"a page of {table[first, 2]} bytes is not as it was written",
            path=owner.path,
            offset=owner.offset + int(offsets[first]),
        )
    return file


def _sources(
    storage: Storage, selections: Sequence[RowSelection], table: Int64Array
) -> list[memoryview]:
    """Return buffers that contain the pieces ``table``: segment, offset and size, int64[p, 3].

    Pieces of segments without bytes in memory are read from storage. Their rows of ``table`` are
    updated to the number of their range and the offset in it.
    """
    sources = [memoryview(w.parquet or b"") for w in selections]
    is_far = np.array([w.parquet is None for w in selections], np.bool_)
    missing = np.flatnonzero(is_far[table[:, 0]])
    if not len(missing):
        return sources
    missing = missing[np.lexsort((table[missing, 1], table[missing, 0]))]
    segment, offset, size = table[missing].T
    is_distant = (segment[1:] != segment[:-1]) | (
        offset[1:] > (offset + size)[:-1] + _GAP_BYTES_MAX
    )
    begins = np.append(
        True, is_distant | (offset[1:] // _RANGE_BYTES != offset[:-1] // _RANGE_BYTES)
    )
    first = np.flatnonzero(begins)
    start, stop = offset[first], np.maximum.reduceat(offset + size, first)
    table[missing, 0] = len(sources) + np.cumsum(begins) - 1
    table[missing, 1] -= np.repeat(start, np.diff(np.append(first, len(missing))))
    ranges = zip(segment[first].tolist(), start.tolist(), stop.tolist(), strict=True)
    reads = (
        partial(storage.read, selections[s].path, selections[s].offset + begin, end - begin)
        for s, begin, end in ranges
    )
    return [*sources, *(memoryview(data) for data in storage.each(reads))]


class _ColumnReader:
    """Decodes the leaf columns of a file of copied pages.

    Args:
        position: Positions of the selected rows in their segments, int64[n].
    """

    def __init__(
        self,
        data: pa.Buffer,
        groups: Sequence[tuple[list[int], list[int]]],
        request: _Request,
        pages: _Pages,
        position: Int64Array,
    ) -> None:
        self._groups = groups
        self._request = request
        self._pages = pages
        self._rows = pages.info[:, ROWS]
        self._bounds = np.searchsorted(pages.column, np.arange(len(groups) + 1)).tolist()
        first = pages.start - pages.info[:, ROW]
        self._index = np.repeat(first, pages.wanted).reshape(len(groups), len(position)) + position
        self._plain = self._kept = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        self._encoded = frozenset(
            number for number in range(len(groups)) if self._stays_encoded(number)
        )
        if self._encoded:
            metadata = self._plain.metadata
            text = [".".join(request.described[number].path) for number in self._encoded]
            self._kept = pq.ParquetFile(
                pa.BufferReader(data), pre_buffer=False, read_dictionary=text, metadata=metadata
            )

    def column(self, number: int) -> pa.ChunkedArray:
        """Return the selected rows of one leaf column."""
        field, (without, with_) = self._request.schema.field(number), self._groups[number]
        pages = slice(self._bounds[number], self._bounds[number + 1])
        index, rows = self._index[number], self._rows[pages]
        if not with_:
            return _select_rows(
                _read(self._plain, field.name, [without]), field, index, int(rows.sum())
            )
        calls = [with_]
        if number in self._encoded and pa.types.is_nested(field.type):
            calls = [[group] for group in with_]
        encoded = _read(self._kept, field.name, calls)
        if not without:
            return _select_rows(encoded, field, index, int(rows.sum()))
        flags = self._pages.info[pages, DICTIONARY] > 0
        flag = np.repeat(flags, self._pages.wanted[pages])
        plain = _read(self._plain, field.name, [without])
        plain_rows = _select_rows(plain, field, index[~flag], int(rows[~flags].sum()))
        dictionary_rows = _select_rows(encoded, field, index[flag], int(rows[flags].sum()))
        return _merge_rows(plain_rows, dictionary_rows, flag)

    def _stays_encoded(self, number: int) -> bool:
        """Return True if strings with dictionaries are decoded after the selected rows are
        taken.
        """
        leaf, (_, with_) = self._request.leaves[number], self._groups[number]
        if not with_ or not (pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type)):
            return False
        if not pa.types.is_nested(leaf.chain.type):
            return len(with_) >= _ENCODED_GROUPS_MIN
        info = self._pages.info[self._bounds[number] : self._bounds[number + 1]]
        return int(info[info[:, DICTIONARY] > 0, VALUES].sum()) >= _ENCODED_VALUES_MIN * len(with_)


def _read(file: pq.ParquetFile, name: str, calls: Sequence[list[int]]) -> pa.ChunkedArray:
    """Return a column of the row groups in ``calls``, reading the groups of each call together."""
    parts = [file.read_row_groups(groups, [name], use_threads=False).column(0) for groups in calls]
    if len(parts) == 1:
        return parts[0]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks])


def _select_rows(
    column: pa.ChunkedArray, field: pa.Field, index: Int64Array, expected: int
) -> pa.ChunkedArray:
    """Return the rows ``index``, each once, of a column that must have ``expected`` rows."""
    if len(column) != expected:
        raise ValueError(f"{len(column)} values instead of {expected}")
    if len(index) == 1:
        selected = column.slice(int(index[0]), 1)
    else:  # index is ascending within a chunk, so a full selection is the column itself
        selected = column if len(index) == expected else column.take(pa.array(index))
    if selected.type == field.type:
        return selected
    return selected.cast(field.type)


def _merge_rows(
    plain_rows: pa.ChunkedArray, dictionary_rows: pa.ChunkedArray, is_dictionary: BoolArray
) -> pa.ChunkedArray:
    """Return the rows of two parts in their original order.

    Args:
        is_dictionary: Mask of the rows that come from ``dictionary_rows``.
    """
    order = np.empty(len(is_dictionary), dtype=np.int64)
    order[np.argsort(is_dictionary, kind="stable")] = np.arange(len(is_dictionary))
    return pa.chunked_array([*plain_rows.chunks, *dictionary_rows.chunks], plain_rows.type).take(
        pa.array(order)
    )

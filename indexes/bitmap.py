"""The bitmap index: the positions of each value in a segment.

A segment's distinct values are stored in a sorted dictionary (``indexes.dictionary``). The rank of
a value is its code. The positions have two possible forms, chosen by size:

- *values*: a roaring bitmap for each value, for at most 256 values. If a value is in at least half
  of the rows, its bitmap is omitted and derived from the others.
- *slices*: a roaring bitmap for each bit of the codes (``indexes.bit_slices``). The cost of ``=``
  and of ranges is about the same, for any number of values.

Measured on 5,000,000 rows in 64 segments with one thread. Times are in microseconds per segment,
values / slices:

==============================  ==============  ==============  ==========  ==========
column                          MB, values      MB, slices      ``=``       in, range
==============================  ==============  ==============  ==========  ==========
8 values, skewed                2.6             2.2             15 / 48     30 / 68
100 texts, uniform              10.2            4.4             15 / 85     195 / 130
100 integers, uniform           10.2            4.4             16 / 90     220 / 160
40,000 doubles, uniform         -               10.5            - / 165     - / 200
100,000 texts, uniform          -               13.6            - / 135     - / 270
==============================  ==============  ==============  ==========  ==========

A uniform column takes 16 bits per row as values, and one bit per row for each bit of its codes as
slices. So slices are smaller from about 8 values on. Skewed or clustered values move that point up.
The decision is therefore based on bytes, with a bonus for the values form.

Integers need no separate form: 256 consecutive integers take about 20 bytes in the dictionary.
Nulls have their own bitmap. Each bitmap and each dictionary block is a block (``indexes.blocks``)
that is read and verified separately. For example, ``age = 21`` reads a dictionary block, and a
bitmap or the slices. Results are exact, with one exception: LIKE with an inner wildcard returns a
superset if more than 1,024 values share its literal prefix.

Blocks: 0 is the header (form uint8, rows, nulls, distinct values uint32, code of the omitted value
or -1 int32; little-endian). Then the dictionary, the nulls if there are any, and the bitmaps by
code (empty for the omitted value) or the slices, highest first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes import bit_slices, dictionary
from indexes import values as order
from indexes.arrays import spans, stable_order
from indexes.base import BoolArray, Int64Array, SkippingIndex, Summary
from indexes.bit_slices import Range
from indexes.blocks import Blocks, pack
from indexes.dictionary import Dictionary
from indexes.key_ranges import OPS, KeyRanges
from indexes.positions import CONTAINER_ROWS, from_positions, to_bitmap
from indexes.predicate import Leaf

Form = Literal["values", "slices"]
"""Storage form of positions."""

VALUES_MAX = 256
"""Maximum number of values with a bitmap each. A range over them unites up to half of the
bitmaps.
"""

VALUES_BYTES_RATIO = 1.25
"""Choose the values form up to this multiple of the size of slices, because its ``=`` is three
times faster.
"""

KEYS_TESTED_MAX = 1024
"""Maximum number of dictionary values decoded for a test of each value. Equals 4 blocks."""

_KIND = b"bitmap/1"
_HEADER = struct.Struct("<BIIIi")
_FORMS: tuple[Form, ...] = ("values", "slices")
_NONE = -1

Codes = npt.NDArray[np.unsignedinteger[Any]]


class BitmapIndex(SkippingIndex):
    """Bitmaps of the positions of each value. The format is in the module docstring."""

    name: ClassVar[str] = "bitmap/1"
    finds_rows: ClassVar[bool] = True

    form: ClassVar[Form | None] = None
    """Form to use, or None for the smaller form. Subclasses may fix the form."""

    def supports(self, type: pa.DataType) -> bool:
        """Return True if columns of ``type`` can be summarized. O(1)."""
        return order.supports(type)

    def summarize(self, values: pa.Array) -> bytes:
        """Return the summary of a segment's column [rows].

        O(rows x bits + distinct values x log).
        """
        values = order.plain(values)
        width = order.key_width(values.type)
        keys, codes = _encode_values(values.drop_null(), width)
        positions, nulls = None, list[bytes]()
        if values.null_count:
            positions = np.flatnonzero(np.asarray(values.is_valid()))
            null_rows = np.flatnonzero(np.asarray(values.is_null()))
            nulls = [from_positions(null_rows.astype(np.uint32))]
        form, omitted, bitmaps = _bitmaps(codes, len(keys), positions, len(values), self.form)
        header = _HEADER.pack(
            _FORMS.index(form), len(values), values.null_count, len(keys), omitted
        )
        return pack([header, *dictionary.pack(keys, width), *nulls, *bitmaps], kind=_KIND)

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        """Return True if ``leaf`` can be expressed as ranges of values. O(1)."""
        return leaf.op in OPS

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        """Return MAYBE or NO for each of n summaries -> bool[n], without reading bitmaps.

        Raises ValueError like :meth:`rows`.
        """
        if leaf.op not in OPS:
            return np.ones(len(summaries), np.bool_)
        ranges = KeyRanges.from_leaf(leaf, type)
        verdict = [
            summary.nulls > 0 if ranges.nulls else bool(summary.codes([ranges]))
            for summary in _open_readers(summaries, type)
        ]
        return np.array(verdict, dtype=np.bool_)

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        """Return the matching positions for each of n summaries.

        Raises ValueError for damaged or foreign bytes, and for a literal that cannot be compared
        with ``type``.

        >>> from indexes.base import InMemory
        >>> status = InMemory(BitmapIndex().summarize(pa.array(["paid", "lost", None, "paid"])))
        >>> BitmapIndex().rows([status], Leaf("status", "=", "paid"), pa.string())
        [BitMap([0, 3])]
        >>> BitmapIndex().rows([status], Leaf("status", "<", "o"), pa.string())
        [BitMap([1])]
        >>> BitmapIndex().rows([status], Leaf("status", "is null"), pa.string())
        [BitMap([2])]
        """
        return self.rows_within(summaries, [leaf], type, [None] * len(summaries))

    def rows_within(
        self,
        summaries: Sequence[Summary],
        tests: Sequence[Leaf],
        type: pa.DataType,
        within: Sequence[BitMap | None],
    ) -> list[BitMap | None]:
        """Return the positions that match all ``tests``.

        Ranges are intersected before any bitmap is read. Slices are restricted to the positions in
        ``within``.
        """
        if any(leaf.op not in OPS for leaf in tests):
            return [None] * len(summaries)
        ranges = [KeyRanges.from_leaf(leaf, type) for leaf in tests]
        nulls = [test_ranges.nulls for test_ranges in ranges]
        readers = _open_readers(summaries, type)
        if not any(nulls):
            return [
                summary.select(ranges, among)
                for summary, among in zip(readers, within, strict=True)
            ]
        if all(nulls):
            return [summary.null_rows() for summary in readers]
        return [BitMap() for _ in readers]


def _open_readers(summaries: Sequence[Summary], type: pa.DataType) -> Iterator[_Reader]:
    width = order.key_width(type)
    parsed: dict[Any, Any] = {}
    for summary in summaries:
        reader = summary.keep(partial(_Reader.open, summary, width, parsed))
        reader.share(parsed)
        yield reader


@dataclass(slots=True)
class _Reader:
    """A summary with its header and dictionary index loaded.

    ``parsed`` caches decoded blocks and test results for all summaries of a call.
    """

    blocks: Blocks
    form: Form
    rows: int
    nulls: int
    distinct: int
    omitted: int
    dictionary: Dictionary
    first: int
    parsed: dict[Any, Any]
    slices: list[BitMap] | None = None

    @classmethod
    def open(cls, summary: Summary, width: int | None, parsed: dict[Any, Any]) -> _Reader:
        blocks = Blocks.open(summary, _KIND)
        header = blocks.read(0)
        if len(header) != _HEADER.size:
            raise ValueError(
                f"the header of a bitmap summary must have {_HEADER.size} bytes, got {len(header)}"
            )
        form, rows, nulls, distinct, omitted = _HEADER.unpack(header)
        keys = Dictionary.open(blocks, 1, width, parsed)
        first = 1 + keys.blocks_used + (nulls > 0)
        bitmaps = distinct if form == 0 else bit_slices.slice_count(distinct)
        if form >= len(_FORMS) or keys.count != distinct or first + bitmaps != blocks.count:
            raise ValueError(
                f"a bitmap summary with {distinct} values and {blocks.count} blocks is inconsistent"
            )
        if nulls > rows or distinct > rows - nulls or not _NONE <= omitted < distinct:
            raise ValueError(
                f"a bitmap summary with {distinct} values and {nulls} nulls in {rows} rows is"
                " inconsistent"
            )
        return cls(blocks, _FORMS[form], rows, nulls, distinct, omitted, keys, first, parsed)

    def share(self, parsed: dict[Any, Any]) -> None:
        """Set the cache for the next call."""
        self.parsed = parsed
        self.dictionary.share(parsed)

    def codes(self, key_ranges: Sequence[KeyRanges]) -> list[Range]:
        """Return the codes in all of ``key_ranges`` as sorted, disjoint, nonempty ranges."""
        return reduce(_intersect_ranges, map(self._codes, key_ranges))

    def _codes(self, key_ranges: KeyRanges) -> list[Range]:
        ranks = [*self.dictionary.ranks(key_ranges.bounds), self.distinct]
        ranges = [
            (ranks[start], ranks[stop])
            for start, stop in key_ranges.spans
            if ranks[start] < ranks[stop]
        ]
        if key_ranges.test is None or sum(stop - start for start, stop in ranges) > KEYS_TESTED_MAX:
            return ranges
        codes = [code for start, stop in ranges for code in range(start, stop)]
        keys = tuple(key for start, stop in ranges for key in self.dictionary.keys(start, stop))
        place = key_ranges.test, keys
        mask = self.parsed.get(place)
        if mask is None:
            mask = self.parsed[place] = key_ranges.test(keys)
        return _to_ranges(np.array(codes, np.int64)[mask])

    def select(self, key_ranges: Sequence[KeyRanges], within: BitMap | None) -> BitMap:
        ranges = self.codes(key_ranges)
        if not ranges:
            return BitMap()
        if ranges == [(0, self.distinct)]:
            return self.present()
        if self.form == "slices":
            rows = self._rows_from_slices(ranges, within)
        else:
            rows = self._rows_from_values(ranges)
        if rows and rows.max() >= self.rows:
            raise ValueError(f"a bitmap of {self.rows} rows contains position {rows.max()}")
        return rows

    def present(self) -> BitMap:
        """Return the positions that are not null."""
        return BitMap(range(self.rows)) - self.null_rows()

    def null_rows(self) -> BitMap:
        if not self.nulls:
            return BitMap()
        rows = to_bitmap(self.blocks.read(self.first - 1))
        if len(rows) != self.nulls or rows.max() >= self.rows:
            raise ValueError(
                f"a bitmap of {self.nulls} nulls in {self.rows} rows contains {len(rows)}"
            )
        return rows

    def _rows_from_slices(self, ranges: list[Range], within: BitMap | None) -> BitMap:
        if self.slices is None:
            self.slices = [
                to_bitmap(data) for data in self.blocks.read_range(self.first, self.blocks.count)
            ]
        if within is None:
            rows = self.present()
        else:
            rows = within - self.null_rows()
        return bit_slices.select(self.slices, ranges, rows)

    def _rows_from_values(self, ranges: list[Range]) -> BitMap:
        """Unite the bitmaps of the ranges. If the omitted value is among them, subtract the other
        bitmaps.
        """
        if self.omitted != _NONE and any(start <= self.omitted < stop for start, stop in ranges):
            bounds = [0, *(edge for span in ranges for edge in span), self.distinct]
            complement = list(zip(bounds[::2], bounds[1::2], strict=True))
            return self.present() - self._union(complement)
        return self._union(ranges)

    def _union(self, ranges: list[Range]) -> BitMap:
        data = [block for start, stop in ranges for block in self._bitmaps(start, stop)]
        if len(data) == 1:
            return to_bitmap(data[0])
        return BitMap.union(BitMap(), *map(to_bitmap, data))

    def _bitmaps(self, start: int, stop: int) -> list[memoryview]:
        if start < stop:
            return self.blocks.read_range(self.first + start, self.first + stop)
        return []


def _intersect_ranges(left: list[Range], right: list[Range]) -> list[Range]:
    """Return the intersection of two lists of sorted, disjoint ranges. O(ranges)."""
    result = []
    first = 0
    for start, stop in left:
        while first < len(right) and right[first][1] <= start:
            first += 1
        current = first
        while current < len(right) and right[current][0] < stop:
            result.append((max(start, right[current][0]), min(stop, right[current][1])))
            current += 1
    return result


def _to_ranges(codes: Int64Array) -> list[Range]:
    """Return sorted codes as ranges."""
    breaks = np.flatnonzero(np.diff(codes) != 1)
    if not len(codes):
        return []
    starts, stops = codes[np.r_[0, breaks + 1]], codes[np.r_[breaks, -1]] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _encode_values(values: pa.Array, width: int | None) -> tuple[Any, Codes]:
    """Return the sorted distinct keys, as ``dictionary.pack`` takes them, and the code of each of n
    values.

    ``values``: Array [n] without nulls.
    """
    encoded = values.dictionary_encode()
    at = np.asarray(encoded.indices)
    keys = order.encode(encoded.dictionary)
    if width == 8:
        words, rank = _rank_words(dictionary.to_words(keys))
        return words, rank[at]
    sorting = np.asarray(pc.array_sort_indices(keys))
    rank = np.empty(len(keys), _code_type(len(keys)))
    rank[sorting] = np.arange(len(keys), dtype=rank.dtype)
    return keys.take(pa.array(sorting)), rank[at]


def _rank_words(words: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Codes]:
    """Return the sorted distinct words and the rank of each word.

    Different values may share a key, such as 0.0 and -0.0.
    """
    sorting = stable_order(words)
    ordered = words[sorting]
    new = np.ones(len(words), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    rank = np.empty(len(words), _code_type(len(words)))
    rank[sorting] = np.cumsum(new) - 1
    return ordered[new], rank


def _code_type(count: int) -> Any:
    """Return the narrowest type for ``count`` codes."""
    if count <= 1 << 8:
        return np.uint8
    if count <= 1 << 16:
        return np.uint16
    return np.uint32


def _bitmaps(
    codes: Codes, distinct: int, at: Int64Array | None, rows: int, form: Form | None
) -> tuple[Form, int, list[bytes]]:
    """Return the form, the omitted code or -1, and the bitmaps.

    ``at``: The position of each code, or None if every row has a code.
    """
    if form is None and distinct > VALUES_MAX:
        form = "slices"
    if form == "slices":
        return form, _NONE, bit_slices.pack(_codes_by_row(codes, at, rows), distinct)
    counts, omitted = np.bincount(codes, minlength=distinct), _NONE
    if distinct and 2 * int(counts.max()) >= rows:
        omitted = int(counts.argmax())
    if form is None:
        slices = bit_slices.pack(_codes_by_row(codes, at, rows), distinct)
        values_bytes = _estimate_bytes(codes, distinct, omitted, counts)
        if sum(map(len, slices)) < values_bytes / VALUES_BYTES_RATIO:
            return "slices", _NONE, slices
    positions = stable_order(codes).astype(np.uint32)
    if at is not None:
        positions = at[positions].astype(np.uint32)
    parts = np.split(positions, np.cumsum(counts)[:-1])
    bitmaps = [from_positions(part) for part in parts[:distinct]]
    if omitted != _NONE:
        bitmaps[omitted] = b""
    return "values", omitted, bitmaps


def _codes_by_row(codes: Codes, at: Int64Array | None, rows: int) -> Codes:
    """Return the code of each row, 0 for nulls."""
    if at is None:
        return codes
    spread = np.zeros(rows, codes.dtype)
    spread[at] = codes
    return spread


def _estimate_bytes(
    codes: Codes, distinct: int, omitted: int, counts: npt.NDArray[np.int64]
) -> int:
    """Estimate the bytes of a bitmap for each value: roaring containers without headers."""
    total = 0
    for span in spans(len(codes), CONTAINER_ROWS):
        part = codes[span]
        inside = np.bincount(part, minlength=distinct)
        runs = np.bincount(part[np.r_[True, part[1:] != part[:-1]]], minlength=distinct)
        size = np.minimum(np.minimum(2 * inside, -(-len(part) // 8)), 4 * runs + 2 * (runs > 0))
        total += int(size.sum()) - (int(size[omitted]) if omitted != _NONE else 0)
    return total + 24 * distinct

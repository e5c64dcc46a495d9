"""Bitmap indexes that are wrong in one way each: the conformance suite must kill them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from indexes import bit_slices, bitmap, dictionary, key_ranges
from indexes.base import BoolArray, SkippingIndex, Summary
from indexes.bitmap import BitmapIndex
from indexes.dictionary import BLOCK_KEYS, Bounds, Dictionary
from indexes.key_ranges import KeyRanges
from indexes.predicate import Leaf
from indexes.testing import SkippingIndexConformance, first_failure


class Wrong(BitmapIndex):
    """A bitmap index for which a function or method called ``name`` of ``place`` is another."""

    def __init__(self, place: Any, name: str, other: Callable[..., Any], form: Any = None) -> None:
        self._patch = (place, name, other)
        self.form = form

    def summarize(self, values: pa.Array) -> bytes:
        with patch.object(*self._patch):
            return super().summarize(values)

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> BoolArray:
        with patch.object(*self._patch):
            return super().prune(summaries, leaf, type)

    def rows(
        self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType
    ) -> list[BitMap | None]:
        with patch.object(*self._patch):
            return super().rows(summaries, leaf, type)


Opened = bitmap._Opened
REAL_RANKS, REAL_JOINED, REAL_OF = Dictionary.ranks, Opened._joined, KeyRanges.of
REAL_SELECT, REAL_PACK, REAL_BLOCK = bit_slices.select, bit_slices.pack, dictionary._unpack_words


def ranks_too_high(self: Dictionary, bounds: Bounds) -> list[int]:
    return [min(rank + 1, self.count) for rank in REAL_RANKS(self, bounds)]


def ranks_within_the_block(self: Dictionary, bounds: Bounds) -> list[int]:
    return [rank % BLOCK_KEYS for rank in REAL_RANKS(self, bounds)]


def lowest_bit_first(
    slices: Sequence[Any], ranges: Sequence[tuple[int, int]], present: BitMap
) -> BitMap:
    return REAL_SELECT(list(slices)[::-1], ranges, present)


def first_range_only(
    slices: Sequence[Any], ranges: Sequence[tuple[int, int]], present: BitMap
) -> BitMap:
    return REAL_SELECT(slices, ranges[:1], present)


def one_bit_too_few(codes: Any, count: int) -> list[bytes]:
    slices = REAL_PACK(codes, count)
    return (
        [*slices[:-1], b"" if not slices else REAL_PACK(np.zeros_like(codes), 2)[0]]
        if slices
        else slices
    )


def without_nulls(codes: Any, at: Any, rows: int) -> Any:
    return np.concatenate([codes, np.zeros(rows - len(codes), codes.dtype)])


def left_out_is_absent(self: Any, ranges: list[tuple[int, int]]) -> BitMap:
    codes = [c for start, stop in ranges for c in range(start, stop) if c != self.left_out]
    return REAL_JOINED(self, [(code, code + 1) for code in codes])


def no_key_after(key: bytes, width: int | None) -> bytes:
    return key


def steps_without_shift(data: bytes, first: Any, count: int) -> Any:
    return REAL_BLOCK(b"\0" + data[1:], first, count)


def shift_of(leaf: Leaf, type: pa.DataType, change: Callable[[KeyRanges], KeyRanges]) -> KeyRanges:
    return change(REAL_OF(leaf, type))


def null_is_a_value(leaf: Leaf, type: pa.DataType) -> KeyRanges:
    return shift_of(leaf, type, lambda found: replace(found, nulls=False))


def open_ends_are_forgotten(leaf: Leaf, type: pa.DataType) -> KeyRanges:
    return shift_of(
        leaf, type, lambda found: replace(found, spans=tuple(s for s in found.spans if s[1] != -1))
    )


def like_finds_nothing(leaf: Leaf, type: pa.DataType) -> KeyRanges:
    found = REAL_OF(leaf, type)
    return (
        found
        if found.test is None
        else replace(found, test=lambda keys: np.zeros(len(keys), np.bool_))
    )


def no_rows_are_null(self: Any) -> BitMap:
    return BitMap()


MUTANTS: dict[str, SkippingIndex] = {
    "ranks_too_high": Wrong(Dictionary, "ranks", ranks_too_high),
    "ranks_within_the_block": Wrong(Dictionary, "ranks", ranks_within_the_block),
    "lowest_bit_first": Wrong(bit_slices, "select", lowest_bit_first, "slices"),
    "first_range_only": Wrong(bit_slices, "select", first_range_only, "slices"),
    "one_bit_too_few": Wrong(bit_slices, "pack", one_bit_too_few, "slices"),
    "codes_ignore_nulls": Wrong(bitmap, "_spread", without_nulls, "slices"),
    "left_out_is_absent": Wrong(Opened, "_of_values", left_out_is_absent, "values"),
    "no_key_after": Wrong(key_ranges, "_after", no_key_after),
    "steps_without_shift": Wrong(dictionary, "_unpack_words", steps_without_shift),
    "null_is_a_value": Wrong(KeyRanges, "of", null_is_a_value),
    "open_ends_are_forgotten": Wrong(KeyRanges, "of", open_ends_are_forgotten),
    "like_finds_nothing": Wrong(KeyRanges, "of", like_finds_nothing),
    "no_rows_are_null": Wrong(Opened, "rows_of_nulls", no_rows_are_null),
}
"""Wrong indexes by name of the mistake."""


KNOWN = dict.fromkeys(
    ("ranks_within_the_block", "codes_ignore_nulls"), "test_many_distinct_values_lose_no_row"
)
"""Mistakes that corner values do not show -> the test that finds them."""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_kills_this_mutant(name: str) -> None:
    class Suite(SkippingIndexConformance):
        index = MUTANTS[name]

    assert first_failure(Suite, known=KNOWN.get(name)) == KNOWN.get(
        name, "test_a_no_is_a_proof_on_every_corner_value"
    )

"""The bitmap index finds exactly the rows that match, whatever the form, and reads only what a test
needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap
from recording import Recording

from indexes import registry
from indexes.base import InMemory
from indexes.bitmap import KEYS_TESTED_MAX, BitmapIndex
from indexes.blocks import Blocks
from indexes.predicate import Leaf, matches
from indexes.testing import SkippingIndexConformance, columns, leaves_for, literals, scalar_types

KIND = b"bitmap/1"
ROWS = 78_125
AGES = pa.array([21, 1, 40, 0, 33, 1, 2])


class Values(BitmapIndex):
    """A bitmap for each value, always."""

    form = "values"


class Slices(BitmapIndex):
    """Slices, always."""

    form = "slices"


FORMS = pytest.mark.parametrize(
    "index", [BitmapIndex(), Values(), Slices()], ids=["smaller", "values", "slices"]
)


class TestBitmap(SkippingIndexConformance):
    """The suite that every skipping index passes."""

    index = BitmapIndex()


def rows_of(index: BitmapIndex, column: Any, op: str, value: object = None) -> list[int]:
    (found,) = index.rows([InMemory(index.summarize(column))], Leaf("c", op, value), column.type)
    assert found is not None
    return list(found)


def form_of(summary: bytes) -> str:
    return ("values", "slices")[Blocks.open(InMemory(summary), KIND).read(0)[0]]


def uniform(distinct: int, rows: int = ROWS) -> Any:
    return pa.array(np.random.default_rng(distinct).integers(0, distinct, rows))


@FORMS
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_rows_are_exactly_those_that_match(index: BitmapIndex, data: st.DataObject) -> None:
    type = data.draw(scalar_types())
    column = data.draw(columns(type, max_size=30))
    seen = [value for value in column.to_pylist() if value is not None]
    source = st.sampled_from(seen) | literals(type) if seen else literals(type)
    leaf = data.draw(
        st.sampled_from(leaves_for("c", type, data.draw(st.lists(source, min_size=1, max_size=4))))
    )
    expected = np.flatnonzero(matches(leaf, pa.table({"c": column})).to_numpy())
    summary = InMemory(index.summarize(column))
    (found,) = index.rows([summary], leaf, type)
    assert (
        found is None if not index.can_test(leaf, type) else list(found or ()) == expected.tolist()
    )
    assert bool(index.prune([summary], leaf, type)[0]) == (found is None or len(expected) > 0)


@FORMS
def test_age_21_is_answered_with_row_0_only(index: BitmapIndex) -> None:
    assert rows_of(index, AGES, "=", 21) == [0]


@FORMS
def test_age_20_skips_the_segment(index: BitmapIndex) -> None:
    assert rows_of(index, AGES, "=", 20) == []
    assert not index.prune([InMemory(index.summarize(AGES))], Leaf("c", "=", 20), AGES.type)[0]


@FORMS
def test_age_above_1_leaves_out_0_and_1(index: BitmapIndex) -> None:
    assert rows_of(index, AGES, ">", 1) == [0, 2, 4, 6]


def test_many_segments_are_answered_in_one_call() -> None:
    index = BitmapIndex()
    summaries = [
        InMemory(index.summarize(pa.array([1, 2]))),
        InMemory(index.summarize(pa.array([3, 2, 2]))),
    ]
    assert index.rows(summaries, Leaf("c", "=", 2), pa.int64()) == [BitMap([1]), BitMap([1, 2])]


def test_the_caller_may_change_what_it_gets() -> None:
    index = BitmapIndex()
    summary = InMemory(index.summarize(pa.array([1, 1, None])))
    for op in ("=", "is not null", "<"):
        (found,) = index.rows([summary], Leaf("c", op, 1), pa.int64())
        assert found is not None
        found.add(2)
    assert list(index.rows([summary], Leaf("c", "=", 1), pa.int64())[0] or ()) == [0, 1]


@FORMS
@pytest.mark.parametrize(
    "values", [[], [None], [None, None, None], [math.nan], [math.nan, None, math.nan]]
)
def test_segments_without_rows_values_or_numbers_are_answered(
    index: BitmapIndex, values: list[Any]
) -> None:
    column = pa.array(values, pa.float64())
    nans = [row for row, value in enumerate(values) if value is not None]
    assert rows_of(index, column, "=", math.nan) == rows_of(index, column, ">", 1e300) == nans
    assert rows_of(index, column, "<", math.nan) == rows_of(index, column, "=", 0.0) == []
    assert rows_of(index, column, "is null") == [
        row for row, value in enumerate(values) if value is None
    ]


@FORMS
def test_zeros_are_equal_and_nan_is_above_all(index: BitmapIndex) -> None:
    column = pa.array([0.0, math.nan, -0.0, math.inf, None])
    assert rows_of(index, column, "=", -0.0) == rows_of(index, column, "=", 0.0) == [0, 2]
    assert rows_of(index, column, ">=", math.inf) == [1, 3]
    assert rows_of(index, column, "!=", 0.0) == [1, 3]


@FORMS
@pytest.mark.parametrize("distinct", [1, 2, 5, 100, 256])
def test_forms_agree_on_large_segments(index: BitmapIndex, distinct: int) -> None:
    column = uniform(distinct)
    numbers = np.asarray(column)
    for op, value, wanted in (
        ("=", 1, numbers == 1),
        (">", 1, numbers > 1),
        ("!=", 0, numbers != 0),
        ("in", (0, 2, 77), np.isin(numbers, (0, 2, 77))),
        ("not in", (0, 2), ~np.isin(numbers, (0, 2))),
    ):
        assert rows_of(index, column, op, value) == np.flatnonzero(wanted).tolist()


def test_sets_of_many_literals_are_exact() -> None:
    column, wanted = uniform(30_000), tuple(range(0, 30_000, 11))
    assert (
        rows_of(BitmapIndex(), column, "in", wanted)
        == np.flatnonzero(np.isin(column, wanted)).tolist()
    )


def test_a_widened_column_keeps_its_summary() -> None:
    summary = InMemory(BitmapIndex().summarize(pa.array([1, 5, None], pa.int32())))
    assert list(BitmapIndex().rows([summary], Leaf("c", ">", 2), pa.int64())[0] or ()) == [1]


def test_like_over_many_values_is_exact_within_its_prefix_and_a_superset_beyond() -> None:
    numbers = np.arange(20_000)
    column = pa.array([f"name {number}" for number in numbers.tolist()])
    assert rows_of(BitmapIndex(), column, "like", "name 123%5") == [
        n for n in numbers.tolist() if str(n).startswith("123") and str(n).endswith("5")
    ]
    assert len(rows_of(BitmapIndex(), column, "like", "name %5")) == 20_000 > KEYS_TESTED_MAX


def test_few_or_skewed_values_have_bitmaps_and_many_have_slices() -> None:
    skewed = pa.array(np.minimum(np.random.default_rng(1).geometric(0.6, ROWS), 8))
    for column, form in (
        (skewed, "values"),
        (uniform(2), "values"),
        (uniform(100), "slices"),
        (uniform(999), "slices"),
    ):
        assert form_of(BitmapIndex().summarize(column)) == form


def test_a_summary_takes_no_more_than_the_bits_of_its_codes() -> None:
    assert len(BitmapIndex().summarize(uniform(100))) < 7.05 * ROWS / 8
    assert len(BitmapIndex().summarize(pa.array(np.repeat(np.arange(200), 400)))) < 8_000


def read_by(index: BitmapIndex, column: Any, op: str, value: object) -> int:
    summary = Recording(index.summarize(column))
    index.rows([summary], Leaf("c", op, value), column.type)
    return summary.bytes_read


def test_one_value_is_read_without_the_others() -> None:
    column = uniform(100)
    size = len(Values().summarize(column))
    assert size > 100_000 and read_by(Values(), column, "=", 50) < 4096 + size // 80


def test_a_value_that_is_not_there_costs_no_bitmap() -> None:
    assert read_by(BitmapIndex(), uniform(100), "=", 200) == 4096


def test_pruning_reads_no_bitmap() -> None:
    summary = Recording(BitmapIndex().summarize(uniform(100)))
    assert BitmapIndex().prune([summary], Leaf("c", ">", 3), pa.int64())[0]
    assert summary.bytes_read == 4096


def test_slices_are_one_read() -> None:
    summary = Recording(BitmapIndex().summarize(uniform(100)))
    BitmapIndex().rows([summary], Leaf("c", ">", 3), pa.int64())
    assert len(summary.reads) == 2


def damaged(summary: bytes, block: int) -> InMemory:
    """Return the summary with the last bit of a block flipped."""
    blocks = Blocks.open(InMemory(summary), KIND)
    end = len(summary) - sum(blocks.length(later) for later in range(block + 1, blocks.count))
    return InMemory(summary[: end - 1] + bytes([summary[end - 1] ^ 1]) + summary[end:])


def test_a_damaged_bitmap_is_refused_and_the_other_values_are_found() -> None:
    column = pa.array(["a", "b", None, "c", "b", "d"])
    # header, two of the dictionary, nulls, then a and b
    summary = damaged(Values().summarize(column), 5)
    for value, rows in (("a", [0]), ("c", [3]), ("d", [5])):
        assert list(Values().rows([summary], Leaf("c", "=", value), pa.string())[0] or ()) == rows
    with pytest.raises(ValueError, match="damaged"):
        Values().rows([summary], Leaf("c", "=", "b"), pa.string())
    assert list(Values().rows([summary], Leaf("c", "is null"), pa.string())[0] or ()) == [2]


@FORMS
def test_every_damaged_block_is_refused_by_the_tests_that_read_it(index: BitmapIndex) -> None:
    column = pa.array([1, 2, None, 3, 4, 1])
    good = index.summarize(column)
    count = Blocks.open(InMemory(good), KIND).count
    tests: Sequence[Leaf] = [
        Leaf("c", "is null"),
        *(Leaf("c", "=", value) for value in (1, 2, 3, 4)),
    ]
    for block in (
        block for block in range(count) if Blocks.open(InMemory(good), KIND).length(block)
    ):
        failed = 0
        for leaf in tests:
            try:
                index.rows([damaged(good, block)], leaf, pa.int64())
            except ValueError:
                failed += 1
        assert failed, f"block {block} was not read by any test"


def test_a_summary_of_another_type_of_keys_is_refused() -> None:
    summary = InMemory(BitmapIndex().summarize(pa.array(["a", "b"])))
    with pytest.raises(ValueError):
        BitmapIndex().rows([summary], Leaf("c", "=", 1), pa.int64())


def test_a_literal_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="literal"):
        BitmapIndex().rows([], Leaf("c", "=", "a"), pa.int64())


def test_operators_that_ask_for_no_values_are_left_to_other_indexes() -> None:
    leaf = Leaf("c", "match", "a b")
    summary = InMemory(BitmapIndex().summarize(pa.array(["a b", "c"])))
    assert not BitmapIndex().can_test(leaf, pa.string()) and BitmapIndex().can_test(
        Leaf("c", "=", "a"), pa.string()
    )
    assert BitmapIndex().rows([summary], leaf, pa.string()) == [None]


def test_the_registry_offers_it() -> None:
    assert registry.find("bitmap") is BitmapIndex

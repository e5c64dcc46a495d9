"""The bitmap index finds exactly the matching rows in both of its forms, and reads only the blocks
that a test needs.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import Recording

from indexes.base import InMemory
from indexes.bitmap import KEYS_TESTED_MAX, BitmapIndex
from indexes.blocks import Blocks
from indexes.predicate import Leaf, matches
from indexes.testing import (
    SkippingIndexConformance,
    columns,
    corner_segments,
    leaves_for,
    literals,
    scalar_types,
)

KIND = b"bitmap/1"
ROWS = 78_125


class Values(BitmapIndex):
    """Always a bitmap for each value."""

    form = "values"


class Slices(BitmapIndex):
    """Always bit slices."""

    form = "slices"


FORMS = pytest.mark.parametrize(
    "index", [BitmapIndex(), Values(), Slices()], ids=["smaller", "values", "slices"]
)


class TestBitmap(SkippingIndexConformance):
    """The conformance suite of all skipping indexes."""

    index = BitmapIndex()


def rows_in(index, summary, type, op, value=None):
    (bitmap,) = index.rows([summary], Leaf("c", op, value), type)
    return list(bitmap)


def rows_of(index, column, op, value=None):
    return rows_in(index, InMemory(index.summarize(column)), column.type, op, value)


def uniform(distinct):
    return pa.array(np.random.default_rng(distinct).integers(0, distinct, ROWS))


def assert_exact(index, column, leaves):
    summary = InMemory(index.summarize(column))
    for leaf in leaves:
        expected = np.flatnonzero(matches(leaf, pa.table({"c": column})).to_numpy()).tolist()
        (bitmap,) = index.rows([summary], leaf, column.type)
        is_tested = index.can_test(leaf, column.type)
        assert (list(bitmap) == expected) if is_tested else bitmap is None, leaf
        maybe = index.prune([summary], leaf, column.type).tolist()
        assert maybe == [bool(expected) or not is_tested], leaf


@FORMS
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_the_rows_found_are_exactly_the_matching_ones(index, data):
    type = data.draw(scalar_types())
    column = data.draw(columns(type, max_size=30))
    present = [value for value in column.to_pylist() if value is not None]
    source = st.sampled_from(present) | literals(type) if present else literals(type)
    drawn = data.draw(st.lists(source, min_size=1, max_size=4))
    assert_exact(index, column, [data.draw(st.sampled_from(leaves_for("c", type, drawn)))])


@FORMS
def test_nan_zeros_and_nulls_are_found_exactly(index):
    leaves = leaves_for("c", pa.float64(), (-0.0, 0.5, float("inf"), float("nan")))
    for segment in corner_segments(pa.float64()):
        assert_exact(index, segment, leaves)


@FORMS
@pytest.mark.parametrize("distinct", [1, 2, 5, 100, 256])
def test_both_forms_find_the_same_rows_in_large_segments(index, distinct):
    column = uniform(distinct)
    numbers = np.asarray(column)
    for op, value, is_match in (
        ("=", 1, numbers == 1),
        (">", 1, numbers > 1),
        ("!=", 0, numbers != 0),
        ("in", (0, 2, 77), np.isin(numbers, (0, 2, 77))),
        ("not in", (0, 2), ~np.isin(numbers, (0, 2))),
    ):
        assert rows_of(index, column, op, value) == np.flatnonzero(is_match).tolist()


def test_a_caller_may_change_the_returned_bitmaps():
    index = BitmapIndex()
    summary = InMemory(index.summarize(pa.array([1, 1, None])))
    for op in ("=", "is not null", "<"):
        index.rows([summary], Leaf("c", op, 1), pa.int64())[0].add(2)
    assert rows_in(index, summary, pa.int64(), "=", 1) == [0, 1]


def test_a_summary_can_be_used_after_its_column_is_widened():
    summary = InMemory(BitmapIndex().summarize(pa.array([1, 5, None], "int32")))
    assert rows_in(BitmapIndex(), summary, pa.int64(), ">", 2) == [1]


def test_like_over_many_values_is_exact_within_its_prefix_and_a_superset_beyond():
    column = pa.array([f"name {number}" for number in range(20_000)])
    expected = [12_305 + 10 * n for n in range(10)]
    assert rows_of(BitmapIndex(), column, "like", "name 123%5") == [1235, *expected]
    assert len(rows_of(BitmapIndex(), column, "like", "name %5")) == 20_000 > KEYS_TESTED_MAX


@FORMS
def test_patterns_with_the_same_prefix_are_tested_separately(index):
    summary = InMemory(index.summarize(pa.array(["xay", "xbz", "xcw"])))
    tests = [Leaf("c", "like", "x%y"), Leaf("c", "like", "x%z")]
    (rows,) = index.rows_within([summary], tests, pa.string(), [None])
    assert list(rows) == []


def test_few_or_skewed_values_have_bitmaps_and_many_values_have_slices():
    skewed = pa.array(np.minimum(np.random.default_rng(1).geometric(0.6, ROWS), 8))
    columns = (skewed, uniform(2), uniform(100), uniform(999))
    headers = [Blocks.open(InMemory(BitmapIndex().summarize(c)), KIND).read(0) for c in columns]
    assert [header[0] for header in headers] == [0, 0, 1, 1], "0 means values, 1 means slices"


def test_a_summary_takes_no_more_than_the_bits_of_its_codes():
    assert len(BitmapIndex().summarize(uniform(100))) < 7.05 * ROWS / 8
    assert len(BitmapIndex().summarize(pa.array(np.repeat(np.arange(200), 400)))) < 8_000


@pytest.mark.parametrize(
    ("index", "ask", "op", "value", "reads", "bytes_max"),
    [
        (Values(), "rows", "=", 50, 3, 4096 + 2_000),
        (BitmapIndex(), "rows", "=", 200, 1, 4096),
        (BitmapIndex(), "prune", ">", 3, 1, 4096),
        (BitmapIndex(), "rows", ">", 3, 2, 4096 + 7.05 * ROWS / 8),
    ],
    ids=["one value", "a value that is not there", "pruning", "slices"],
)
def test_a_test_reads_only_the_blocks_it_needs(index, ask, op, value, reads, bytes_max):
    summary = Recording(index.summarize(uniform(100)))
    getattr(index, ask)([summary], Leaf("c", op, value), pa.int64())
    assert len(summary.reads) <= reads and summary.bytes_read <= bytes_max


def damaged(summary, block):
    """Return the summary with the last bit of a block flipped."""
    blocks = Blocks.open(InMemory(summary), KIND)
    end = len(summary) - sum(blocks.length(later) for later in range(block + 1, blocks.count))
    return InMemory(summary[: end - 1] + bytes([summary[end - 1] ^ 1]) + summary[end:])


def test_a_damaged_bitmap_is_refused_and_other_values_are_still_found():
    column = pa.array(["a", "b", None, "c", "b", "d"])
    # header, two blocks of the dictionary, nulls, then a and b
    summary = damaged(Values().summarize(column), 5)
    for value, row in (("a", 0), ("c", 3), ("d", 5)):
        assert rows_in(Values(), summary, pa.string(), "=", value) == [row]
    with pytest.raises(ValueError, match="damaged"):
        rows_in(Values(), summary, pa.string(), "=", "b")
    assert rows_in(Values(), summary, pa.string(), "is null") == [2]


def test_summaries_of_other_types_and_literals_of_another_type_are_refused():
    summary = InMemory(BitmapIndex().summarize(pa.array(["a", "b"])))
    with pytest.raises(ValueError):
        BitmapIndex().rows([summary], Leaf("c", "=", 1), pa.int64())
    with pytest.raises(ValueError, match="literal"):
        BitmapIndex().rows([], Leaf("c", "=", "a"), pa.int64())

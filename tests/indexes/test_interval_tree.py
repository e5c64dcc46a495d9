"""The interval tree finds exactly the ranges that contain a key, in any arrangement of ranges."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.interval_tree import IntervalList, IntervalTree

PIECES = st.sampled_from(
    [b"", b"a", b"b", b"\0", b"\xff", b"aaaaaaaa", b"\0" * 8, b"aaaaaaab", b"a" * 17]
)
STRINGS = st.builds(lambda *parts: b"".join(parts), PIECES, PIECES, PIECES)
RANGES = st.lists(st.tuples(st.none() | STRINGS, st.none() | STRINGS), max_size=20)


def assert_ranges_found(ranges, keys, type):
    """Compare the ranges found for each key, and their number, with a direct search."""
    expected = {
        (k, r)
        for k, key in enumerate(keys)
        for r, (low, high) in enumerate(ranges)
        if (low is None or low <= key) and (high is None or key <= high)
    }
    bounds = [pa.array(bound, type) for bound in zip(*ranges, strict=True)] or [
        pa.array([], type)
    ] * 2
    key_array = pa.array(keys, type)
    tree = IntervalTree(*bounds)
    tree.check()
    assert len(tree) == len(ranges)
    bounds_are_ordered = all(low is None or high is None or low <= high for low, high in ranges)
    for index in (tree, IntervalList(*bounds)):
        for part in (key_array, pa.chunked_array([key_array[:5], key_array[5:]])):
            found = index.stab(part)
            pairs = list(zip(found.key.tolist(), found.group.tolist(), strict=True))
            assert sorted(pairs) == sorted(expected)
        counted = np.bincount(np.array([k for k, _ in expected], int), minlength=len(keys))
        assert not bounds_are_ordered or index.counts(key_array).tolist() == counted.tolist()


@given(RANGES, st.lists(STRINGS, max_size=12))
@settings(max_examples=200)
def test_any_ranges_give_the_same_result_as_a_direct_search(ranges, keys):
    assert_ranges_found(ranges, keys, pa.binary())


@given(
    st.lists(st.tuples(st.text("abc", max_size=3), st.text("abc", max_size=3)), max_size=30),
    st.lists(st.text("abcd", max_size=3), max_size=20),
)
def test_ranges_with_ordered_bounds_give_the_same_result_as_a_direct_search(ranges, keys):
    assert_ranges_found([sorted(pair) for pair in ranges], keys, pa.string())


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
@pytest.mark.parametrize("shape", ["disjoint", "all overlap", "nested", "equal", "unbounded"])
def test_every_arrangement_of_ranges_gives_the_same_result_as_a_direct_search(count, shape):
    number = "key-{:06d}".format
    bounds = {
        "disjoint": lambda n: (number(10 * n), number(10 * n + 7)),
        "all overlap": lambda n: (number(n), number(900 + n)),
        "nested": lambda n: (number(n), number(999 - n)),
        "equal": lambda n: (number(5), number(500)),
        "unbounded": lambda n: (None if n % 3 else number(n), None if n % 2 else number(9 * n)),
    }[shape]
    ranges = list(map(bounds, np.random.default_rng(count).permutation(count).tolist()))
    assert_ranges_found(ranges, [*map(number, range(0, 1000, 3)), "", "z"], pa.string())


def test_keys_are_numbered_correctly_if_they_take_several_passes():
    keys = pa.array([f"{n:08d}" for n in range(40_000)])
    tree = IntervalTree(pa.array(["00000000", "00030000"]), pa.array(["00000009", "00030009"]))
    found = tree.stab(keys)
    assert sorted(found.key.tolist()) == [*range(10), *range(30_000, 30_010)]
    assert (found.group == (found.key >= 10)).all()


def test_fixed_size_bounds_and_null_bounds_are_accepted():
    found = IntervalTree(pa.array([b"ab", b"cd"], pa.binary(2)), pa.nulls(2)).stab(
        pa.array(["abc", "x"])
    )
    assert sorted(zip(found.key, found.group, strict=True)) == [(0, 0), (1, 0), (1, 1)]


def test_different_numbers_of_lower_and_upper_bounds_are_refused():
    with pytest.raises(ValueError, match="two bounds"):
        IntervalTree(pa.array(["a"]), pa.array(["a", "b"]))

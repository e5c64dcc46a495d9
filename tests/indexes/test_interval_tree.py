"""The tree finds exactly the ranges that hold a key, however they lie."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.interval_tree import IntervalList, IntervalTree, SortedBytes

PIECES = st.sampled_from(
    [b"", b"a", b"b", b"\0", b"\xff", b"aaaaaaaa", b"\0" * 8, b"aaaaaaab", b"a" * 17]
)
STRINGS = st.builds(lambda *parts: b"".join(parts), PIECES, PIECES, PIECES)
RANGES = st.lists(st.tuples(st.none() | STRINGS, st.none() | STRINGS), max_size=20)


def tree_of(ranges, type=None):
    type = type or pa.binary()
    return IntervalTree(
        pa.array([low for low, _ in ranges], type), pa.array([high for _, high in ranges], type)
    )


def pairs(found):
    out = list(zip(found.key.tolist(), found.group.tolist(), strict=True))
    assert len(set(out)) == len(out)
    return set(out)


def by_hand(ranges, keys):
    def holds(low, high, key):
        return (low is None or low <= key) and (high is None or key <= high)

    return {
        (k, r)
        for k, key in enumerate(keys)
        for r, (low, high) in enumerate(ranges)
        if holds(low, high, key)
    }


@given(RANGES, st.lists(STRINGS, max_size=12))
@settings(max_examples=200)
def test_stab_equals_the_definition(ranges, keys):
    tree = tree_of(ranges)
    tree.check()
    assert len(tree) == len(ranges)
    assert pairs(tree.stab(pa.array(keys, pa.binary()))) == by_hand(ranges, keys)


@pytest.mark.parametrize("count", [1, 2, 3, 64, 100])
@pytest.mark.parametrize("shape", ["disjoint", "all overlap", "nested", "equal", "unbounded"])
def test_stab_equals_the_definition_for_every_shape(count, shape):
    number = "key-{:06d}".format
    ranges = {
        "disjoint": [(number(10 * n), number(10 * n + 7)) for n in range(count)],
        "all overlap": [(number(n), number(900 + n)) for n in range(count)],
        "nested": [(number(n), number(999 - n)) for n in range(count)],
        "equal": [(number(5), number(500))] * count,
        "unbounded": [
            (None if n % 3 else number(n), None if n % 2 else number(9 * n)) for n in range(count)
        ],
    }[shape]
    order = np.random.default_rng(count).permutation(count)
    ranges = [ranges[n] for n in order]
    keys = [number(n) for n in range(0, 1000, 3)] + ["", "z"]
    tree = tree_of(ranges, pa.string())
    tree.check()
    assert pairs(tree.stab(pa.array(keys))) == by_hand(ranges, keys)
    assert pairs(tree.stab(pa.chunked_array([keys[:5], keys[5:]]))) == by_hand(ranges, keys)


def test_more_keys_than_a_pass_takes_keep_their_numbers():
    keys = pa.array([f"{n:08d}" for n in range(40_000)])
    tree = IntervalTree(pa.array(["00000000", "00030000"]), pa.array(["00000009", "00030009"]))
    assert pairs(tree.stab(keys)) == {(n, 0) for n in range(10)} | {
        (n, 1) for n in range(30_000, 30_010)
    }


def test_fixed_size_bounds_and_untyped_missing_bounds_are_accepted():
    tree = IntervalTree(pa.array([b"ab", b"cd"], pa.binary(2)), pa.nulls(2))
    assert pairs(tree.stab(pa.array(["abc", "x"]))) == {(0, 0), (1, 0), (1, 1)}


def test_bounds_of_different_number_are_refused():
    with pytest.raises(ValueError, match="two bounds"):
        IntervalTree(pa.array(["a"]), pa.array(["a", "b"]))


@given(st.lists(STRINGS, max_size=20), st.lists(STRINGS, max_size=20))
def test_ranks_are_places_among_the_sorted_strings(strings, keys):
    known = SortedBytes(pa.array(strings, pa.binary()))
    known.check()
    place = sorted(set(strings))
    expected = [2 * sum(s < key for s in place) + (key in place) for key in keys]
    assert known.ranks(pa.array(keys, pa.binary())).tolist() == expected


@given(
    st.lists(st.tuples(st.text("abc", max_size=3), st.text("abc", max_size=3)), max_size=30),
    st.lists(st.text("abcd", max_size=3), max_size=20),
)
def test_a_list_answers_as_a_tree_and_both_count_what_they_answer(ranges, asked):
    ranges = [sorted(pair) for pair in ranges]
    low, high = (pa.array([pair[i] for pair in ranges], pa.string()) for i in (0, 1))
    keys = pa.array(asked, pa.string())
    tree, flat = IntervalTree(low, high), IntervalList(low, high)
    found = [
        set(zip(one.key.tolist(), one.group.tolist(), strict=True))
        for one in (tree.stab(keys), flat.stab(keys))
    ]
    assert found[0] == found[1]
    counted = np.bincount([key for key, _ in found[0]], minlength=len(asked)).tolist()
    assert tree.counts(keys).tolist() == flat.counts(keys).tolist() == counted

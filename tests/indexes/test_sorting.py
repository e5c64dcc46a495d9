"""Parallel functions on large integer arrays: stable order, duplicates, and whether they are
sorted.
"""

import numpy as np
import pyarrow as pa
import pytest

from indexes import arrays
from indexes.arrays import _ARGSORT_MAX, _PIECE, MANY_ROWS, has_duplicates, stable_order


def random_numbers(kind, span, size, seed):
    """Draw numbers of a type from a range of ``span``."""
    random_source, limits = np.random.default_rng(seed), np.iinfo(kind)
    low = int(random_source.integers(limits.min, limits.max, endpoint=True, dtype=kind))
    high = min(limits.max, low + span)
    return random_source.integers(low, high, size, endpoint=True, dtype=kind)


def assert_ordered(numbers):
    before = numbers.copy()
    order = stable_order(numbers)
    assert order.dtype == np.int64
    assert np.array_equal(order, np.argsort(numbers, kind="stable"))
    assert np.array_equal(numbers, before), "the input is not changed"


@pytest.mark.parametrize(
    "size",
    [0, 1, _ARGSORT_MAX - 1, _ARGSORT_MAX, _ARGSORT_MAX + 1, 5_000, _PIECE, _PIECE + 1, 70_000],
)
@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint32, np.uint8])
def test_the_stable_order_equals_numpys_stable_sort(kind, size):
    for seed, span in enumerate([0, 1, 200, 2**20, 2**45, 2**47, 2**48, 2**52, 2**63, 2**64]):
        numbers = random_numbers(kind, span, size, seed)
        for input_numbers in (numbers, np.sort(numbers), np.sort(numbers)[::-1], numbers[::3]):
            assert_ordered(input_numbers)
    limits = np.iinfo(kind)
    extremes = np.array([limits.min, limits.max // 2, limits.max], kind)
    assert_ordered(np.random.default_rng(1).choice(extremes, size))


def test_numbers_that_differ_only_in_their_lowest_bits_are_ordered():
    """64 bits of distance and 12 of position do not fit into a word. Numbers that differ only in
    the bits that were dropped are compared again.
    """
    high, low = np.random.default_rng(2).integers(0, [[3], [9]], (2, 4_000)).astype(np.uint64)
    numbers = (high << np.uint64(62)) + low
    assert_ordered(numbers)
    order_of_upper_bits = np.argsort(numbers >> np.uint64(40), kind="stable")
    assert not np.array_equal(stable_order(numbers), order_of_upper_bits), (
        "the order depends on the lowest bits"
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 1000, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 3])
def test_a_duplicate_hash_is_found_at_any_position(monkeypatch, size, threads):
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    # multiplication by an odd number: all are different
    hashes = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    np.random.default_rng(size).shuffle(hashes)
    original = hashes.copy()
    assert not has_duplicates(hashes) and np.array_equal(hashes, original)
    added = [original[:1], original[size // 2 :][:1], np.array([0, 0]), np.full(2, 2**64 - 1)]
    for duplicates in added if size else added[2:]:
        assert has_duplicates(np.append(original, duplicates.astype(np.uint64)))


PIECE_ROWS = arrays._SORTED_PIECE_ROWS


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 2, 65, PIECE_ROWS - 1, PIECE_ROWS + 1, MANY_ROWS + 1])
def test_an_unsorted_pair_is_found_at_any_position(monkeypatch, size, threads):
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)

    def sortedness(numbers):
        column = pa.array(numbers)
        return arrays.is_sorted(column), arrays.is_sorted(column, strictly=True)

    numbers = np.arange(10, 10 + size) * 3
    assert sortedness(numbers) == (True, True)
    for at in {0, 63, 64, PIECE_ROWS - 1, PIECE_ROWS, size - 2} & set(range(size - 1)):
        for by, expected in ((0, (True, False)), (1, (False, False))):
            changed = numbers.copy()
            changed[at] = changed[at + 1] + by
            assert sortedness(changed) == expected
        texts = pa.array(changed).cast("string")
        assert arrays.is_sorted(texts) == (texts.to_pylist() == sorted(texts.to_pylist()))
        assert not arrays.is_sorted(pa.array([*numbers.tolist(), None]))

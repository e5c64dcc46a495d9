"""Many integers stand in the order that numpy's stable sort gives them, whatever they are."""

import numpy as np
import pyarrow as pa
import pytest

from indexes import arrays
from indexes.arrays import _ARGSORT_MAX, _PIECE, MANY_ROWS, has_duplicates, stable_order


def drawn(kind, span, size, seed):
    """Random numbers of a type, no more than ``span`` of them different where there are few."""
    draw, limits = np.random.default_rng(seed), np.iinfo(kind)
    low = int(draw.integers(limits.min, limits.max, endpoint=True, dtype=kind))
    high = min(limits.max, low + span)
    return draw.integers(low, high, size, endpoint=True, dtype=kind)


def assert_ordered(numbers):
    before = numbers.copy()
    order = stable_order(numbers)
    assert order.dtype == np.int64
    assert np.array_equal(order, np.argsort(numbers, kind="stable"))
    assert np.array_equal(numbers, before), "what is sorted stays as it is"


@pytest.mark.parametrize(
    "size",
    [0, 1, _ARGSORT_MAX - 1, _ARGSORT_MAX, _ARGSORT_MAX + 1, 5_000, _PIECE, _PIECE + 1, 70_000],
)
@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint32, np.uint8])
def test_numbers_stand_as_numpys_stable_sort_puts_them(kind, size):
    for seed, span in enumerate([0, 1, 200, 2**20, 2**45, 2**47, 2**48, 2**52, 2**63, 2**64]):
        numbers = drawn(kind, span, size, seed)
        for given in (numbers, np.sort(numbers), np.sort(numbers)[::-1], numbers[::3]):
            assert_ordered(given)
    limits = np.iinfo(kind)
    extremes = np.array([limits.min, limits.max // 2, limits.max], kind)
    assert_ordered(np.random.default_rng(1).choice(extremes, size))


def test_numbers_that_differ_in_lost_bits_only_stand_right():
    """64 bits of distance and 12 of position do not fit into a word: what is below is looked at
    once more.
    """
    high, low = np.random.default_rng(2).integers(0, [[3], [9]], (2, 4_000)).astype(np.uint64)
    numbers = (high << np.uint64(62)) + low
    assert_ordered(numbers)
    kept = np.argsort(numbers >> np.uint64(40), kind="stable")
    assert not np.array_equal(stable_order(numbers), kept), "the low bits decide here"


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 1000, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 3])
def test_a_hash_that_occurs_twice_is_found_wherever_it_stands(monkeypatch, size, threads):
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    # odd: no two are equal
    hashes = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    np.random.default_rng(size).shuffle(hashes)
    before = hashes.copy()
    assert not has_duplicates(hashes) and np.array_equal(hashes, before)
    added = [before[:1], before[size // 2 :][:1], np.array([0, 0]), np.full(2, 2**64 - 1)]
    for more in added if size else added[2:]:
        assert has_duplicates(np.append(before, more.astype(np.uint64)))


PIECE_ROWS = arrays._SORTED_PIECE_ROWS


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 2, 65, PIECE_ROWS - 1, PIECE_ROWS + 1, MANY_ROWS + 1])
def test_a_value_that_does_not_rise_is_found_wherever_it_stands(monkeypatch, size, threads):
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)

    def rises(numbers):
        column = pa.array(numbers)
        return arrays.is_sorted(column), arrays.is_sorted(column, strictly=True)

    numbers = np.arange(10, 10 + size) * 3
    assert rises(numbers) == (True, True)
    for at in {0, 63, 64, PIECE_ROWS - 1, PIECE_ROWS, size - 2} & set(range(size - 1)):
        for by, expected in ((0, (True, False)), (1, (False, False))):
            changed = numbers.copy()
            changed[at] = changed[at + 1] + by
            assert rises(changed) == expected
        texts = pa.array(changed).cast("string")
        assert arrays.is_sorted(texts) == (texts.to_pylist() == sorted(texts.to_pylist()))
        assert not arrays.is_sorted(pa.array([*numbers.tolist(), None]))

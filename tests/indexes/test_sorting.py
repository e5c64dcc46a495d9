"""Many integers stand in the order that numpy's stable sort gives them, whatever they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from indexes import arrays
from indexes.arrays import _FEW, _PIECE, MANY_ROWS, repeats, stable_order

EXTREMES = {
    np.int64: [-(2**63), -1, 0, 1, 2**63 - 1],
    np.uint64: [0, 1, 2**63, 2**64 - 1],
    np.int32: [-(2**31), 0, 2**31 - 1],
    np.uint32: [0, 2**32 - 1],
    np.uint8: [0, 255],
}


def drawn(kind: type, span: int, size: int, seed: int) -> np.ndarray:
    """Random numbers of a type, no more than ``span`` of them different where there are few."""
    draw, limits = np.random.default_rng(seed), np.iinfo(kind)
    low = int(draw.integers(limits.min, limits.max, endpoint=True, dtype=kind))
    high = min(limits.max, low + span)
    return draw.integers(low, high, size, endpoint=True, dtype=kind)


@pytest.mark.parametrize(
    "size", [0, 1, _FEW - 1, _FEW, _FEW + 1, 5_000, _PIECE, _PIECE + 1, 70_000]
)
@pytest.mark.parametrize("kind", EXTREMES)
def test_numbers_stand_as_numpys_stable_sort_puts_them(kind: type, size: int) -> None:
    for seed, span in enumerate([0, 1, 200, 2**20, 2**45, 2**47, 2**48, 2**52, 2**63, 2**64]):
        numbers = drawn(kind, span, size, seed)
        for given in (numbers, np.sort(numbers), np.sort(numbers)[::-1], numbers[::3]):
            before = given.copy()
            order = stable_order(given)
            assert order.dtype == np.int64
            assert np.array_equal(order, np.argsort(given, kind="stable"))
            assert np.array_equal(given, before), "what is sorted stays as it is"


@pytest.mark.parametrize("kind", EXTREMES)
def test_the_smallest_and_the_largest_numbers_stand_right(kind: type) -> None:
    numbers = np.random.default_rng(1).choice(np.array(EXTREMES[kind], kind), 3_000)
    assert np.array_equal(stable_order(numbers), np.argsort(numbers, kind="stable"))


def test_numbers_that_differ_in_lost_bits_only_stand_right() -> None:
    """64 bits of distance and 12 of position do not fit into a word: what is below is looked at
    once more.
    """
    draw = np.random.default_rng(2)
    numbers = (draw.integers(0, 3, 4_000).astype(np.uint64) << np.uint64(62)) + draw.integers(
        0, 9, 4_000
    ).astype(np.uint64)
    order = stable_order(numbers)
    assert np.array_equal(order, np.argsort(numbers, kind="stable"))
    assert not np.array_equal(order, np.argsort(numbers >> np.uint64(40), kind="stable")), (
        "the low bits decide here"
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 1000, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 3])
def test_a_hash_that_occurs_twice_is_found_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    # odd: no two are equal
    hashes = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    np.random.default_rng(size).shuffle(hashes)
    before = hashes.copy()
    assert not repeats(hashes)
    for one, other in ((0, size - 1), (size // 2, size // 3)):
        if one != other and size > 1:
            twice = hashes.copy()
            twice[one] = twice[other]
            assert repeats(twice)
    assert np.array_equal(hashes, before)
    for extreme in (0, 2**64 - 1):
        assert repeats(np.append(hashes, np.array([extreme, extreme], np.uint64)))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "size",
    [0, 1, 2, 65, arrays._RISING_PIECE_ROWS - 1, arrays._RISING_PIECE_ROWS + 1, MANY_ROWS + 1],
)
def test_a_value_that_does_not_rise_is_found_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, size: int, threads: int
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    numbers = np.arange(10, 10 + size)
    places = {
        at
        for at in (0, 63, 64, arrays._RISING_PIECE_ROWS - 1, arrays._RISING_PIECE_ROWS, size - 2)
        if 0 <= at < size - 1
    }
    for array in (numbers, numbers * 3 - 7):
        assert arrays.is_rising(pa.array(array)) and arrays.is_rising(
            pa.array(array), strictly=True
        )
        for at in places:
            same, falls = array.copy(), array.copy()
            same[at] = same[at + 1]
            falls[at] = falls[at + 1] + 1
            assert not arrays.is_rising(pa.array(same), strictly=True)
            assert arrays.is_rising(pa.array(same)) and not arrays.is_rising(pa.array(falls))
            texts = pa.array(falls).cast(pa.string())
            assert arrays.is_rising(texts) == (texts.to_pylist() == sorted(texts.to_pylist()))
        if size > 1:
            assert not arrays.is_rising(pa.array([*array.tolist(), None]))

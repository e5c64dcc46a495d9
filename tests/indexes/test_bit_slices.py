"""Bit slices and sets of positions decode to the values that were encoded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from indexes import bit_slices
from indexes.positions import from_bits, from_positions, to_bitmap

edges = st.lists(st.integers(0, 64), min_size=2, max_size=12, unique=True).map(sorted)


def ranges_of(edges):
    return list(zip(edges[::2], edges[1::2], strict=False))


@given(st.lists(st.integers(0, 63), max_size=200), edges)
def test_a_set_of_ranges_selects_the_rows_with_a_code_in_one_of_them(codes, edges):
    slices = list(map(to_bitmap, bit_slices.pack(np.array(codes, np.uint8), 64)))
    expected = [
        row for row, code in enumerate(codes) if any(a <= code < b for a, b in ranges_of(edges))
    ]
    assert list(bit_slices.select(slices, ranges_of(edges), BitMap(range(len(codes))))) == expected


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 1)],
        [(999, 1024)],
        [(0, 1000)],
        [(17, 18)],
        [(511, 513)],
        [(3, 900)],
        [(n, n + 2) for n in range(0, 1000, 5)],
        [(n, n + 1) for n in range(1, 1000, 3)],
    ],
)
def test_large_segments_have_the_same_selection_as_in_numpy(ranges):
    codes = np.random.default_rng(5).integers(0, 1000, 140_000).astype(np.uint16)
    is_selected = np.logical_or.reduce(
        [(codes >= start) & (codes < stop) for start, stop in ranges]
    )
    is_selected[::7] = False
    present = BitMap(np.flatnonzero(np.arange(140_000) % 7).tolist())
    selection = bit_slices.select(
        list(map(to_bitmap, bit_slices.pack(codes, 1000))), ranges, present
    )
    assert np.array_equal(np.array(selection.to_array()), np.flatnonzero(is_selected))


def test_codes_take_as_many_slices_as_bits():
    assert [bit_slices.slice_count(n) for n in (0, 1, 2, 3, 256, 257)] == [0, 0, 1, 2, 8, 9]


@pytest.mark.parametrize("density", [0.0, 0.0001, 0.02, 0.1, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("rows", [0, 1, 7, 65_536, 70_000, 140_000])
def test_bits_are_decoded_as_they_were_encoded(density, rows):
    bits = np.random.default_rng(3).random(rows) < density
    at = np.flatnonzero(bits)
    for packed in (from_bits(bits), from_positions(at.astype(np.uint32))):
        assert to_bitmap(packed) == BitMap(at.tolist())


@given(st.lists(st.integers(0, 2**32 - 1), max_size=50, unique=True).map(sorted))
def test_positions_are_decoded_as_they_were_encoded(positions):
    assert list(to_bitmap(from_positions(np.array(positions, np.uint32)))) == positions


def test_runs_are_stored_as_runs_and_an_empty_end_of_a_container_is_not_stored():
    assert len(from_bits(np.repeat(np.arange(8) % 2 == 0, 10_000))) < 100
    bits = np.random.default_rng(3).random(78_125) < 0.5
    assert len(from_bits(bits)) <= 78_125 // 8 + 32


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 50, b"\x3a\x30\0\0\xff\xff\xff\xff"])
def test_invalid_bytes_of_positions_are_refused(data):
    with pytest.raises(ValueError):
        to_bitmap(data)

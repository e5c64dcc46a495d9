"""Orders of rows: along each curve every cell comes once, neighbours stay neighbours, and every
type of column can take part.
"""

import math
from datetime import date
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.services.layout.curves import CURVES, codes, ranks, row_order

COLUMNS = [
    pa.array([3, None, 1, 2], pa.int16()),
    pa.array([True, False, None, True]),
    pa.array([math.nan, -0.0, 0.0, None]),
    pa.array(["b", "", None, "\U0010ffff"]),
    pa.array([Decimal("1.50"), None, Decimal(-2), Decimal(0)], pa.decimal128(9, 2)),
    pa.array([date(1969, 1, 1), date(2026, 1, 1), None, date(2026, 1, 1)]),
    pa.array([b"\0", b"", None, b"\xff"]),
    pa.array([1, 0, None, -1], pa.timestamp("us", "UTC")),
]

GRIDS = [(2, 8), (3, 4), (4, 4), (5, 2)]
"""Columns, and cells along each of them."""


def grid(columns, side):
    """Return every cell of a grid -> int64[columns, side ** columns]."""
    return np.array(list(product(range(side), repeat=columns)), np.int64).T


def ranked(cells):
    return [ranks(pa.array(axis)) for axis in cells]


@pytest.mark.parametrize("columns, side", GRIDS)
def test_the_curve_of_hilbert_goes_through_every_cell_in_steps_of_one(columns, side):
    cells = grid(columns, side)
    order = np.argsort(codes(ranked(cells), "hilbert"), kind="stable")
    assert (np.abs(np.diff(cells[:, order], axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize("columns, side", GRIDS)
def test_the_z_order_takes_the_bits_of_the_columns_in_turn(columns, side):
    cells = grid(columns, side)
    bits = side.bit_length() - 1
    expected = [
        sum(
            ((int(cell[c]) >> (bits - 1 - b)) & 1) << (columns * bits - 1 - b * columns - c)
            for b in range(bits)
            for c in range(columns)
        )
        for cell in cells.T
    ]
    assert (
        np.argsort(codes(ranked(cells), "zorder"), kind="stable").tolist()
        == np.argsort(expected).tolist()
    )


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_blocks_of_rows_are_coded_as_if_they_were_one(curve, monkeypatch):
    given_ = [np.random.default_rng(seed).permutation(1_000) for seed in range(3)]
    whole = codes(given_, curve)
    monkeypatch.setattr("mdt.services.layout.curves._BLOCK_ROWS", 7)
    assert np.array_equal(codes(given_, curve), whole)


NUMBERS = {
    "doubles, some nan": lambda draw, n: pa.array(
        np.where(draw.random(n) < 0.01, np.nan, draw.normal(size=n))
    ),
    "few values, many nulls": lambda draw, n: pa.array(
        draw.integers(0, 5, n), mask=draw.random(n) < 0.4
    ),
    "a period": lambda draw, n: pa.array(np.arange(n) % 64),
    "times": lambda draw, n: pa.array(draw.integers(0, 10**15, n), pa.timestamp("us", "UTC")),
    "nothing but null": lambda draw, n: pa.nulls(n, pa.int32()),
}


@pytest.mark.parametrize("kind", list(NUMBERS))
def test_ranks_of_many_numbers_are_told_by_a_sample_without_changing_their_order(kind, monkeypatch):
    n = 20_000
    column = NUMBERS[kind](np.random.default_rng(3), n)
    exact = ranks(column)
    monkeypatch.setattr("mdt.services.layout.curves._RANKED_ROWS_MAX", 4_000)
    monkeypatch.setattr("mdt.services.layout.curves._CELLS", 400)
    found = ranks(column)
    order = np.argsort(exact, kind="stable")
    assert (np.diff(found[order]) >= 0).all(), "no larger value is before a smaller one"
    same = np.diff(exact[order]) == 0
    assert (np.diff(found[order])[same] == 0).all(), "equal values are together"
    assert 0 <= found.min() <= found.max() < n
    last = np.searchsorted(exact[order], exact, side="right")
    assert ((found >= exact - 0.05 * n) & (found <= last + 0.05 * n)).all(), (
        "and each is about where it belongs"
    )


@pytest.mark.parametrize("curve", CURVES)
def test_columns_of_every_type_with_nulls_take_part(curve):
    columns = [pa.chunked_array([one.slice(0, 1), one.slice(1)]) for one in COLUMNS]
    for taken in (*([one] for one in columns), columns, columns[:3]):
        assert sorted(row_order(taken, curve).tolist()) == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.floats(width=32) | st.none())))
def test_sorting_goes_by_the_first_column_then_the_next_with_nan_and_null_last(
    rows,
):
    def place(value):
        return (2, 0.0) if value is None else (1, 0.0) if math.isnan(value) else (0, value)

    types = (pa.int64(), pa.float64())
    columns = [pa.chunked_array([pa.array([row[i] for row in rows], types[i])]) for i in range(2)]
    expected = sorted(range(len(rows)), key=lambda at: tuple(place(value) for value in rows[at]))
    assert row_order(columns, "sort").tolist() == expected


@pytest.mark.parametrize("curve", CURVES)
def test_equal_rows_keep_their_order(curve):
    column = pa.chunked_array([pa.array([1] * 5)])
    for columns in ([column, column], [column]):
        assert row_order(columns, curve).tolist() == list(range(5))


def test_ranks_count_the_values_below_with_nan_and_null_above_all():
    assert ranks(pa.array([5.0, math.nan, None, -0.0, 0.0])).tolist() == [2, 3, 4, 0, 0]

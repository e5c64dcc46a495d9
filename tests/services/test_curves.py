"""Row orders: each curve visits every cell once and keeps neighbours close, and columns of every
type can be used.
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
"""Number of columns, and of cells along each of them."""


def grid(columns, side):
    """Return every cell of a grid. Shape: int64[columns, side ** columns]."""
    return np.array(list(product(range(side), repeat=columns)), np.int64).T


def ranks_of(cells):
    return [ranks(pa.array(axis)) for axis in cells]


@pytest.mark.parametrize("columns, side", GRIDS)
def test_the_hilbert_curve_visits_every_cell_in_steps_of_one(columns, side):
    cells = grid(columns, side)
    order = np.argsort(codes(ranks_of(cells), "hilbert"), kind="stable")
    assert (np.abs(np.diff(cells[:, order], axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize("columns, side", GRIDS)
def test_the_z_order_interleaves_the_bits_of_the_columns(columns, side):
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
        np.argsort(codes(ranks_of(cells), "zorder"), kind="stable").tolist()
        == np.argsort(expected).tolist()
    )


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_codes_do_not_depend_on_the_size_of_blocks(curve, monkeypatch):
    permutations = [np.random.default_rng(seed).permutation(1_000) for seed in range(3)]
    expected = codes(permutations, curve)
    monkeypatch.setattr("mdt.services.layout.curves._BLOCK_ROWS", 7)
    assert np.array_equal(codes(permutations, curve), expected)


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
def test_ranks_of_many_numbers_are_estimated_from_a_sample_and_keep_their_order(kind, monkeypatch):
    n = 20_000
    column = NUMBERS[kind](np.random.default_rng(3), n)
    exact = ranks(column)
    monkeypatch.setattr("mdt.services.layout.curves._RANKED_ROWS_MAX", 4_000)
    monkeypatch.setattr("mdt.services.layout.curves._CELLS", 400)
    estimated = ranks(column)
    order = np.argsort(exact, kind="stable")
    assert (np.diff(estimated[order]) >= 0).all(), "no value has a lower rank than a smaller value"
    is_equal = np.diff(exact[order]) == 0
    assert (np.diff(estimated[order])[is_equal] == 0).all(), "equal values have equal ranks"
    assert 0 <= estimated.min() <= estimated.max() < n
    last = np.searchsorted(exact[order], exact, side="right")
    assert ((estimated >= exact - 0.05 * n) & (estimated <= last + 0.05 * n)).all(), (
        "each rank is close to the exact rank"
    )


@pytest.mark.parametrize("curve", CURVES)
def test_columns_of_every_type_with_nulls_can_be_ordered(curve):
    columns = [pa.chunked_array([column.slice(0, 1), column.slice(1)]) for column in COLUMNS]
    for selection in (*([column] for column in columns), columns, columns[:3]):
        assert sorted(row_order(selection, curve).tolist()) == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.floats(width=32) | st.none())))
def test_rows_are_sorted_by_each_column_in_turn_with_nan_and_null_last(
    rows,
):
    def sort_key(value):
        return (2, 0.0) if value is None else (1, 0.0) if math.isnan(value) else (0, value)

    types = (pa.int64(), pa.float64())
    columns = [pa.chunked_array([pa.array([row[i] for row in rows], types[i])]) for i in range(2)]
    expected = sorted(range(len(rows)), key=lambda at: tuple(sort_key(value) for value in rows[at]))
    assert row_order(columns, "sort").tolist() == expected


@pytest.mark.parametrize("curve", CURVES)
def test_equal_rows_keep_their_order(curve):
    column = pa.chunked_array([pa.array([1] * 5)])
    for columns in ([column, column], [column]):
        assert row_order(columns, curve).tolist() == list(range(5))


def test_a_rank_is_the_number_of_smaller_values_with_nan_and_null_last():
    assert ranks(pa.array([5.0, math.nan, None, -0.0, 0.0])).tolist() == [2, 3, 4, 0, 0]

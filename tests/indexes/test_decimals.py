"""Decimals as floating-point numbers, against Python's own reading of their digits."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from indexes.decimals import as_floating
from mdt.schema.convert import convert

TYPES = [
    pa.decimal128(4, 2),
    pa.decimal128(15, 3),
    pa.decimal128(16, 0),
    pa.decimal128(18, 6),
    pa.decimal128(38, 30),
    pa.decimal256(50, 25),
]


def numbers(type: pa.DataType, count: int = 2000) -> list[Decimal | None]:
    draw = random.Random(str(type))
    return [None] + [
        Decimal(draw.randint(-(10**d), 10**d)).scaleb(-type.scale)
        for d in draw.choices(range(1, type.precision), k=count)
    ]


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_a_decimal_becomes_the_nearest_double(type: pa.DataType) -> None:
    given = numbers(type)
    expected = [None if one is None else float(str(one)) for one in given]
    array = pa.array(given, type)
    assert as_floating(array, pa.float64()).to_pylist() == expected
    assert as_floating(array.slice(7), pa.float64()).to_pylist() == expected[7:]
    assert (
        as_floating(pa.chunked_array([array, array.slice(0, 0)]), pa.float64()).to_pylist()
        == expected
    )
    assert as_floating(array[1], pa.float64()).as_py() == expected[1]


def test_rows_of_callers_are_these_numbers_too() -> None:
    cents = [Decimal(i).scaleb(-2) for i in range(-5000, 5000)]
    assert convert(pa.array(cents), pa.float64()).to_pylist() == [float(one) for one in cents]
    assert convert(pa.array(cents), pa.float32()).to_pylist() == [
        float(np.float32(str(one))) for one in cents
    ]
    assert (
        convert(pa.array([float(one) for one in cents]), pa.decimal128(9, 2)).to_pylist() == cents
    )

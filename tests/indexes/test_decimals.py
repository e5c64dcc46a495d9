"""Conversion of decimals to floating-point numbers, compared with Python's conversion."""

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


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_a_decimal_is_converted_to_the_nearest_double(type):
    random_source = random.Random(str(type))
    digits = random_source.choices(range(1, type.precision), k=2000)
    decimals = [Decimal(random_source.randint(-(10**d), 10**d)).scaleb(-type.scale) for d in digits]
    array = pa.array([None, *decimals], type)
    expected = [None, *(float(str(decimal)) for decimal in decimals)]
    for same in (array, pa.chunked_array([array, array.slice(0, 0)])):
        assert as_floating(same, pa.float64()).to_pylist() == expected
    assert as_floating(array.slice(7), pa.float64()).to_pylist() == expected[7:]
    assert as_floating(array[1], pa.float64()).as_py() == expected[1]


def test_decimals_of_callers_are_converted_in_the_same_way():
    cents = pa.array([Decimal(i).scaleb(-2) for i in range(-5000, 5000)])
    doubles = list(map(float, cents.to_pylist()))
    assert convert(cents, pa.float64()).to_pylist() == doubles
    assert convert(cents, pa.float32()).to_pylist() == np.array(doubles, np.float32).tolist()
    assert convert(pa.array(doubles), cents.type).to_pylist() == cents.to_pylist()

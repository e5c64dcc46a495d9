"""The order and the keys of scalar values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import values as order
from indexes.testing import (
    ALL_TYPES,
    column_of,
    columns,
    foreign_literals,
    literals,
    pool,
    scalar_types,
)


def rank(value: Any) -> Any:
    """An independent statement of the order, on Python values."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def sign(low: Any, high: Any) -> int:
    return int(low > high) - int(low < high)


@given(data=st.data())
def test_keys_order_as_the_values_do(data: st.DataObject) -> None:
    column = data.draw(scalar_types().flatmap(columns))
    keys, values = order.encode(column).to_pylist(), column.to_pylist()
    assert order.encode(column).type == pa.binary()
    present = [
        (key, rank(value)) for key, value in zip(keys, values, strict=True) if value is not None
    ]
    for (left_key, left), (right_key, right) in pairwise(present):
        assert sign(left_key, right_key) == sign(left, right)
    assert [key is None for key in keys] == [value is None for value in values]


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
def test_corner_values_order_and_come_back(type: pa.DataType) -> None:
    column = column_of(pool(type), type)
    keys = order.encode(column).to_pylist()
    values = column.to_pylist()
    for i, left in enumerate(values):
        assert [sign(keys[i], key) for key in keys] == [
            sign(rank(left), rank(right)) for right in values
        ]
        assert rank(order.decode(keys[i], type)) == rank(left)
        assert order.compare_key(left, type) == order.Key(keys[i], 0)
        assert order.place(left, type).tie == 0


@given(data=st.data())
def test_slices_and_chunks_encode_as_the_whole_does(data: st.DataObject) -> None:
    column = data.draw(scalar_types().flatmap(columns))
    cut = data.draw(st.integers(0, len(column)))
    parts = [column.slice(0, cut), column.slice(cut)]
    whole = order.encode(column)
    assert order.encode(parts[1]).to_pylist() == whole.to_pylist()[cut:]
    assert order.encode(pa.chunked_array(parts, column.type)).to_pylist() == whole.to_pylist()
    assert len(order.encode(pa.chunked_array([], column.type))) == 0


@given(data=st.data())
def test_place_and_key_of_a_literal_agree_about_every_value(data: st.DataObject) -> None:
    type = data.draw(scalar_types())
    literal = data.draw(literals(type))
    if pa.types.is_fixed_size_binary(type):
        return
    key, place = order.compare_key(literal, type), order.place(literal, type)
    at = order.encode(
        column_of([place.value], type)
        if not pa.types.is_dictionary(type)
        else pa.array([place.value], type.value_type)
    )[0].as_py()
    for known in order.encode(column_of(pool(type), type)).to_pylist():
        by_key = known <= key.data if key.tie > 0 else known < key.data
        by_place = known <= at if place.tie > 0 else known < at
        assert by_key == by_place, (literal, type, known)


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
def test_place_and_key_agree_on_literals_between_and_beyond_the_values(type: pa.DataType) -> None:
    if pa.types.is_fixed_size_binary(type):
        return
    value_type = type.value_type if pa.types.is_dictionary(type) else type
    known = order.encode(column_of(pool(type), type)).to_pylist()
    for literal in foreign_literals(type):
        key, place = order.compare_key(literal, type), order.place(literal, type)
        at = order.encode(pa.array([place.value], value_type))[0].as_py()
        for this in known:
            assert (this < key.data or (this == key.data and key.tie > 0)) == (
                this < at or (this == at and place.tie > 0)
            )


def test_literals_between_ints_lie_above_their_floor() -> None:
    assert order.place(1.5, pa.int64()) == order.Place(1, 1)
    assert order.place(-1.5, pa.int64()) == order.Place(-2, 1)
    assert order.place(Decimal("1e-1000000"), pa.int64()) == order.Place(0, 1)
    assert order.place(Decimal("-1e-1000000"), pa.int64()) == order.Place(-1, 1)
    assert order.encode_scalar(1.5, pa.int64()) is None
    assert order.encode_scalar(2.0, pa.int64()) == order.encode_scalar(2, pa.int8())


def test_literals_beyond_a_type_lie_beyond_its_last_value() -> None:
    assert order.place(10**30, pa.int64()) == order.Place(2**63 - 1, 1)
    assert order.place(Decimal("-1e1000000"), pa.int64()) == order.Place(-(2**63), -1)
    assert order.place(300, pa.uint8()) == order.Place(255, 1)
    assert order.place(-1, pa.uint8()) == order.Place(0, -1)
    assert order.place(math.nan, pa.int8()) == order.Place(127, 1)
    assert order.place(10**400, pa.float64()) == order.Place(1.7976931348623157e308, 1)
    assert order.place(-(10**400), pa.float64()) == order.Place(-math.inf, 1)
    assert order.place(1e300, pa.float32()) == order.Place(3.4028234663852886e38, 1)
    assert order.place(1000, pa.decimal128(3, 1)) == order.Place(Decimal("99.9"), 1)


def test_a_tenth_is_not_a_float32_and_lies_below_the_nearest_one() -> None:
    place = order.place(0.1, pa.float32())
    assert place.tie == 1 and place.value == 0.09999999403953552
    assert order.place(0.5, pa.float32()) == order.Place(0.5, 0)


def test_decimal_and_float_literals_mean_what_their_text_says() -> None:
    assert order.place(0.1, pa.decimal128(5, 2)) == order.Place(Decimal("0.10"), 0)
    assert order.place(Decimal("0.1"), pa.float64()) == order.Place(0.1, 0)
    assert order.place(0.125, pa.decimal128(5, 2)) == order.Place(Decimal("0.12"), 1)
    assert order.place(2**53 + 1, pa.float64()) == order.Place(float(2**53), 1)


def test_the_width_of_a_type_does_not_change_keys() -> None:
    for narrow, wide in (
        (pa.int8(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64()),
    ):
        column = column_of([v for v in pool(narrow)], narrow)
        assert order.encode(column).equals(order.encode(column.cast(wide)))
    seconds = pa.array([0, 1, None], pa.timestamp("s"))
    assert order.encode(seconds).equals(
        order.encode(seconds.cast(pa.timestamp("us", "Asia/Tokyo")))
    )


def test_timestamps_that_overflow_microseconds_saturate() -> None:
    keys = order.encode(
        pa.array([-(2**63), -(2**62), 0, 2**62, 2**63 - 1], pa.timestamp("s"))
    ).to_pylist()
    assert keys == sorted(keys) and keys[1] < keys[2] < keys[3]
    assert isinstance(order.decode(keys[0], pa.timestamp("s")), int)


def test_every_nan_and_both_zeros_have_one_key() -> None:
    bits = pa.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], pa.uint64())
    assert len(set(order.encode(bits.view(pa.float64())).to_pylist())) == 1
    assert len(set(order.encode(pa.array([0.0, -0.0])).to_pylist())) == 1
    assert order.compare_key(-math.nan, pa.float32()) == order.compare_key(math.nan, pa.float64())


def test_dates_and_times_are_utc_and_may_be_text() -> None:
    moment = datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=2)))
    same = (
        moment,
        moment.astimezone(UTC).replace(tzinfo=None),
        "2024-02-29T10:00:00Z",
        "2024-02-29 12:00:00+02:00",
    )
    assert (
        len({order.compare_key(value, pa.timestamp("ms", "Europe/Berlin")) for value in same}) == 1
    )
    assert order.place(date(2024, 2, 29), pa.date32()) == order.place("2024-02-29", pa.date32())
    assert order.place("2024-02-29T00:00:01", pa.date32()).tie == 1
    assert order.place("1970-01-01T00:00:01.5", pa.timestamp("s")) == order.Place(1, 1)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        ("1", pa.int64()),
        (1, pa.string()),
        (True, pa.int64()),
        (1, pa.bool_()),
        (b"a", pa.string()),
        ("a", pa.binary()),
        (1, pa.date32()),
        ("soon", pa.date32()),
        ("2024-01-01T00:00:00.1234567", pa.timestamp("us")),
        ("\ud800", pa.string()),
        (None, pa.int64()),
        ([1], pa.int64()),
        (1, pa.list_(pa.int64())),
    ],
)
def test_a_literal_of_the_wrong_kind_is_refused(value: object, type: pa.DataType) -> None:
    with pytest.raises(ValueError):
        order.compare_key(value, type)
    with pytest.raises(ValueError):
        order.place(value, type)


def test_types_without_an_order_are_refused() -> None:
    for type in (
        pa.list_(pa.int64()),
        pa.uint64(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.null(),
        pa.struct([]),
    ):
        assert not order.supports(type)
        with pytest.raises(ValueError, match="no order"):
            order.encode(pa.array([], type))


@given(
    key=st.binary(max_size=12) | st.text(max_size=6).map(str.encode),
    limit=st.integers(0, 12),
    utf8=st.booleans(),
)
def test_truncated_keys_enclose_the_key_and_respect_the_limit(
    key: bytes, limit: int, utf8: bool
) -> None:
    low, high = order.truncate_down(key, limit), order.truncate_up(key, limit, utf8)
    assert low <= key and len(low) <= limit
    assert high is None or (high >= key and len(high) <= limit)
    assert len(key) > limit or low == high == key


@given(
    text=st.text(alphabet="a\x7f\u07ff\ud7ff\uffff\U0010ffff", max_size=8), limit=st.integers(0, 12)
)
def test_text_truncated_up_stays_text(text: str, limit: int) -> None:
    high = order.truncate_up(text.encode(), limit, utf8=True)
    assert high is None or high.decode() >= text


def test_nothing_is_above_a_run_of_the_last_byte_or_character() -> None:
    assert order.truncate_up(b"\xff" * 5, 4, utf8=False) is None
    assert order.truncate_up(("\U0010ffff" * 5).encode(), 8, utf8=True) is None
    assert order.truncate_up(b"a\xff\xff", 2, utf8=False) == b"b"
    assert order.truncate_up("a\ud7ffb".encode(), 4, utf8=True) == "a\ue000".encode()


def test_a_key_of_the_wrong_length_is_refused() -> None:
    for type in (pa.int64(), pa.bool_(), pa.decimal128(5, 2), pa.float32(), pa.date32()):
        with pytest.raises(ValueError, match="bytes"):
            order.decode(b"abc", type)

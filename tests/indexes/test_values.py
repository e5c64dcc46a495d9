"""The order and the encoded keys of scalar values."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import values as order
from indexes.testing import ALL_TYPES, column_of, columns, foreign_literals, pool, scalar_types


def rank(value):
    """Return a Python value with the specified order, independently of the product."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value.encode() if isinstance(value, str) else value


def sign(low, high):
    return int(low > high) - int(low < high)


@given(data=st.data())
def test_keys_are_ordered_like_their_values(data):
    column = data.draw(scalar_types().flatmap(columns))
    keys, values = order.encode(column).to_pylist(), column.to_pylist()
    assert [key is None for key in keys] == [value is None for value in values]
    present = [pair for pair in zip(keys, map(rank, values), strict=True) if pair[0] is not None]
    for (left_key, left), (right_key, right) in pairwise(present):
        assert sign(left_key, right_key) == sign(left, right)


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
def test_corner_values_are_ordered_and_decoded(type):
    column = column_of(pool(type), type)
    keys, values = order.encode(column).to_pylist(), column.to_pylist()
    for key, left in zip(keys, values, strict=True):
        expected = [sign(rank(left), rank(right)) for right in values]
        assert [sign(key, other) for other in keys] == expected
        assert rank(order.decode(key, type)) == rank(left)
        assert order.compare_key(left, type) == order.Key(key, 0)
        assert order.place(left, type).tie == 0


@given(data=st.data())
def test_slices_and_chunks_are_encoded_like_the_whole_array(data):
    column = data.draw(scalar_types().flatmap(columns))
    cut = data.draw(st.integers(0, len(column)))
    parts = [column.slice(0, cut), column.slice(cut)]
    whole = order.encode(column)
    assert order.encode(parts[1]).to_pylist() == whole.to_pylist()[cut:]
    assert order.encode(pa.chunked_array(parts, column.type)).to_pylist() == whole.to_pylist()
    assert len(order.encode(pa.chunked_array([], column.type))) == 0


@pytest.mark.parametrize("type", list(filter(foreign_literals, ALL_TYPES)), ids=str)
def test_place_and_key_agree_on_literals_between_and_beyond_the_values(type):
    if pa.types.is_fixed_size_binary(type):
        return
    value_type = type.value_type if pa.types.is_dictionary(type) else type
    keys = order.encode(column_of(pool(type), type)).to_pylist()
    for literal in foreign_literals(type):
        key, place = order.compare_key(literal, type), order.place(literal, type)
        at = order.encode(pa.array([place.value], value_type))[0].as_py()
        for this in keys:
            by_key = this < key.data or (this == key.data and key.tie > 0)
            assert by_key == (this < at or (this == at and place.tie > 0))


@pytest.mark.parametrize(
    ("literal", "type", "value", "tie"),
    [
        (1.5, pa.int64(), 1, 1),
        (-1.5, pa.int64(), -2, 1),
        (Decimal("1e-1000000"), pa.int64(), 0, 1),
        (Decimal("-1e-1000000"), pa.int64(), -1, 1),
        (10**30, pa.int64(), 2**63 - 1, 1),
        (Decimal("-1e1000000"), pa.int64(), -(2**63), -1),
        (300, pa.uint8(), 255, 1),
        (-1, pa.uint8(), 0, -1),
        (math.nan, pa.int8(), 127, 1),
        (10**400, pa.float64(), 1.7976931348623157e308, 1),
        (-(10**400), pa.float64(), -math.inf, 1),
        (2**53 + 1, pa.float64(), float(2**53), 1),
        (Decimal("0.1"), pa.float64(), 0.1, 0),
        (1e300, pa.float32(), 3.4028234663852886e38, 1),
        (0.1, pa.float32(), 0.09999999403953552, 1),
        (0.5, pa.float32(), 0.5, 0),
        (1000, pa.decimal128(3, 1), Decimal("99.9"), 1),
        (0.1, pa.decimal128(5, 2), Decimal("0.10"), 0),
        (0.125, pa.decimal128(5, 2), Decimal("0.12"), 1),
        ("2024-02-29", pa.date32(), 19782, 0),
        (date(2024, 2, 29), pa.date32(), 19782, 0),
        ("2024-02-29T00:00:01", pa.date32(), 19782, 1),
        ("1970-01-01T00:00:01.5", pa.timestamp("s"), 1, 1),
    ],
)
def test_a_literal_is_placed_at_a_value_or_just_above_or_below_it(literal, type, value, tie):
    assert order.place(literal, type) == order.Place(value, tie)


def test_only_a_literal_that_equals_a_value_has_a_key():
    assert order.encode_scalar(1.5, pa.int64()) is None
    assert order.encode_scalar(2.0, pa.int64()) == order.encode_scalar(2, pa.int8())


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("s"), pa.timestamp("us", "Asia/Tokyo")),
    ],
)
def test_keys_do_not_depend_on_the_width_of_a_type(narrow, wide):
    column = pa.array(pool(narrow), narrow)
    assert order.encode(column).equals(order.encode(column.cast(wide)))


def test_timestamps_that_overflow_microseconds_saturate():
    keys = order.encode(
        pa.array([-(2**63), -(2**62), 0, 2**62, 2**63 - 1], pa.timestamp("s"))
    ).to_pylist()
    assert keys == sorted(keys) and keys[1] < keys[2] < keys[3]
    assert isinstance(order.decode(keys[0], pa.timestamp("s")), int)


def test_all_nans_have_one_key_and_both_zeros_have_one_key():
    bits = pa.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], "uint64")
    assert len(set(order.encode(bits.view(pa.float64())).to_pylist())) == 1
    assert len(set(order.encode(pa.array([0.0, -0.0])).to_pylist())) == 1
    assert order.compare_key(-math.nan, pa.float32()) == order.compare_key(math.nan, pa.float64())


def test_times_without_a_zone_are_utc_and_may_be_text():
    moment = datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=2)))
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    same = (moment, naive, "2024-02-29T10:00:00Z", "2024-02-29 12:00:00+02:00")
    type = pa.timestamp("ms", "Europe/Berlin")
    assert len({order.compare_key(value, type) for value in same}) == 1


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
def test_a_literal_of_the_wrong_type_is_refused(value, type):
    with pytest.raises(ValueError):
        order.compare_key(value, type)
    with pytest.raises(ValueError):
        order.place(value, type)


def test_types_without_an_order_are_refused():
    for type in (
        pa.list_(pa.int64()),
        pa.uint64(),
        pa.float16(),
        pa.timestamp("ns"),
        pa.null(),
        pa.struct([]),
    ):
        assert not order.supports(type)
        with pytest.raises(ValueError, match="cannot be compared"):
            order.encode(pa.array([], type))


@given(
    key=st.binary(max_size=12) | st.text(max_size=6).map(str.encode),
    limit=st.integers(0, 12),
    utf8=st.booleans(),
)
def test_truncated_keys_enclose_the_key_and_respect_the_limit(key, limit, utf8):
    low, high = order.truncate_down(key, limit), order.truncate_up(key, limit, utf8)
    assert low <= key and len(low) <= limit
    assert high is None or (high >= key and len(high) <= limit)
    assert len(key) > limit or low == high == key


@given(
    text=st.text(alphabet="a\x7f\u07ff\ud7ff\uffff\U0010ffff", max_size=8), limit=st.integers(0, 12)
)
def test_text_that_is_truncated_up_is_valid_utf8(text, limit):
    high = order.truncate_up(text.encode(), limit, utf8=True)
    assert high is None or high.decode() >= text


def test_a_key_of_only_the_largest_byte_or_character_has_no_upper_bound():
    assert order.truncate_up(b"\xff" * 5, 4, utf8=False) is None
    assert order.truncate_up(("\U0010ffff" * 5).encode(), 8, utf8=True) is None
    assert order.truncate_up(b"a\xff\xff", 2, utf8=False) == b"b"
    assert order.truncate_up("a\ud7ffb".encode(), 4, utf8=True) == "a\ue000".encode()


def test_a_key_of_the_wrong_length_is_refused():
    for type in (pa.int64(), pa.bool_(), pa.decimal128(5, 2), pa.float32(), pa.date32()):
        with pytest.raises(ValueError, match="bytes"):
            order.decode(b"abc", type)

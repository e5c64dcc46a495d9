"""Ordering values of deletes, converted to columns with the types of the ordering fields."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from foreign_tables import COMMIT_TIME_DELETE, deletes, wrapped, wrapped_list

from mdt.errors import Corrupt
from mdt.hudi.read import log_blocks
from mdt.hudi.read.block_rows import deleted_rows

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
MICROS = int(NOW.timestamp()) * 10**6


def ordering_of(ordering, *types):
    """Return the ordering values of deletes, one tuple per delete."""
    block = deletes(1, {f"k{number}": value for number, value in enumerate(ordering)})
    keys, columns = deleted_rows(log_blocks.parse(block, "x.log")[0], types)
    assert keys.to_pylist() == [f"k{number}" for number in range(len(ordering))]
    assert [column.type for column in columns] == list(types)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("name", "value", "type", "expected"),
    [
        ("BooleanWrapper", True, pa.bool_(), True),
        ("IntWrapper", 5, pa.int32(), 5),
        ("IntWrapper", 5, pa.int64(), 5),
        ("LongWrapper", 5, pa.int64(), 5),
        ("LongWrapper", 0, pa.int64(), 0),
        ("LongWrapper", 5, pa.int32(), 5),
        ("LongWrapper", MICROS, pa.timestamp("us", "UTC"), NOW),
        ("LongWrapper", MICROS // 1000, pa.timestamp("ms", "UTC"), NOW),
        ("IntWrapper", 1, pa.date32(), date(1970, 1, 2)),
        ("FloatWrapper", 0.5, pa.float32(), 0.5),
        ("DoubleWrapper", 0.1, pa.float64(), 0.1),
        ("BytesWrapper", b"x", pa.binary(), b"x"),
        ("StringWrapper", "x", pa.string(), "x"),
        ("DateWrapper", date(2024, 2, 29), pa.date32(), date(2024, 2, 29)),
        ("DecimalWrapper", Decimal("1.5"), pa.decimal128(5, 2), Decimal("1.50")),
        ("TimeMicrosWrapper", time(12), pa.time64("us"), time(12)),
        ("TimestampMicrosWrapper", NOW, pa.timestamp("us", "UTC"), NOW),
        ("TimestampMicrosWrapper", NOW, pa.timestamp("ms", "UTC"), NOW),
    ],
)
def test_every_avro_wrapper_is_converted_to_the_type_of_the_column(name, value, type, expected):
    ordering = [COMMIT_TIME_DELETE, wrapped(name, value), None]
    assert ordering_of(ordering, type) == [(None,), (expected,), (None,)]
    assert ordering_of([wrapped_list(wrapped(name, value))], type) == [(expected,)]


def test_list_wrappers_have_a_value_for_each_ordering_field():
    ordering = [
        wrapped_list(wrapped("LongWrapper", 1), wrapped("StringWrapper", "x")),
        COMMIT_TIME_DELETE,
        wrapped_list(wrapped("IntWrapper", 0), None),
        None,
        wrapped_list(wrapped("LongWrapper", 2), wrapped("IntWrapper", 0)),
    ]
    expected = [(1, "x"), (None, None), (None, None), (None, None), (2, None)]
    assert ordering_of(ordering, pa.int64(), pa.string()) == expected
    assert ordering_of(ordering[2:3], pa.int32(), pa.string()) == [(0, None)]
    assert ordering_of(ordering[:1], pa.int64(), pa.null()) == [(1, None)]


def test_without_ordering_fields_there_are_no_columns():
    block = deletes(1, {"a": wrapped("StringWrapper", "x")})
    keys, columns = deleted_rows(log_blocks.parse(block, "x.log")[0], [])
    assert (keys.to_pylist(), columns) == (["a"], [])


@pytest.mark.parametrize(
    ("ordering", "types"),
    [
        (wrapped("StringWrapper", "5"), [pa.int64()]),
        (wrapped("LongWrapper", 2**40), [pa.int32()]),
        (wrapped("DecimalWrapper", Decimal("1.555")), [pa.decimal128(5, 2)]),
        (wrapped("BytesWrapper", b"\xff"), [pa.string()]),
        (wrapped("LongWrapper", 5), [pa.int64(), pa.int64()]),
        (wrapped_list(wrapped("LongWrapper", 5)), [pa.int64(), pa.int64()]),
        (wrapped_list(), [pa.int64()]),
    ],
    ids=range(7),
)
def test_ordering_values_that_do_not_fit_the_ordering_fields_are_corrupt(ordering, types):
    with pytest.raises(Corrupt) as caught:
        ordering_of([ordering], *types)
    assert caught.value.path == "x.log"

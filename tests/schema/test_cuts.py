"""Values of Python are stored whole, or refused: pyarrow takes the whole part of a number, the day
of a time, the known fields of a dict.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdt
from mdt import Invalid
from mdt.schema.lossy_casts import first_cut
from mdt.stores.storage import MemoryStorage

NOON, MIDNIGHT = datetime(2024, 1, 1, 12), datetime(2024, 1, 1)
POINT = pa.struct({"a": pa.int8(), "at": pa.timestamp("ms", "UTC")})

CUT: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1.5),
    (pa.int64(), Decimal("1.5")),
    (pa.int64(), Fraction(3, 2)),
    (pa.int32(), np.float32(1.5)),
    (pa.int8(), np.True_),
    (pa.uint8(), -0.5),
    (pa.float32(), 1e300),
    (pa.float16(), 65520.0),
    (pa.float64(), True),
    (pa.date32(), NOON),
    (pa.date64(), NOON),
    (pa.date32(), MIDNIGHT.replace(tzinfo=UTC)),
    (pa.date32(), pd.NaT),
    (pa.date32(), 1.5),
    (pa.time32("s"), time(0, 0, 1, 5)),
    (pa.time32("ms"), time(0, 0, 1, 5)),
    (pa.time64("us"), time(1, tzinfo=UTC)),
    (pa.duration("s"), timedelta(microseconds=5)),
    (pa.duration("us"), pd.Timedelta(5, "ns")),
    (pa.duration("s"), 1.5),
    (pa.timestamp("us"), pd.Timestamp(1, unit="ns")),
    (POINT, {"a": 1, "b": 2}),
    (POINT, {"A": 1}),
    (POINT, {"a": 1.5}),
    (POINT, (1.5, None)),
    (POINT, [("a", 1.5)]),
    (POINT, {"at": MIDNIGHT}),
    (POINT, {"at": datetime(2024, 1, 1, 0, 0, 0, 5, UTC)}),
    (pa.list_(pa.int32()), [1, 1.5]),
    (pa.list_(pa.int32()), np.array([1.5])),
    (pa.list_(POINT), [None, {"b": 1}]),
    (pa.map_(pa.string(), pa.int8()), {"k": 1.5}),
    (pa.map_(pa.string(), pa.int8()), [("k", 1.5)]),
    (pa.map_(pa.string(), POINT), {"k": {"b": 1}}),
]
WHOLE: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 2.0, 2),
    (pa.int64(), Decimal("2.0"), 2),
    (pa.int8(), np.float32(2), 2),
    (pa.float32(), 0.1, float(np.float32(0.1))),
    (pa.float32(), float("inf"), float("inf")),
    (pa.float32(), 3.4028235e38, float(np.finfo(np.float32).max)),
    (pa.float64(), 2, 2.0),
    (pa.date32(), MIDNIGHT, date(2024, 1, 1)),
    (pa.date32(), pd.Timestamp(MIDNIGHT), date(2024, 1, 1)),
    (pa.time32("s"), time(1), time(1)),
    (pa.duration("s"), timedelta(seconds=5), timedelta(seconds=5)),
    (pa.duration("ms"), pd.Timedelta(5, "ms"), timedelta(milliseconds=5)),
    (POINT, {"a": 1}, {"a": 1, "at": None}),
    (POINT, (1, None), {"a": 1, "at": None}),
    (POINT, {}, {"a": None, "at": None}),
    (pa.list_(pa.int32()), [1.0, None], [1, None]),
    (pa.list_(POINT), [None, {"a": 1}], [None, {"a": 1, "at": None}]),
    (pa.map_(pa.string(), POINT), {"k": {"a": 1}}, [("k", {"a": 1, "at": None})]),
    (pa.map_(pa.string(), pa.int8()), {"k": None}, [("k", None)]),
]


def _table(type: pa.DataType) -> mdt.Table:
    return mdt.create(MemoryStorage(), pa.schema([("id", pa.int64()), ("v", type)]), ["id"])


@pytest.mark.parametrize(("type", "value"), CUT, ids=str)
def test_a_value_that_would_be_cut_is_refused(type: pa.DataType, value: Any) -> None:
    table = _table(type)
    for data in ([{"id": 1, "v": None}, {"id": 2, "v": value}], {"id": [1, 2], "v": [None, value]}):
        with pytest.raises(Invalid, match=r"row 1|the types do not fit") as caught:
            table.upsert(data)
        assert "'v'" in caught.value.message
    assert table.snapshot().seq == 0


@pytest.mark.parametrize(("type", "value", "stored"), WHOLE, ids=str)
def test_a_value_that_is_kept_whole_is_stored(type: pa.DataType, value: Any, stored: Any) -> None:
    table = _table(type)
    table.upsert([{"id": 1, "v": None}, {"id": 2, "v": value}])
    assert [row["v"] for row in table.scan(order_by="id").to_arrow().to_pylist()] == [None, stored]


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.int64(), np.array([1, 1.5], object)),
        (pa.int64(), pd.Series([1, 1.5], dtype=object)),
        (pa.int64(), np.array([1, 1.5])),
        (pa.int64(), np.array([True, False])),
        (pa.float32(), np.array([1, 1e300])),
        (pa.date32(), np.array([NOON] * 2, "M8[s]")),
        (pa.date32(), pd.Series([NOON] * 2)),
        (pa.duration("s"), np.array([1, 2], "m8[ms]")),
    ],
    ids=repr,
)
def test_arrays_of_numpy_and_pandas_are_not_cut(type: pa.DataType, values: Any) -> None:
    with pytest.raises(Invalid, match="'v'"):
        _table(type).upsert({"id": [1, 2], "v": values})


def test_what_pandas_lacks_is_null() -> None:
    for type, values in ((pa.int64(), [1, np.nan]), (pa.date32(), [date(2024, 1, 1), pd.NaT])):
        table = _table(type)
        table.upsert({"id": [1, 2], "v": pd.Series(values, dtype=object)})
        assert [row["v"] for row in table.scan(order_by="id").to_arrow().to_pylist()] == [
            values[0],
            None,
        ]


def test_a_key_that_would_be_cut_finds_and_deletes_no_row() -> None:
    table = _table(pa.int64())
    table.upsert([{"id": 1, "v": 1}])
    for call in (
        lambda: table.get(1.5),
        lambda: table.get([1, 1.5]),
        lambda: table.delete([{"id": 1.5}]),
    ):
        with pytest.raises(Invalid, match=r"1\.5"):
            call()
    assert table.get(1.0) == {"id": 1, "v": 1} and table.scan().count() == 1


def test_numbers_with_a_fraction_widen_a_column_of_integers() -> None:
    table = _table(pa.int32())
    table.upsert([{"id": 1, "v": 1}])
    table.upsert([{"id": 2, "v": 1.5}], evolve=True)
    assert table.schema.field("v").type == pa.float64()
    assert [row["v"] for row in table.scan(order_by="id").to_arrow().to_pylist()] == [1.0, 1.5]


@given(
    st.sampled_from([pa.int8(), pa.int64(), pa.uint16(), pa.float64(), pa.list_(pa.int32())]),
    st.lists(
        st.none() | st.integers(-300, 300) | st.floats(-300, 300) | st.decimals(-9, 9, places=1),
        max_size=5,
    ),
)
def test_what_pyarrow_takes_and_nothing_cuts_is_equal(type: pa.DataType, values: list[Any]) -> None:
    given_values = [[value] for value in values] if pa.types.is_list(type) else values
    try:
        found = pa.array(given_values, type).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    assert (first_cut(given_values, type) is None) == (found == given_values)


@pytest.mark.parametrize(("type", "value"), CUT, ids=str)
def test_a_value_that_would_be_cut_is_not_set(type: pa.DataType, value: Any) -> None:
    table = _table(type)
    table.upsert([{"id": 1, "v": None}])
    merge = table.merge([{"id": 1}]).when_matched()
    calls = [
        lambda: table.update_where(values={"v": value}),
        lambda: table.alter(add={"w": type}, defaults={"w": value}),
    ]
    if not isinstance(value, tuple | list | dict):
        calls.append(lambda: merge.update({"v": value}).execute())
    for call in calls:
        with pytest.raises(Invalid):
            call()
    assert table.get(1) == {"id": 1, "v": None} and table.schema.names == ["id", "v"]


def test_a_partition_is_not_named_by_a_value_that_would_be_cut() -> None:
    schema = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("day", pa.date32())])
    table = mdt.create(MemoryStorage(), schema, ["id"], partition_by=["k", "day"])
    row = {"id": 1, "k": 1, "day": date(2024, 1, 1)}
    table.upsert([row])
    for wrong in ({"k": 1.5}, {"day": NOON}, {"k": 1, "day": pd.NaT}):
        for call in (
            table.delete_partition,
            lambda named: table.insert_overwrite([row], partitions=named),
        ):
            with pytest.raises(Invalid, match="another value"):
                call(wrong)
    assert table.delete_partition({"k": 1.0, "day": MIDNIGHT}).deleted == 1

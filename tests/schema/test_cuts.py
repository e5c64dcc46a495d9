"""Python values are stored without loss or refused. pyarrow itself truncates numbers to integers
and times to days, and ignores unknown fields of dicts.
"""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from texts import columns

import mdt
from mdt.schema.alter import type_of
from mdt.schema.lossy_casts import first_truncated
from mdt.stores.storage import MemoryStorage

NOON, MIDNIGHT = datetime(2024, 1, 1, 12), datetime(2024, 1, 1)
POINT = pa.struct({"a": pa.int8(), "at": pa.timestamp("ms", "UTC")})

CUT = [
    ("int64", 1.5),
    ("int64", Decimal("1.5")),
    ("int64", Fraction(3, 2)),
    ("int32", np.float32(1.5)),
    ("int8", np.True_),
    ("uint8", -0.5),
    ("float", 1e300),
    ("halffloat", 65520.0),
    ("double", True),
    ("date32", NOON),
    ("date64", NOON),
    ("date32", MIDNIGHT.replace(tzinfo=UTC)),
    ("date32", pd.NaT),
    ("date32", 1.5),
    ("time32[s]", time(0, 0, 1, 5)),
    ("time32[ms]", time(0, 0, 1, 5)),
    ("time64[us]", time(1, tzinfo=UTC)),
    ("duration[s]", timedelta(microseconds=5)),
    ("duration[us]", pd.Timedelta(5, "ns")),
    ("duration[s]", 1.5),
    ("timestamp[us]", pd.Timestamp(1, unit="ns")),
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
WHOLE = [
    ("int64", 2.0, 2),
    ("int64", Decimal("2.0"), 2),
    ("int8", np.float32(2), 2),
    ("float", 0.1, float(np.float32(0.1))),
    ("float", float("inf"), float("inf")),
    ("float", 3.4028235e38, float(np.finfo(np.float32).max)),
    ("double", 2, 2.0),
    ("date32", MIDNIGHT, date(2024, 1, 1)),
    ("date32", pd.Timestamp(MIDNIGHT), date(2024, 1, 1)),
    ("time32[s]", time(1), time(1)),
    ("duration[s]", timedelta(seconds=5), timedelta(seconds=5)),
    ("duration[ms]", pd.Timedelta(5, "ms"), timedelta(milliseconds=5)),
    (POINT, {"a": 1}, {"a": 1, "at": None}),
    (POINT, (1, None), {"a": 1, "at": None}),
    (POINT, {}, {"a": None, "at": None}),
    (pa.list_(pa.int32()), [1.0, None], [1, None]),
    (pa.list_(POINT), [None, {"a": 1}], [None, {"a": 1, "at": None}]),
    (pa.map_(pa.string(), POINT), {"k": {"a": 1}}, [("k", {"a": 1, "at": None})]),
    (pa.map_(pa.string(), pa.int8()), {"k": None}, [("k", None)]),
]


def _table(type):
    columns = pa.schema([("id", pa.int64()), ("v", type_of(type))])
    return mdt.create(MemoryStorage(), columns, ["id"])


def _values(table):
    return table.scan(order_by="id").to_arrow()["v"].to_pylist()


@pytest.mark.parametrize(("type", "value"), CUT, ids=str)
def test_a_value_that_would_be_truncated_is_refused_everywhere(type, value):
    table = _table(type)
    for data in ([{"id": 1, "v": None}, {"id": 2, "v": value}], {"id": [1, 2], "v": [None, value]}):
        error = refused("'v'", table.upsert, data)
        assert "row 1" in error.message or "the types do not fit" in error.message
    table.upsert([{"id": 1, "v": None}])
    merge = table.merge([{"id": 1}]).when_matched()
    refused("", table.update_where, values={"v": value})
    refused("", table.alter, add={"w": table.schema.field("v").type}, defaults={"w": value})
    if not isinstance(value, tuple | list | dict):
        refused("", lambda: merge.update({"v": value}).execute())
    assert table.get(1) == {"id": 1, "v": None} and table.schema.names == ["id", "v"]


@pytest.mark.parametrize(("type", "value", "stored"), WHOLE, ids=str)
def test_a_value_that_fits_is_stored_unchanged(type, value, stored):
    table = _table(type)
    table.upsert([{"id": 1, "v": None}, {"id": 2, "v": value}])
    assert _values(table) == [None, stored]


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("int64", np.array([1, 1.5], object)),
        ("int64", pd.Series([1, 1.5], dtype=object)),
        ("int64", np.array([1, 1.5])),
        ("int64", np.array([True, False])),
        ("float", np.array([1, 1e300])),
        ("date32", np.array([NOON] * 2, "M8[s]")),
        ("date32", pd.Series([NOON] * 2)),
        ("duration[s]", np.array([1, 2], "m8[ms]")),
    ],
    ids=repr,
)
def test_lossy_arrays_of_numpy_and_pandas_are_refused(type, values):
    refused("'v'", _table(type).upsert, {"id": [1, 2], "v": values})


def test_missing_values_of_pandas_become_null():
    for type, values in (("int64", [1, np.nan]), ("date32", [date(2024, 1, 1), pd.NaT])):
        table = _table(type)
        table.upsert({"id": [1, 2], "v": pd.Series(values, dtype=object)})
        assert _values(table) == [values[0], None]


def test_a_key_that_would_be_truncated_neither_finds_nor_deletes_a_row():
    table = _table("int64")
    table.upsert([{"id": 1, "v": 1}])
    for call, key in ((table.get, 1.5), (table.get, [1, 1.5]), (table.delete, [{"id": 1.5}])):
        refused("1.5", call, key)
    assert table.get(1.0) == {"id": 1, "v": 1} and table.scan().count() == 1


def test_an_upsert_of_fractions_with_evolve_widens_an_integer_column():
    table = _table("int32")
    table.upsert([{"id": 1, "v": 1}])
    table.upsert([{"id": 2, "v": 1.5}], evolve=True)
    assert table.schema.field("v").type == pa.float64()
    assert _values(table) == [1.0, 1.5]


@given(
    st.sampled_from([pa.int8(), pa.int64(), pa.uint16(), pa.float64(), pa.list_(pa.int32())]),
    st.lists(
        st.none() | st.integers(-300, 300) | st.floats(-300, 300) | st.decimals(-9, 9, places=1),
        max_size=5,
    ),
)
def test_values_are_reported_as_truncated_exactly_if_pyarrow_changes_them(type, values):
    given_values = [[value] for value in values] if pa.types.is_list(type) else values
    try:
        converted = pa.array(given_values, type).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    assert (first_truncated(given_values, type) is None) == (converted == given_values)


def test_a_partition_value_that_would_be_truncated_is_refused():
    types = columns("id int64, k int32, day date32")
    table = mdt.create(MemoryStorage(), types, ["id"], partition_by=["k", "day"])
    row = {"id": 1, "k": 1, "day": date(2024, 1, 1)}
    table.upsert([row])
    for partition in ({"k": 1.5}, {"day": NOON}, {"k": 1, "day": pd.NaT}):
        refused("would change it", table.delete_partition, partition)
        refused("would change it", table.insert_overwrite, [row], partitions=partition)
    assert table.delete_partition({"k": 1.0, "day": MIDNIGHT}).deleted == 1

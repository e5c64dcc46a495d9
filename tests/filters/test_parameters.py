"""Parameters of filters and values in lists of tests: of Python, NumPy, pandas, polars and Arrow,
never text of the filter.
"""

from __future__ import annotations

import enum
import math
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mdt
from indexes.predicate import And, Leaf, Or
from mdt.errors import Invalid
from mdt.filters.where import parse_where
from mdt.stores.memory import MemoryStorage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
    ]
)
NOON = datetime(2024, 2, 29, 12, 0, 0, 5, UTC)
ONE_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 7


@pytest.mark.parametrize(
    ("column", "given", "plain"),
    [
        ("id", "x", "x"),
        ("id", "o'brien -- '", "o'brien -- '"),
        ("id", np.str_("x"), "x"),
        ("id", Colour.RED, "red"),
        ("id", ONE_ID, str(ONE_ID)),
        ("id", pa.scalar("x"), "x"),
        ("id", pa.scalar("x", pa.large_string()), "x"),
        ("id", None, None),
        ("id", pd.NA, None),
        ("id", pa.scalar(None, pa.string()), None),
        ("raw", ONE_ID, ONE_ID.bytes),
        ("raw", b"x", b"x"),
        ("raw", bytearray(b"x"), b"x"),
        ("raw", memoryview(b"x"), b"x"),
        ("raw", np.bytes_(b"x"), b"x"),
        ("raw", "é", "é".encode()),
        ("n", 5, 5),
        ("n", np.int8(5), 5),
        ("n", np.uint64(2**64 - 1), 2**64 - 1),
        ("n", Size.LARGE, 7),
        ("n", pa.scalar(5, pa.int8()), 5),
        ("n", np.array(5), 5),
        ("n", "5", 5),
        ("f", 0.5, 0.5),
        ("f", np.float32(0.1), 0.10000000149011612),
        ("f", np.float16(0.5), 0.5),
        ("f", np.longdouble(0.5), 0.5),
        ("f", Decimal("0.1"), Decimal("0.1")),
        ("f", math.inf, math.inf),
        ("f", pa.scalar(0.5, pa.float32()), 0.5),
        ("price", Decimal("1.50"), Decimal("1.50")),
        ("price", "1.5", Decimal("1.5")),
        ("flag", True, True),
        ("flag", np.bool_(False), False),
        ("flag", pa.scalar(True), True),
        ("flag", "yes", True),
        ("ts", NOON, NOON),
        ("ts", pd.Timestamp(NOON), NOON),
        ("ts", np.datetime64("2024-02-29T12:00:00.000005"), NOON.replace(tzinfo=None)),
        ("ts", pd.NaT, None),
        ("ts", np.datetime64("NaT", "us"), None),
        ("ts", np.datetime64("2024-02-29T12:00:00.000005000", "ns"), NOON.replace(tzinfo=None)),
        ("ts", pa.scalar(NOON), NOON),
        ("ts", pa.scalar(NOON, pa.timestamp("ns", "UTC")), NOON),
        ("ts", "2024-02-29 12:00:00.000005Z", NOON),
        ("ts", date(2024, 2, 29), date(2024, 2, 29)),
        ("d", date(2024, 2, 29), date(2024, 2, 29)),
        ("d", np.datetime64("2024-02-29"), date(2024, 2, 29)),
        ("d", pa.scalar(date(2024, 2, 29)), date(2024, 2, 29)),
        ("d", "2024-02-29", date(2024, 2, 29)),
        ("d", np.datetime64("2024-02"), date(2024, 2, 1)),
    ],
)
def test_a_value_is_the_plain_one_in_parameters_and_in_lists_of_tests(
    column: str, given: Any, plain: Any
) -> None:
    expected = Leaf(column, "=", plain)
    for found in (
        parse_where(f"{column} = :x", SCHEMA, {"x": given}),
        parse_where([(column, "=", given)], SCHEMA),
    ):
        assert found == expected
        assert isinstance(found, Leaf) and type(found.value) is type(plain)


def test_nan_is_a_value_and_no_null() -> None:
    for given in (
        math.nan,
        np.float64("nan"),
        Decimal("NaN"),
        Decimal("sNaN"),
        pa.scalar(math.nan),
    ):
        found = parse_where("f = :x", SCHEMA, {"x": given})
        assert (
            isinstance(found, Leaf) and isinstance(found.value, float) and math.isnan(found.value)
        )


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        (1, 2),
        np.array([1, 2]),
        np.array([1, 2], np.int8),
        np.array([1, 2], object),
        [np.int8(1), 2],
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        pd.Series([1, 2]),
        pl.Series([1, 2]),
        pa.array([1, 2], pa.int8()),
        range(1, 3) and [*range(1, 3)],
        pd.array([1, 2]),
        pa.array([1, 2, 1]).dictionary_encode()[:2],
    ],
)
def test_a_list_of_values_is_for_in(given: Any) -> None:
    expected = Leaf("n", "in", (1, 2))
    assert parse_where("n in :ids", SCHEMA, {"ids": given}) == expected
    assert parse_where("n in (:ids)", SCHEMA, {"ids": given}) == expected
    assert parse_where([("n", "in", given)], SCHEMA) == expected
    assert parse_where("n not in :ids", SCHEMA, {"ids": given}) == Leaf("n", "not in", (1, 2))
    assert parse_where("n in (0, :ids, :one)", SCHEMA, {"ids": given, "one": 3}) == Leaf(
        "n", "in", (0, 1, 2, 3)
    )


def test_sets_and_empty_lists_are_lists() -> None:
    found = parse_where("n in :ids", SCHEMA, {"ids": {1, 2}})
    assert isinstance(found, Leaf) and isinstance(found.value, tuple) and set(found.value) == {1, 2}
    for empty in ([], np.array([], np.int64), pa.array([], pa.int64()), frozenset()):
        assert parse_where("n in :ids", SCHEMA, {"ids": empty}) == Leaf("n", "in", ())


def test_lists_of_dates_and_moments() -> None:
    days = np.array(["2024-02-29", "NaT"], "M8[D]")
    assert parse_where("d in :x", SCHEMA, {"x": days}) == Leaf("d", "in", (date(2024, 2, 29), None))
    moments = pa.array([NOON, None], pa.timestamp("ns", "UTC"))
    assert parse_where("ts in :x", SCHEMA, {"x": moments}) == Leaf("ts", "in", (NOON, None))
    assert parse_where("ts in :x", SCHEMA, {"x": pd.Series([pd.Timestamp(NOON)])}) == Leaf(
        "ts", "in", (NOON,)
    )


def test_parameters_stand_wherever_literals_do() -> None:
    given = {"low": 1, "high": 9, "part": "a%", "words": "fast car", "no": None}
    assert parse_where("n between :low and :high", SCHEMA, {"low": 1, "high": 9}) == And(
        (Leaf("n", ">=", 1), Leaf("n", "<=", 9))
    )
    assert parse_where(
        "id like :part or match(id, :words) or :low < n and n < -:high or id = :no", SCHEMA, given
    ) == Or(
        (
            Leaf("id", "like", "a%"),
            Leaf("id", "match", "fast car"),
            And((Leaf("n", ">", 1), Leaf("n", "<", -9))),
            Leaf("id", "=", None),
        )
    )
    assert parse_where("id = :x and id != :x", SCHEMA, {"x": "a"}) == And(
        (Leaf("id", "=", "a"), Leaf("id", "!=", "a"))
    )
    assert parse_where("id = ':x'", SCHEMA) == Leaf("id", "=", ":x")
    assert parse_where("n = cast(:x as tinyint)", SCHEMA, {"x": "44"}) == Leaf("n", "=", 44)


@pytest.mark.parametrize(
    ("where", "params", "says"),
    [
        ("n = :x", None, ":x has no value"),
        ("n = :limit", {"limt": 1}, "did you mean :limt"),
        ("n = 1", {"x": 1}, "does not name :x"),
        ("n = :x", {"x": 1, "b": 2, "a": 3}, ":a, :b"),
        ("id = ':x'", {"x": 1}, "does not name :x"),
        (None, {"x": 1}, "does not name :x"),
        ([("n", "=", 1)], {"x": 1}, "does not name :x"),
        ("n = :x", [("x", 1)], "params is a list"),
        ("n = :x", {1: 1}, "the name of a parameter is a int"),
        ("n = : x", {"x": 1}, "name of a parameter is missing"),
        ("n = :'x'", {"x": 1}, "name of a parameter is missing"),
        ("n = :", {}, "name of a parameter is missing"),
        ("n = :x", {"x": [1]}, "the parameter is a list"),
        ("n between :x and 3", {"x": [1]}, "the parameter is a list"),
        ("id like :x", {"x": ["a"]}, "the parameter is a list"),
        ("n = :x", {"x": object()}, "type object"),
        ("n = :x", {"x": time(12)}, "datetime.time"),
        ("n = :x", {"x": timedelta(1)}, "datetime.timedelta"),
        ("n = :x", {"x": 1j}, "type complex"),
        ("n = :x", {"x": np.timedelta64(1, "s")}, "timedelta64"),
        ("n in :x", {"x": [[1]]}, "type list"),
        ("n in :x", {"x": np.ones((2, 2))}, "2 dimensions"),
        ("n in :x", {"x": np.array([1j])}, "complex"),
        ("n in :x", {"x": {"a": 1}}, "type dict"),
        ("n = :x", {"x": 10**5000}, "bits"),
        ("id = :x", {"x": "\ud800"}, "half a character"),
        ("ts = :x", {"x": pd.Timestamp(1)}, "below the microsecond"),
        ("ts = :x", {"x": np.datetime64(1, "ns")}, "below the microsecond"),
        ("ts = :x", {"x": pa.scalar(1, pa.timestamp("ns"))}, "out of range"),
        ("ts = :x", {"x": np.datetime64(10**6, "Y")}, "years 1 to 9999"),
        ("n = :x", {"x": "five"}, "no whole number"),
        ("id = :x", {"x": 5}, "cannot be compared"),
        ("f = :x", {"x": np.longdouble(1) / 3}, "long double"),
        ("ts in :x", {"x": np.array([10**6], "M8[Y]")}, "years 1 to 9999"),
        ("n in :x", {"x": pa.table({"a": [1]})}, ":x cannot be used"),
        ("n in :x", {"x": pd.DataFrame({"a": [1]})}, ":x cannot be used"),
    ],
)
def test_a_parameter_that_is_missing_left_over_or_no_value_is_invalid_and_named(
    where: Any, params: Any, says: str
) -> None:
    with pytest.raises(Invalid) as caught:
        parse_where(where, SCHEMA, params)
    assert says in str(caught.value)


def test_a_value_is_never_sql() -> None:
    for text in ("x' or '1' = '1", "\\", "'", '"', "--", ":y", "%", "null", "; drop table t"):
        assert parse_where("id = :x", SCHEMA, {"x": text}) == Leaf("id", "=", text)


def test_a_scan_takes_parameters() -> None:
    table = mdt.create(MemoryStorage(), SCHEMA.remove(6).remove(5), key=["id"])
    moment = datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=1)))
    rows = [
        {
            "id": f"k{i}",
            "n": i,
            "f": i / 2,
            "ts": moment + timedelta(days=i),
            "d": date(2024, 1, 1 + i),
            "price": Decimal(i),
        }
        for i in range(9)
    ]
    table.bulk_insert(pa.Table.from_pylist(rows, table.schema))
    scan = table.scan(
        "id in :ids and ts > :since",
        params={"ids": np.array(["k3", "k5", "kx"]), "since": moment + timedelta(days=3)},
    )
    assert scan.to_arrow()["id"].to_pylist() == ["k5"]
    assert table.scan("id = :id", ["n"], params={"id": "k4"}).to_arrow().to_pylist() == [{"n": 4}]
    assert table.scan("n >= :n", params={"n": np.int64(6)}).count() == 3
    with pytest.raises(Invalid, match="does not name :n"):
        table.scan(params={"n": 1})


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (pa.compute.field("n") > 5, "write where='(n > 5)'"),
        ((pa.compute.field("n") > 5) & (pa.compute.field("id") == "x"), "(n > 5) and (id == "),
        (pa.compute.field("n").isin([1, 2]), "filter the result"),
        (pl.col("n") > 5, "pl.from_arrow"),
    ],
)
def test_an_expression_of_another_library_is_refused_with_how_to_say_it(
    expression: Any, says: str
) -> None:
    with pytest.raises(mdt.Unsupported) as caught:
        parse_where(expression, SCHEMA)
    assert says in caught.value.hint


def test_what_the_hint_says_about_a_pyarrow_expression_is_a_filter_of_the_same_rows() -> None:
    rows = pa.table({"n": [4, 5, 6], "id": ["x", "y", "x"]})
    table = mdt.create(MemoryStorage(), rows.schema, key=["n", "id"])
    table.upsert(rows)
    for expression in (
        pa.compute.field("n") > 4,
        (pa.compute.field("n") <= 5) & (pa.compute.field("id") == "x"),
        (pa.compute.field("n") == 5) | (pa.compute.field("id") != "y"),
    ):
        with pytest.raises(mdt.Unsupported) as caught:
            table.scan(expression)  # type: ignore[arg-type]
        where = caught.value.hint.removeprefix("write where=").strip("'")
        assert (
            table.scan(where).to_arrow().sort_by("n").equals(rows.filter(expression).sort_by("n"))
        )

"""Parameters of filters, and values in lists of tests, from Python, NumPy, pandas, polars and
Arrow. They are never parsed as SQL.
"""

import enum
import math
import re
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mdt
from indexes.predicate import And, Leaf, matches
from mdt.errors import Invalid
from mdt.filters.where import parse_where
from mdt.stores.memory import MemoryStorage

SCHEMA = pa.schema(
    {
        "id": "string",
        "n": "int64",
        "f": "float64",
        "ts": pa.timestamp("us", "UTC"),
        "d": "date32",
        "raw": "binary",
        "flag": "bool",
        "price": pa.decimal128(10, 2),
    }
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
        ("id", pa.scalar("x", "large_string"), "x"),
        ("id", None, None),
        ("id", pd.NA, None),
        ("id", pa.scalar(None, "string"), None),
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
        ("n", pa.scalar(5, "int8"), 5),
        ("n", np.array(5), 5),
        ("n", "5", 5),
        ("f", 0.5, 0.5),
        ("f", np.float32(0.1), 0.10000000149011612),
        ("f", np.float16(0.5), 0.5),
        ("f", np.longdouble(0.5), 0.5),
        ("f", Decimal("0.1"), Decimal("0.1")),
        ("f", math.inf, math.inf),
        ("f", pa.scalar(0.5, "float32"), 0.5),
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
def test_values_of_other_libraries_equal_python_values_in_parameters_and_lists_of_tests(
    column, given, plain
):
    expected = Leaf(column, "=", plain)
    for leaf in (
        parse_where(f"{column} = :x", SCHEMA, {"x": given}),
        parse_where([(column, "=", given)], SCHEMA),
    ):
        assert leaf == expected
        assert isinstance(leaf, Leaf) and type(leaf.value) is type(plain)


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        (1, 2),
        np.array([1, 2], np.int8),
        np.array([1, 2], object),
        [np.int8(1), 2],
        pa.array([1, 2], "int8"),
        pa.chunked_array([[1], [2]]),
        pd.Series([1, 2]),
        pd.array([1, 2]),
        pl.Series([1, 2]),
        pa.array([1, 2, 1]).dictionary_encode()[:2],
    ],
)
@pytest.mark.parametrize(
    ("where", "op", "expected"),
    [
        ("n in :ids", "in", (1, 2)),
        ("n in (:ids)", "in", (1, 2)),
        ("n not in :ids", "not in", (1, 2)),
        ("n in (0, :ids, 3)", "in", (0, 1, 2, 3)),
    ],
)
def test_sequences_of_all_libraries_are_accepted_after_in(given, where, op, expected):
    assert parse_where(where, SCHEMA, {"ids": given}) == Leaf("n", op, expected)
    assert parse_where([("n", "in", given)], SCHEMA) == Leaf("n", "in", (1, 2))


DAYS = np.array(["2024-02-29", "NaT"], "M8[D]")


@pytest.mark.parametrize(
    ("column", "given", "expected"),
    [
        ("n", {2}, (2,)),
        ("n", [], ()),
        ("n", frozenset(), ()),
        ("n", np.array([], np.int64), ()),
        ("n", pa.array([], "int64"), ()),
        ("d", DAYS, (date(2024, 2, 29), None)),
        ("ts", pa.array([NOON, None], pa.timestamp("ns", "UTC")), (NOON, None)),
        ("ts", pd.Series([pd.Timestamp(NOON)]), (NOON,)),
    ],
)
def test_sets_and_empty_and_temporal_sequences_are_accepted_after_in(column, given, expected):
    assert parse_where(f"{column} in :x", SCHEMA, {"x": given}) == Leaf(column, "in", expected)


@pytest.mark.parametrize(
    "given", [math.nan, np.float64("nan"), Decimal("NaN"), Decimal("sNaN"), pa.scalar(math.nan)]
)
def test_nan_is_a_value_and_not_null(given):
    value = parse_where("f = :x", SCHEMA, {"x": given}).value
    assert isinstance(value, float) and math.isnan(value)


@pytest.mark.parametrize(
    "text", ["x' or '1' = '1", "\\", "'", '"', "--", ":y", "%", "null", "; drop table t"]
)
def test_a_string_value_is_not_parsed_as_sql(text):
    assert parse_where("id = :x", SCHEMA, {"x": text}) == Leaf("id", "=", text)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n between :low and :high", And((Leaf("n", ">=", 1), Leaf("n", "<=", 9)))),
        (":low < n and n < -:high", And((Leaf("n", ">", 1), Leaf("n", "<", -9)))),
        ("id like :part", Leaf("id", "like", "a%")),
        ("match(id, :part)", Leaf("id", "match", "a%")),
        ("id = :no", Leaf("id", "=", None)),
        ("id = :part and id != :part", And((Leaf("id", "=", "a%"), Leaf("id", "!=", "a%")))),
        ("id = ':low'", Leaf("id", "=", ":low")),
        ("n = cast(:text as tinyint)", Leaf("n", "=", 44)),
    ],
)
def test_parameters_are_accepted_wherever_literals_are(where, expected):
    values = {"low": 1, "high": 9, "part": "a%", "no": None, "text": "44"}
    parameter_names = re.findall("(?<!'):([a-z]+)", where)
    assert parse_where(where, SCHEMA, {name: values[name] for name in parameter_names}) == expected


def error_text(where, params):
    with pytest.raises(Invalid) as caught:
        parse_where(where, SCHEMA, params)
    return str(caught.value)


@pytest.mark.parametrize(
    ("where", "params", "says"),
    [
        ("n = :x", None, ":x has no value"),
        ("n = :x", {"x": 10**5000}, "bits"),
        ("n = cast(:x as tinyint)", {"x": 300}, "outside the range of tinyint"),
        ("n = :limit", {"limt": 1}, "did you mean :limt"),
        ("n = 1", {"x": 1}, "does not use :x"),
        ("n = :x", {"x": 1, "b": 2, "a": 3}, ":a, :b"),
        ("id = ':x'", {"x": 1}, "does not use :x"),
        (None, {"x": 1}, "does not use :x"),
        ([("n", "=", 1)], {"x": 1}, "does not use :x"),
        ("n = :x", [("x", 1)], "params must be a dict, not a list"),
        ("n = :x", {1: 1}, "the name of a parameter must be text, not a int"),
        ("n = : x", {"x": 1}, "name of a parameter is missing"),
        ("n = :'x'", {"x": 1}, "name of a parameter is missing"),
        ("n = :", {}, "name of a parameter is missing"),
    ],
)
def test_a_missing_or_unused_parameter_is_refused_by_name(where, params, says):
    assert says in error_text(where, params)


@pytest.mark.parametrize(
    ("where", "x", "says"),
    [
        ("n = :x", [1], "the parameter is a list"),
        ("n between :x and 3", [1], "the parameter is a list"),
        ("id like :x", ["a"], "the parameter is a list"),
        ("n = :x", object(), "type object"),
        ("n = :x", time(12), "datetime.time"),
        ("n = :x", timedelta(1), "datetime.timedelta"),
        ("n = :x", 1j, "type complex"),
        ("n = :x", np.timedelta64(1, "s"), "timedelta64"),
        ("n in :x", [[1]], "type list"),
        ("n in :x", np.ones((2, 2)), "2 dimensions"),
        ("n in :x", np.array([1j]), "complex"),
        ("n in :x", {"a": 1}, "type dict"),
        ("id = :x", "\ud800", "lone surrogate"),
        ("ts = :x", pd.Timestamp(1), "below the microsecond"),
        ("ts = :x", np.datetime64(1, "ns"), "below the microsecond"),
        ("ts = :x", pa.scalar(1, pa.timestamp("ns")), "out of range"),
        ("ts = :x", np.datetime64(10**6, "Y"), "years 1 to 9999"),
        ("n = :x", "five", "not a whole number"),
        ("id = :x", 5, "cannot be compared"),
        ("f = :x", np.longdouble(1) / 3, "long double"),
        ("ts in :x", np.array([10**6], "M8[Y]"), "years 1 to 9999"),
        ("n in :x", pa.table({"a": [1]}), ":x cannot be used"),
        ("n in :x", pd.DataFrame({"a": [1]}), ":x cannot be used"),
    ],
)
def test_an_unsupported_parameter_value_is_refused(where, x, says):
    assert says in error_text(where, {"x": x})


def test_a_scan_accepts_parameters():
    moments = [datetime(2024, 2, day, tzinfo=timezone(timedelta(hours=1))) for day in range(1, 10)]
    rows = pa.table({"id": [f"k{n}" for n in range(9)], "n": range(9), "ts": moments})
    table = mdt.create(MemoryStorage(), rows.schema, key=["id"])
    table.bulk_insert(rows)

    def matching(where, **params):
        return table.scan(where, ["n"], params=params).to_arrow()["n"].to_pylist()

    ids = np.array(["k3", "k5", "kx"])
    assert matching("id in :ids and ts > :since", ids=ids, since=moments[3]) == [5]
    assert matching("id = :id", id="k4") == [4]
    assert matching("n >= :n", n=np.int64(6)) == [6, 7, 8]
    with pytest.raises(Invalid, match="does not use :n"):
        table.scan(params={"n": 1})


N, ID = pa.compute.field("n"), pa.compute.field("id")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (N > 5, "write where='(n > 5)'"),
        ((N > 5) & (ID == "x"), "(n > 5) and (id == "),
        (N.isin([1, 2]), "filter the result"),
        (pl.col("n") > 5, "pl.from_arrow"),
    ],
)
def test_an_expression_of_another_library_is_refused_with_an_equivalent(expression, says):
    with pytest.raises(mdt.Unsupported) as caught:
        parse_where(expression, SCHEMA)
    assert says in caught.value.hint


@pytest.mark.parametrize("expression", [N > 4, (N <= 5) & (ID == "x"), (N == 5) | (ID != "y")])
def test_the_suggested_filter_for_a_pyarrow_expression_selects_the_same_rows(expression):
    rows = pa.table({"n": [4, 5, 6], "id": ["x", "y", "x"]})
    with pytest.raises(mdt.Unsupported) as caught:
        parse_where(expression, rows.schema)
    where = parse_where(caught.value.hint.removeprefix("write where=").strip("'"), rows.schema)
    assert rows.filter(matches(where, rows)).equals(rows.filter(expression))

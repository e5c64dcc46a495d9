"""Expressions in updates and filters have the same values as in Spark's SQL."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from counting import count
from pyspark.errors import PySparkException
from sql_tables import settings

import mdt
from mdt.errors import MdtError, Unsupported
from mdt.filters.expression import parse_expression

ROWS = pa.table(
    {
        "i": pa.array([7, -7, None, 0, 3], pa.int32()),
        "l": pa.array([1, 2, 3, None, -(2**63)], pa.int64()),
        "d": pa.array([0.5, None, -1.5, 2.0, 1e300], pa.float64()),
        "t": pa.array(["a", " B ", None, "", "Ärger"], pa.string()),
        "b": pa.array([True, False, None, True, False]),
    }
)
ATOMS = ["i", "l", "d", "1", "2", "-3", "0", "10", "1.5e0", "null"]
TEXTS = ["t", "'x'", "upper(t)", "trim(t)", "null"]
TESTS = ["i > 0", "t like 'a%'", "b", "d is null", "l in (1, 3) or not b", "i between -1 and 5"]


def number(draw, depth):
    kind = draw.randrange(9 if depth else 1)
    left, right = (number(draw, depth - 1) if depth else draw.choice(ATOMS) for _ in range(2))
    if kind < 4:
        return draw.choice(ATOMS) if not depth else f"({left} {draw.choice('+-*/')} {right})"
    if kind == 4:
        return (
            f"case when {draw.choice(TESTS)} then {left} when {draw.choice(TESTS)} then {right} end"
        )
    if kind == 5:
        return f"coalesce({left}, {right})"
    if kind == 6:
        return f"if({draw.choice(TESTS)}, {left}, {right})"
    if kind == 7:
        return f"nullif({left}, {right})"
    return f"-({left})"


def text(draw):
    parts = [draw.choice(TEXTS) for _ in range(2)]
    return draw.choice(
        [
            f"{parts[0]} || {parts[1]}",
            f"concat({parts[0]}, '-', {parts[1]})",
            f"length({parts[0]})",
            f"coalesce(lower({parts[0]}), 'none')",
        ]
    )


def comparable(values):
    return [
        (
            None
            if value is None
            else (
                repr(float(value))
                if isinstance(value, int | float) and not isinstance(value, bool)
                else value
            )
        )
        for value in values
    ]


DATES = pa.table(
    {
        "id": [str(n) for n in range(8)],
        "i": pa.array([1, 2, -3, None, 0, 7, 400, -12], pa.int32()),
        "d": [0.5, -2.5, 2.675, None, 1e20, float("nan"), -0.0, 1234.56789],
        "m": pa.array(
            [None if n == 3 else Decimal(n * 12345 - 30000).scaleb(-3) for n in range(8)],
            pa.decimal128(12, 3),
        ),
        "t": ["Spark", "a.b", None, "", "ÄRGER o", "2024-02-29", "0001-1-1", "x%y_z"],
        "day": pa.array(
            [date(2024, 1, 31), date(1969, 12, 31), None, date(2024, 2, 29), date(3, 1, 1)]
            + [date(1582, 10, 10), date(9990, 12, 31), date(1900, 3, 31)]
        ),
        "at": pa.array(
            [
                datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
                None,
                datetime(3, 1, 1, 1, 2, 3, tzinfo=UTC),
                datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=UTC),
                datetime(1582, 10, 10, 12, tzinfo=UTC),
                datetime(2024, 2, 29, tzinfo=UTC),
                datetime(2100, 6, 15, 5, 6, 7, tzinfo=UTC),
                datetime(1900, 12, 31, 12, 30, tzinfo=UTC),
            ],
            pa.timestamp("us", "UTC"),
        ),
    }
)
FUNCTIONS = [
    *(f"substr(t, {at}, {n})" for at in (-9, -2, 0, 1, 3) for n in (-1, 0, 2, 99)),
    "substring(t, i)",
    "replace(t, 'r', 'RR')",
    "replace(t, '', 'x')",
    "replace(t, 'a')",
    "regexp_like(t, '^[a-z].b$')",
    "if(t rlike '[0-9]+', 1, 0)",
    "ilike(t, 's%')",
    "if(t ilike 'ä%', 1, 0)",
    *(f"date_trunc('{unit}', at)" for unit in ("year", "quarter", "MON", "week", "dd", "hour")),
    *(f"date_trunc('{unit}', day)" for unit in ("minute", "second", "millisecond", "microsecond")),
    *(f"{part}(at)" for part in ("year", "month", "day", "hour", "minute")),
    *(f"{part}(day)" for part in ("year", "month", "day", "hour", "second")),
    "second(at)",
    "date_add(day, -i)",
    "date_sub(day, 40)",
    "date_add(at, 1)",
    "day - interval '1' month",
    "day + interval 2 weeks",
    "day + interval '3' hours",
    "at + interval 1 month",
    "at - interval '1' year",
    "at + interval 1 day 2 hours 3 minutes",
    "at - interval '1.5' second",
    *(f"round(d, {n})" for n in (-2, 0, 1, 2, 5)),
    "round(d)",
    *(f"round(i, {n})" for n in (-2, -1, 0, 1)),
    *(f"round(m, {n})" for n in (-1, 0, 1, 2, 5)),
    "floor(d)",
    "floor(d / 1e10)",
    "floor(nullif(nullif(d, 1e20), cast('nan' as double)))",
    "ceil(nullif(nullif(d, 1e20), cast('nan' as double)))",
    "floor(cast('nan' as double))",
    "floor(i)",
    "ceil(m)",
    "floor(m)",
    "ceiling(-0.5e0)",
    "sign(i)",
    "signum(m)",
    "sign(d)",
    "sqrt(i)",
    "sqrt(d)",
    "power(i, 2)",
    "power(d, 0.5e0)",
    "pow(1, d)",
    "to_date(at)",
    "to_date('2024-02-30x')",
    "to_date(' 2024-2 ')",
    "to_timestamp(day)",
    "to_timestamp('2024-02-29T12:34:56.789Z')",
    "case when year(day) > 2000 then t || '!' end",
]


@pytest.fixture
def in_utc(spark):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


def comparable_value(value):
    """Return a value in a form that compares equal for equal values, including NaN and decimals of
    several scales.
    """
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return repr(float(value) + 0.0)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


@pytest.mark.timeout(300)
def test_functions_have_the_values_of_spark(in_utc):
    frame = in_utc.createDataFrame(DATES).coalesce(1).persist()
    in_mdt = dict[str, list[object]]()
    for expression in FUNCTIONS:
        try:
            in_mdt[expression] = parse_expression(expression, DATES.schema)(DATES).to_pylist()
        except MdtError:
            with pytest.raises(PySparkException):
                frame.selectExpr(f"({expression}) as v").toArrow()
            count("functions refused, as Spark does")
    on_spark = frame.selectExpr(
        *(f"({expression}) as v{n}" for n, expression in enumerate(in_mdt))
    ).toArrow()
    for (expression, values), column in zip(in_mdt.items(), on_spark.columns, strict=True):
        assert list(map(comparable_value, values)) == list(
            map(comparable_value, column.to_pylist())
        ), expression
        count("functions with the values of Spark")


CONDITIONS = [
    "i < d",
    "not i >= m",
    "i * 2 in (2, 14) or d <=> m",
    "t ilike 's%' or substr(t, 1, 1) = 'a'",
    "case when i > 0 then day else to_date(at) end > date'1970-01-01'",
    "day + interval 1 month < at or at - interval 1 day > day",
    "coalesce(nullif(i, 0), -1) < 0",
    "upper(t) || '!' <> 'SPARK!'",
    "round(d, 1) = d and -i < 2",
    "hour(at) between 1 and 12",
    "cast(i as string) = '7'",
    "(i + 1) % 2 = 0",
]


@pytest.mark.timeout(300)
def test_filters_that_compare_columns_find_the_same_rows_in_process_and_on_spark(in_utc, tmp_path):
    spark = in_utc
    table = mdt.create(tmp_path / "t", DATES.schema, key="id")
    table.upsert(DATES)
    frame = spark.createDataFrame(DATES)
    for where in CONDITIONS:
        expected = sorted(table.scan(where).to_arrow()["id"].to_pylist())
        assert sorted(row.id for row in table.scan(where).to_spark(spark).collect()) == expected, (
            where
        )
        assert sorted(row.id for row in frame.where(where).collect()) == expected, where
    assert table.update_where({"i": "i + 1"}, "i < d", spark=spark).updated == 4
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    with pytest.raises(Unsupported, match="time zone is America"):
        table.scan("hour(at) < i").to_spark(spark)
    without_ansi = settings(spark, {"spark.sql.ansi.enabled": "false"})
    with without_ansi, pytest.raises(Unsupported, match="ANSI"):
        table.scan("i < d").to_spark(spark)


@pytest.mark.timeout(300)
def test_random_expressions_have_the_values_of_spark(spark):
    draw, frame = random.Random(11), spark.createDataFrame(ROWS).coalesce(1).persist()
    texts = [number(draw, draw.randrange(3)) for _ in range(80)] + [text(draw) for _ in range(20)]
    for expression in dict.fromkeys(texts):
        try:
            in_mdt = parse_expression(expression, ROWS.schema)(ROWS).to_pylist()
        except MdtError:
            with pytest.raises(PySparkException):
                frame.selectExpr(f"({expression}) as v").toArrow()
            count("expressions refused, as Spark does")
            continue
        on_spark = frame.selectExpr(f"({expression}) as v").toArrow()["v"].to_pylist()
        assert comparable(in_mdt) == comparable(on_spark), expression
        count("expressions with the values of Spark")

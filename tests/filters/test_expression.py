"""Expressions of updates: the values that they compute, and the errors of invalid ones."""

import random
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from mdt.errors import Invalid, MdtError, Unsupported
from mdt.filters.expression import parse_expression

ROWS = pa.table(
    {
        "i": pa.array([7, -7, None, 0], "int32"),
        "l": pa.array([1, 2, 3, None], "int64"),
        "d": pa.array([0.5, None, -1.5, 2.0], "float64"),
        "m": pa.array(
            [Decimal("1.50"), Decimal("-2.25"), None, Decimal("0.00")], pa.decimal128(10, 2)
        ),
        "t": pa.array(["a", " B ", None, ""], "string"),
        "b": pa.array([True, False, None, True]),
        "s": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}], pa.struct({"x": "int32"})),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i", [7, -7, None, 0]),
        ("i + 1", [8, -6, None, 1]),
        ("1 - i - 1", [-7, 7, None, 0]),
        ("2 + 3 * l", [5, 8, 11, None]),
        ("(2 + 3) * l", [5, 10, 15, None]),
        ("-i", [-7, 7, None, 0]),
        ("- -i", [7, -7, None, 0]),
        ("i - -1", [8, -6, None, 1]),
        ("i % 4", [3, -3, None, 0]),
        ("i % -4", [3, -3, None, 0]),
        ("(i * 0 - 2147483648) % -1", [0, 0, None, 0]),
        ("(i * 0 - 2147483648) % -2147483648", [0, 0, None, 0]),
        ("i % -2147483648", [7, -7, None, 0]),
        ("(l * 0 - 9223372036854775807 - 1) % -l", [0, 0, -2, None]),
        (
            "(l * 0 - 9223372036854775807) % (l * 0 - 9223372036854775807 - 1)",
            [-9223372036854775807] * 3 + [None],
        ),
        ("i / 2", [3.5, -3.5, None, 0.0]),
        ("d / 2", [0.25, None, -0.75, 1.0]),
        ("m + 1", [Decimal("2.50"), Decimal("-1.25"), None, Decimal("1.00")]),
        ("s.x * 2", [2, None, None, 8]),
        ("t || '!' || t", ["a!a", " B ! B ", None, "!"]),
        ("upper(trim(t))", ["A", "B", None, ""]),
        ("length(t)", [1, 3, None, 0]),
        ("concat(t, '-', lower(t))", ["a-a", " B - b ", None, "-"]),
        ("concat(null, '-', t)", [None] * 4),
        ("upper(null) || t", [None] * 4),
        ("null + 1", [None] * 4),
        ("length(null)", [None] * 4),
        ("greatest(null, i)", [7, -7, None, 0]),
        ("case when i > 0 then null else 'x' end", [None, "x", "x", "x"]),
        ("coalesce(i, l, 5)", [7, -7, 3, 0]),
        ("coalesce(l, 1 / (l - 1))", [1, 2, 3, None]),
        ("nullif(i, 0)", [7, -7, None, None]),
        ("greatest(i, l, 2)", [7, 2, 3, 2]),
        ("least(i, l)", [1, -7, 3, 0]),
        ("abs(i)", [7, 7, None, 0]),
        ("if(i > 0, 'up', 'down')", ["up", "down", "down", "down"]),
        ("case when i > 0 then 1 when i < 0 then -1 else 0 end", [1, -1, 0, 0]),
        ("case when b then l end", [1, None, None, None]),
        ("case when i = 0 then 0 else 14 / i end", [2.0, -2.0, None, 0.0]),
        (
            "case when t like 'a%' or d is null then t || '?' else 'no' end",
            ["a?", " B ?", "no", "no"],
        ),
        ("cast(d as int)", [0, None, -1, 2]),
        ("cast(i as double) / cast(4 as double)", [1.75, -1.75, None, 0.0]),
        ("cast(l as string) || 'x'", ["1x", "2x", "3x", None]),
        (
            "cast(i as decimal(12, 3))",
            [Decimal("7.000"), Decimal("-7.000"), None, Decimal("0.000")],
        ),
        ("null", [None] * 4),
        ("'x'", ["x"] * 4),
        ("true", [True] * 4),
        ("date'2026-01-31'", [__import__("datetime").date(2026, 1, 31)] * 4),
        ("`i` /* nothing */ + 0 -- end", [7, -7, None, 0]),
    ],
)
def test_an_expression_computes_a_value_for_each_row(text, expected):
    assert parse_expression(text, ROWS.schema)(ROWS).to_pylist() == expected
    assert len(parse_expression(text, ROWS.schema)(ROWS.slice(0, 0))) == 0
    assert parse_expression(text, ROWS.schema)(ROWS.slice(2, 1)).to_pylist() == expected[2:3]


NUMBERS = pa.table(
    {
        "x": pa.array([float("nan"), 1.0, None, -0.0]),
        "y": pa.array([5.0, float("nan"), 2.0, 0.0]),
        "m": pa.array(
            [Decimal("0.30"), Decimal("2.70"), None, Decimal("0.00")], pa.decimal128(10, 2)
        ),
        "i": pa.array([0, 3, 1, -1], "int32"),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("greatest(x, y)", ["nan", "nan", "2.0", "-0.0"]),
        ("least(x, y)", ["5.0", "1.0", "2.0", "-0.0"]),
        ("greatest(m, i)", ["0.30", "3.00", "1.00", "0.00"]),
        ("least(y, 0.3, i)", ["0.0", "0.3", "0.3", "-1.0"]),
        ("greatest(null, null)", ["None"] * 4),
        ("nullif(x, x)", ["None"] * 4),
        ("nullif(x, y)", ["nan", "1.0", "None", "None"]),
        ("0.3 * 1e0", ["0.3"] * 4),
        ("y * 0.0 + m", ["0.3", "nan", "None", "0.0"]),
        ("case when i > 0 then 0.3 else y end", ["5.0", "0.3", "0.3", "0.0"]),
        ("cast(m as double)", ["0.3", "2.7", "None", "0.0"]),
        ("if(cast(m as double) + 0e0 = 0.3, 2, 3)", ["2", "3", "3", "3"]),
        (
            "9223372036854775808 - i",
            [
                "9223372036854775808",
                "9223372036854775805",
                "9223372036854775807",
                "9223372036854775809",
            ],
        ),
    ],
)
def test_numeric_results_are_those_of_spark(text, expected):
    results = parse_expression(text, NUMBERS.schema)(NUMBERS).to_pylist()
    assert list(map(str, results)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i" + " + 1" * 5000, 5007),
        ("i" + " * 1" * 5000 + " - 1", 6),
        ("length(t" + " || t" * 5000 + ")", 5001),
    ],
    ids=["sums", "products", "texts"],
)
def test_a_chain_of_operators_may_be_long(text, expected):
    rows = pa.table({"i": [7], "t": ["x"]})
    assert parse_expression(text, rows.schema)(rows).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("", Invalid, "missing"),
        ("i +", Invalid, "missing"),
        ("i 1", Invalid, "missing before this"),
        ("j", Invalid, "there is no column 'j'"),
        ("(i", Invalid, "missing"),
        ("i)", Invalid, "missing"),
        ("i > 1", Unsupported, "values are columns"),
        ("i and b", Unsupported, "AND"),
        ("sum(i)", Unsupported, "the function sum"),
        ("case i when 1 then 2 end", Unsupported, "CASE without WHEN"),
        ("case when i > 1 then 2", Invalid, "missing"),
        ("abs(i, l)", Invalid, "does not take 2"),
        ("cast(i as date)", Unsupported, "a cast to date"),
        ("select 1", Unsupported, "SELECT"),
        ("i; drop", Unsupported, "values are"),
        ("~i", Unsupported, "~"),
        (":p", Invalid, "p"),
        (7, Invalid, "must be text"),
        ("(" * 5000 + "i" + ")" * 5000, Invalid, "nested too deeply"),
        ("- " * 50_000 + "i", Invalid, "nested too deeply"),
        ("t || '\ud800'", Invalid, "lone surrogate '\\ud800' at character 6"),
        ("1" + "0" * 90, Invalid, "more digits than a decimal supports"),
    ],
)
def test_an_invalid_expression_is_refused_with_its_cause(text, kind, why):
    with pytest.raises(kind) as error:
        parse_expression(text, ROWS.schema)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "i % l / 0",
        "1 / i",
        "i % 0",
        "i + 2147483647",
        "l * 9223372036854775807",
        "t + 1",
        "-t",
        "t || i",
        "i % 2.5",
        "m / 2",
        "cast(d / 0.1 as tinyint) + cast(300 as tinyint)",
        "abs(-2147483648 + 0 * i)",
    ],
)
def test_an_evaluation_error_names_the_expression(text):
    with pytest.raises(Invalid) as error:
        parse_expression(text, ROWS.schema)(ROWS)
    assert str(error.value).startswith(text)


def test_random_text_is_evaluated_or_refused_with_an_error_of_ours():
    random_source = random.Random(7)
    words = re.findall(
        r"\S+",
        "i l d m t b s.x ( ) , + - * / % || 1 2.5 'x' case when then else end if coalesce cast as"
        " int null and > = like",
    )
    evaluated = 0
    for _ in range(3000):
        text = " ".join(random_source.choices(words, k=random_source.randrange(1, 9)))
        try:
            parse_expression(text, ROWS.schema)(ROWS)
            evaluated += 1
        except MdtError:
            continue
    assert evaluated > 30

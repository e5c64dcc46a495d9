"""Filters: what SQL text means, and how what has no meaning here is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.predicate import And, Leaf, Or, matches
from mdt.errors import Invalid, Unsupported
from mdt.filters.where import parse_where

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int32()),
        ("s", pa.string()),
        ("flag", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("f", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("Fare Amount", pa.float64()),
        ("x", pa.int64()),
        ("X", pa.int64()),
    ]
)
DAY, NOON = date(2024, 1, 2), datetime(2024, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, And(())),
        ([], And(())),
        ("true", And(())),
        ("false", Or(())),
        ("null", Or(())),
        ("not null", Or(())),
        ("a = 1", Leaf("a", "=", 1)),
        ("1 < a", Leaf("a", ">", 1)),
        ("A<>-1", Leaf("a", "!=", -1)),
        ("not a < 5", Leaf("a", ">=", 5)),
        ("(((a))) >= (- 3)", Leaf("a", ">=", -3)),
        ("a <=> null", Leaf("a", "<=>", None)),
        ("a = null", Leaf("a", "=", None)),
        ("flag", Leaf("flag", "=", True)),
        ("not flag", Leaf("flag", "!=", True)),
        ("flag = false", Leaf("flag", "=", False)),
        ("flag is true", Leaf("flag", "<=>", True)),
        ("flag is false", Leaf("flag", "<=>", False)),
        ("flag is not true", Or((Leaf("flag", "!=", True), Leaf("flag", "is null")))),
        ("s is null", Leaf("s", "is null")),
        ("s is not null", Leaf("s", "is not null")),
        ("s like 'a%'", Leaf("s", "like", "a%")),
        ("s not like 'a%'", Leaf("s", "not like", "a%")),
        ("startswith(s, 'ab')", Leaf("s", "starts with", "ab")),
        ("s = 'a''b' ' c'", Leaf("s", "=", "a'b c")),
        ("s = 'a' 'b'", Leaf("s", "=", "ab")),
        ("match(s, 'fast car')", Leaf("s", "match", "fast car")),
        ("not MATCH(S, '西安', 'chinese')", Leaf("s", "not match", ("西安", "chinese"))),
        ("match(s, null)", Leaf("s", "match", None)),
        ("contains(s, '5%_')", Leaf("s", "like", "%5\\%\\_%")),
        ("not contains(s, '')", Leaf("s", "not like", "%%")),
        ("endswith(s, 'x')", Leaf("s", "like", "%x")),
        ("contains(s, null)", Leaf("s", "like", None)),
        ([("s", "match", ("x", "ngram(2)"))], Leaf("s", "match", ("x", "ngram(2)"))),
        ("not s not like 'a%'", Leaf("s", "like", "a%")),
        ("s = 'it''s'", Leaf("s", "=", "it's")),
        ("s = 'é\\n'", Leaf("s", "=", "é\n")),
        ("a in (1, null, 3)", Leaf("a", "in", (1, None, 3))),
        ("a not in (1)", Leaf("a", "not in", (1,))),
        ("a between 1 and 3", And((Leaf("a", ">=", 1), Leaf("a", "<=", 3)))),
        ("a not between 1 and 3", Or((Leaf("a", "<", 1), Leaf("a", ">", 3)))),
        (
            "a = 1 or b = 2 and not (s = 'x' or flag)",
            Or(
                (
                    Leaf("a", "=", 1),
                    And((Leaf("b", "=", 2), Leaf("s", "!=", "x"), Leaf("flag", "!=", True))),
                )
            ),
        ),
        ("d = date '2024-01-02'", Leaf("d", "=", DAY)),
        ("d = cast('2024-01-02' as date)", Leaf("d", "=", DAY)),
        ("ts < timestamp '2024-01-02 12:00:00Z'", Leaf("ts", "<", NOON)),
        ("d > '2024-01-02'", Leaf("d", ">", DAY)),
        ("f < 1.5", Leaf("f", "<", Decimal("1.5"))),
        ("f < 1.5e0", Leaf("f", "<", 1.5)),
        ("f < 2D", Leaf("f", "<", 2.0)),
        ("a = 5L", Leaf("a", "=", 5)),
        ("`fare amount` > 10", Leaf("Fare Amount", ">", 10)),
        ("x = 1", Leaf("x", "=", 1)),
        ("raw = x'00ff'", Leaf("raw", "=", b"\x00\xff")),
        ("a is distinct from 1", Or((Leaf("a", "!=", 1), Leaf("a", "is null")))),
        ("a = 1 -- a comment", Leaf("a", "=", 1)),
        ([("a", "=", 1), ("S", "IS  NULL", None)], And((Leaf("a", "=", 1), Leaf("s", "is null")))),
        ([("a", "in", [1, 2])], Leaf("a", "in", (1, 2))),
        ([("s", "is null")], Leaf("s", "is null")),
    ],
)
def test_a_filter_means(where: Any, expected: object) -> None:
    assert parse_where(where, SCHEMA) == expected


@pytest.mark.parametrize(
    ("where", "caret_at"),
    [
        ("b = 1 and a in (select 1)", "a"),
        ("a = 1 and exists (select 1)", "1)"),
        ("1 = 1", "1"),
        ("a", None),
        ("s like 'a!%' escape '!'", "s"),
        ("'text'", "'text"),
        ("a = 1; b = 2", "a"),
        ("select 1", "1"),
        ("flag = (a = 1)", "a"),
        ("(a = 1) is true", "a"),
        ("a = ?", "a"),
        ("s not like any ('a', 'b')", "s"),
        ("a between symmetric 3 and 1", "a"),
    ],
)
def test_what_is_not_evaluated_is_unsupported_with_a_caret(
    where: str, caret_at: str | None
) -> None:
    with pytest.raises(Unsupported if caret_at else Invalid) as caught:
        parse_where(where, SCHEMA)
    lines = caught.value.message.splitlines()
    assert lines[-2].strip() == where
    assert lines[-1].strip() == "^"
    assert caught.value.hint or not caret_at


@pytest.mark.parametrize(
    ("where", "caret"),
    [
        ("a = = 1", 4),
        ("a =", 3),
        ("a = 1)", 5),
        ("(a = 1", 6),
        ("a b", 2),
        ("a = 1 b c", 6),
        ("raw = x'0g'", 6),
        ("a =\n 1 and and b", None),
        ("s = 'abc", 4),
        ("a in ()", 6),
    ],
)
def test_what_is_not_sql_is_invalid_with_a_caret_at_the_place(
    where: str, caret: int | None
) -> None:
    with pytest.raises(Invalid) as caught:
        parse_where(where, SCHEMA)
    line = caught.value.message.splitlines()[-1]
    assert line.strip() == "^"
    assert "\x1b" not in str(caught.value)
    if caret is not None:
        assert line.index("^") - 2 == caret


def test_an_unknown_column_names_the_nearest_and_shows_the_place() -> None:
    with pytest.raises(Invalid, match="no column 'pricee'") as caught:
        parse_where("a = 1 and pricee > 3", SCHEMA)
    assert "price" in caught.value.hint
    assert caught.value.message.splitlines()[-1].index("^") - 2 == len("a = 1 and ")
    with pytest.raises(Invalid, match="no column"):
        parse_where([("pricee", "=", 1)], SCHEMA)


@pytest.mark.parametrize(
    ("where", "caret", "says"),
    [
        ("match(s)", 0, "2 or 3 arguments"),
        ("a = 1 and match(s, 'x', 'word', 1)", 10, "2 or 3 arguments"),
        ("match(s, 'x', 'klingon')", 14, "no tokenizer"),
        ("match(s, 'x', 'ngram(0)')", 14, "length from 1"),
        ("match(a, 'x')", 9, "must be text"),
        ("match(sss, 'x')", 6, "no column"),
        ("match(s, 1)", 9, "takes text"),
        ("match(s, 'x', 3)", 14, "takes text"),
        ("contains(a, 'x')", 12, "like compares text"),
        ("endswith(s, 1)", 12, "like compares text"),
    ],
)
def test_a_wrong_match_is_invalid_with_a_caret_and_says_why(
    where: str, caret: int, says: str
) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        parse_where(where, SCHEMA)
    assert caught.value.message.splitlines()[-1].index("^") - 2 == caret


@pytest.mark.parametrize(
    "where",
    [
        "match('x', s)",
        "match(s, a)",
        "match(s, 'x') over ()",
        "match(s) against ('x')",
        "s.match(s, 'x')",
        "march(s, 'x')",
    ],
)
def test_what_only_looks_like_a_match_is_refused(where: str) -> None:
    with pytest.raises((Unsupported, Invalid)):
        parse_where(where, SCHEMA)


def test_a_name_that_differs_in_case_from_two_columns_is_refused() -> None:
    schema = pa.schema([("Aa", pa.int64()), ("aA", pa.int64())])
    with pytest.raises(Invalid, match="any of Aa, aA"):
        parse_where("aa = 1", schema)


@pytest.mark.parametrize(
    "where",
    [
        "a = 'x'",
        "s = 1",
        "d = date '2024-13-01'",
        "flag = 1",
        "a like '1%'",
        "a is true",
        "d > 'soon'",
        "s like 'x\\\\'",
        "",
        "  ",
        "(" * 5000 + "a = 1" + ")" * 5000,
        [("a", "~", 1)],
        [("a", "in", 1)],
        [("a",)],
        ["a = 1"],
        [("a", "=", "x")],
    ],
)
def test_a_literal_or_filter_that_cannot_be_compared_is_invalid(where: Any) -> None:
    with pytest.raises(Invalid):
        parse_where(where, SCHEMA)


def test_a_long_chain_is_no_deep_tree() -> None:
    found = parse_where(" or ".join(f"a = {n}" for n in range(500)), SCHEMA)
    assert isinstance(found, Or)
    assert len(found.children) == 500


ATOMS = st.sampled_from(
    [
        "a = 1",
        "a <> 2",
        "2 > a",
        "a >= 1.5",
        "a in (1, 3)",
        "a in (1, null)",
        "a between 1 and 2",
        "a between null and 2",
        "a is null",
        "b < -1",
        "b <= 99999999999",
        "s like 'a%'",
        "s not like '%b_'",
        "s = 'ab'",
        "s > 'b'",
        "s is not null",
        "flag",
        "flag is true",
        "flag is not false",
        "a = null",
        "true",
        "false",
        "f < 0.1",
        "f = 0.5",
        "d < date '2024-01-02'",
        "a is distinct from 1",
        "contains(s, 'b')",
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | inner.map("not ({})".format)
    ),
    max_leaves=6,
)
ROWS = pa.table(
    {
        "a": pa.array([1, 2, 3, None, 0, 1], pa.int64()),
        "b": pa.array([-5, 0, None, 7, -1, 2], pa.int32()),
        "s": ["ab", "xbz", None, "b", "", "abc"],
        "flag": [True, False, None, True, None, False],
        "d": pa.array([date(2024, 1, 1), DAY, None, DAY, date(2025, 1, 1), None]),
        "f": [0.1, 0.05, None, 0.5, -1.0, 7.0],
        "n": list(range(6)),
    }
)


@cache
def reference() -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the rows, as the second opinion."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", ROWS)
    # of Arrow's rows some releases cannot test all conditions
    connection.execute("create table rows as select * from given")
    return connection


@given(CONDITIONS)
@settings(max_examples=150, deadline=None)
def test_rows_kept_are_those_that_duckdb_keeps(condition: str) -> None:
    kept = ROWS.filter(matches(parse_where(condition, ROWS.schema), ROWS))["n"].to_pylist()
    expected = reference().execute(f"select n from rows where {condition} order by n").fetchall()
    assert kept == [row[0] for row in expected]


@given(st.text(alphabet="ab=<>() '\"`%,.1-\n;*/\\", max_size=25) | st.text(max_size=15))
@settings(max_examples=150, deadline=None)
def test_no_text_fails_otherwise_than_as_invalid_or_unsupported(text: str) -> None:
    try:
        parse_where(text, SCHEMA)
    except (Invalid, Unsupported):
        pass

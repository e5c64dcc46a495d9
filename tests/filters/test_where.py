"""Filters as SQL text and as lists of tests: their meaning, and the errors of invalid ones."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from texts import columns

from indexes.predicate import And, Leaf, Or
from mdt.errors import Invalid, Unsupported
from mdt.filters.where import parse_where

SCHEMA = pa.schema(
    {
        "a": "int64",
        "b": "int32",
        "s": "string",
        "flag": "bool",
        "d": "date32",
        "ts": pa.timestamp("us", "UTC"),
        "f": "float64",
        "price": pa.decimal128(10, 2),
        "raw": "binary",
        "Fare Amount": "float64",
        "x": "int64",
        "X": "int64",
    }
)
DAY, NOON = date(2024, 1, 2), datetime(2024, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("where", "column", "op", "value"),
    [
        ("a = 1", "a", "=", 1),
        ("1 < a", "a", ">", 1),
        ("A<>-1", "a", "!=", -1),
        ("not a < 5", "a", ">=", 5),
        ("(((a))) >= (- 3)", "a", ">=", -3),
        ("a <=> null", "a", "<=>", None),
        ("a = null", "a", "=", None),
        ("flag", "flag", "=", True),
        ("not flag", "flag", "!=", True),
        ("flag = false", "flag", "=", False),
        ("flag is true", "flag", "<=>", True),
        ("flag is false", "flag", "<=>", False),
        ("s is null", "s", "is null", None),
        ("s is not null", "s", "is not null", None),
        ("s like 'a%'", "s", "like", "a%"),
        ("s not like 'a%'", "s", "not like", "a%"),
        ("startswith(s, 'ab')", "s", "starts with", "ab"),
        ("s = 'a''b' ' c'", "s", "=", "a'b c"),
        ("s = 'a' 'b'", "s", "=", "ab"),
        ("match(s, 'fast car')", "s", "match", "fast car"),
        ("not MATCH(S, '西安', 'chinese')", "s", "not match", ("西安", "chinese")),
        ("match(s, null)", "s", "match", None),
        ("contains(s, '5%_')", "s", "like", "%5\\%\\_%"),
        ("not contains(s, '')", "s", "not like", "%%"),
        ("endswith(s, 'x')", "s", "like", "%x"),
        ("contains(s, null)", "s", "like", None),
        ([("s", "match", ("x", "ngram(2)"))], "s", "match", ("x", "ngram(2)")),
        ("not s not like 'a%'", "s", "like", "a%"),
        ("s = 'it''s'", "s", "=", "it's"),
        ("s = 'é\\n'", "s", "=", "é\n"),
        ("a in (1, null, 3)", "a", "in", (1, None, 3)),
        ("a not in (1)", "a", "not in", (1,)),
        ("d = date '2024-01-02'", "d", "=", DAY),
        ("d = cast('2024-01-02' as date)", "d", "=", DAY),
        ("ts < timestamp '2024-01-02 12:00:00Z'", "ts", "<", NOON),
        ("d > '2024-01-02'", "d", ">", DAY),
        ("f < 1.5", "f", "<", Decimal("1.5")),
        ("f < 1.5e0", "f", "<", 1.5),
        ("f < 2D", "f", "<", 2.0),
        ("a = 5L", "a", "=", 5),
        ("`fare amount` > 10", "Fare Amount", ">", 10),
        ("x = 1", "x", "=", 1),
        ("raw = x'00ff'", "raw", "=", b"\x00\xff"),
        ("a = 1 -- a comment", "a", "=", 1),
        ([("a", "in", [1, 2])], "a", "in", (1, 2)),
        ([("s", "is null")], "s", "is null", None),
    ],
)
def test_a_single_test_is_parsed(where, column, op, value):
    assert parse_where(where, SCHEMA) == Leaf(column, op, value)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, And(())),
        ([], And(())),
        ("true", And(())),
        ("false", Or(())),
        ("null", Or(())),
        ("not null", Or(())),
        ("flag is not true", Or((Leaf("flag", "!=", True), Leaf("flag", "is null")))),
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
        ("a is distinct from 1", Or((Leaf("a", "!=", 1), Leaf("a", "is null")))),
        ([("a", "=", 1), ("S", "IS  NULL", None)], And((Leaf("a", "=", 1), Leaf("s", "is null")))),
    ],
)
def test_a_compound_filter_is_parsed(where, expected):
    assert parse_where(where, SCHEMA) == expected


def caret_offset(error):
    """Return the offset of the caret in the message about one line of SQL."""
    sql, caret = error.message.splitlines()[-2:]
    assert caret.strip() == "^" and "\x1b" not in str(error)
    return caret.index("^") - len(sql) + len(sql.lstrip())


@pytest.mark.parametrize(
    ("where", "kind", "caret", "says"),
    [
        ("b = 1 and a in (select 1)", Unsupported, None, None),
        ("a = 1 and exists (select 1)", Unsupported, None, None),
        ("1 = 1", Unsupported, None, None),
        ("s like 'a!%' escape '!'", Unsupported, None, None),
        ("'text'", Unsupported, None, None),
        ("a = 1; b = 2", Unsupported, None, None),
        ("select 1", Unsupported, None, None),
        ("flag = (a = 1)", Unsupported, None, None),
        ("(a = 1) is true", Unsupported, None, None),
        ("a = ?", Unsupported, None, None),
        ("s not like any ('a', 'b')", Unsupported, None, None),
        ("a between symmetric 3 and 1", Unsupported, None, None),
        ("a", Invalid, None, None),
        ("a =\n 1 and and b", Invalid, None, None),
        ("a = = 1", Invalid, 4, None),
        ("a =", Invalid, 3, None),
        ("a = 1)", Invalid, 5, None),
        ("(a = 1", Invalid, 6, None),
        ("a b", Invalid, 2, None),
        ("a = 1 b c", Invalid, 6, None),
        ("raw = x'0g'", Invalid, 6, None),
        ("s = 'abc", Invalid, 4, None),
        ("a in ()", Invalid, 6, None),
        ("a = 1 and pricee > 3", Invalid, 10, "no column 'pricee'.*\\bprice\\b"),
        ("match(s)", Invalid, 0, "2 or 3 arguments"),
        ("a = 1 and match(s, 'x', 'word', 1)", Invalid, 10, "2 or 3 arguments"),
        ("match(s, 'x', 'klingon')", Invalid, 14, "unknown tokenizer"),
        ("match(s, 'x', 'ngram(0)')", Invalid, 14, "length from 1"),
        ("match(a, 'x')", Invalid, 9, "needs a text column"),
        ("match(sss, 'x')", Invalid, 6, "no column"),
        ("match(s, 1)", Invalid, 9, "takes text"),
        ("match(s, 'x', 3)", Invalid, 14, "takes text"),
        ("contains(a, 'x')", Invalid, 12, "like needs a text column"),
        ("endswith(s, 1)", Invalid, 12, "like needs a text column"),
    ],
)
def test_an_invalid_filter_is_refused_with_a_caret_at_its_position(where, kind, caret, says):
    with pytest.raises(kind) as caught:
        parse_where(where, SCHEMA)
    error = caught.value
    assert caret in (None, caret_offset(error)) and (error.hint or kind is Invalid)
    assert says is None or re.search(says, str(error), re.DOTALL)


@pytest.mark.parametrize(
    "where",
    [
        "match('x', s)",
        "match(s, a)",
        "match(s, 'x') over ()",
        "match(s) against ('x')",
        "s.match(s, 'x')",
        "march(s, 'x')",
        [("pricee", "=", 1)],
    ],
)
def test_text_that_resembles_a_supported_test_is_refused(where):
    with pytest.raises((Unsupported, Invalid)):
        parse_where(where, SCHEMA)


def test_a_column_name_that_matches_two_columns_in_another_case_is_refused():
    with pytest.raises(Invalid, match="ambiguous: Aa, aA"):
        parse_where("aa = 1", columns("Aa int64, aA int64"))


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
def test_incomparable_literals_and_malformed_filters_are_invalid(where):
    with pytest.raises(Invalid):
        parse_where(where, SCHEMA)


def test_a_long_chain_is_parsed_without_deep_nesting():
    predicate = parse_where(" or ".join(f"a = {n}" for n in range(500)), SCHEMA)
    assert predicate == Or(tuple(Leaf("a", "=", n) for n in range(500)))

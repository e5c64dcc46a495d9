"""Long IN lists of plain literals are a single token. They give the same predicate as lists that
are parsed literal by literal.
"""

from datetime import date

import pytest
from texts import columns

import mdt.filters.expression
import mdt.filters.tokens
from indexes.predicate import Leaf
from mdt.errors import Invalid, MdtError
from mdt.filters.tokens import Token, characters_besides_lists, tokenize
from mdt.filters.where import parse_where

SCHEMA = columns("id string, n int64, f float64, d date32[day], flag bool, in int64")
NUMBERS = list(range(-100, 100))
LISTED = ",".join(map(str, NUMBERS))
TEXTS = [f"x, ({n}) -- é" for n in range(200)]


def _kinds(text):
    return [token.kind for token in tokenize(text)]


@pytest.mark.parametrize("between", [",", " ,\n\t"])
@pytest.mark.parametrize(("column", "values"), [("n", NUMBERS), ("f", NUMBERS), ("id", TEXTS)])
def test_a_long_list_is_one_token_and_equals_the_list_as_a_parameter(column, values, between):
    text = f"{column} not IN ( {between.join(map(repr, values))}) and f > 1"
    assert _kinds(text) == ["word", "word", "word", "list", "word", "word", "sign", "number", "end"]
    assert parse_where(text, SCHEMA) == parse_where(
        f"{column} not in :them and f > 1", SCHEMA, {"them": values}
    )


@pytest.mark.parametrize(
    "odd",
    [
        "12L",
        "1.5",
        "null",
        "'5'",
        "'a''b'",
        "'a' 'b'",
        r"'\\'",
        "-- comment\n 1",
        "1e0",
        "- 5",
        "12345678901234567890",
        "n",
        "x",
        ":p",
        "",
    ],
)
def test_a_long_list_with_an_unusual_literal_is_parsed_like_a_short_one(odd):
    """A short and a long list give the same values or the same type of error. The short list is
    never a single token.
    """
    for column, plain in (("n", "1"), ("id", "'1'")):
        results = []
        for count in (3, 300):
            text = f"{column} in ({', '.join([plain] * count)}, {odd})"
            assert ("list" in _kinds(text)) == (count == 300 and odd == "'5'" and column == "id")
            try:
                leaf = parse_where(text, SCHEMA, {"p": 7} if odd == ":p" else None)
                results.append(set(leaf.value))
            except MdtError as error:
                results.append(type(error))
        assert results[0] == results[1]


def test_strings_in_a_long_list_are_converted_to_the_type_of_the_column_or_refused():
    days = [date(2024, 2, day) for day in range(1, 29)] * 5
    listed = ",".join(f"'{day}'" for day in days)
    assert parse_where(f"d in ({listed})", SCHEMA) == Leaf("d", "in", tuple(days))
    for column, values, why in (("n", TEXTS, "not a whole number"), ("flag", NUMBERS, "flag")):
        with pytest.raises(Invalid, match=why):
            parse_where(f"{column} in ({','.join(map(repr, values))})", SCHEMA)


@pytest.mark.parametrize("before", ["n not", "`in` ="])
def test_parentheses_after_anything_but_in_are_not_a_list(before):
    assert "list" not in _kinds(f"{before} ({LISTED})")


def test_long_lists_have_a_length_limit_of_their_own(monkeypatch):
    assert characters_besides_lists(f"n in ({LISTED}) or n in({LISTED})") == len("n in or n in")
    monkeypatch.setattr(mdt.filters.expression, "WHERE_BYTES_MAX", 100)
    assert parse_where(f"n in ({LISTED})", SCHEMA) == Leaf("n", "in", tuple(NUMBERS))
    with pytest.raises(Invalid, match="the filter has"):
        parse_where(f"n in ({LISTED}) or {' or '.join(['n = 1'] * 20)}", SCHEMA)
    monkeypatch.setattr(mdt.filters.expression, "WHERE_LISTS_BYTES_MAX", 200)
    with pytest.raises(Invalid, match="the filter has"):
        parse_where(f"n in ({LISTED})", SCHEMA)


@pytest.mark.parametrize(("column", "values"), [("n", NUMBERS), ("id", TEXTS)])
def test_a_list_with_too_many_literals_is_refused_without_parsing_the_rest(
    monkeypatch, column, values
):
    for module in (mdt.filters.sql, mdt.filters.tokens):
        monkeypatch.setattr(module, "LITERALS_MAX", 150)
    listed = f"({','.join(map(repr, values))})"
    with pytest.raises(Invalid, match="IN has"):
        parse_where(f"{column} in {listed}", SCHEMA)
    assert len(mdt.filters.tokens.list_items(Token("list", listed, 0))) == 151

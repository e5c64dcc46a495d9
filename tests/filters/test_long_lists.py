"""Long lists after IN: one token where each literal is plain, and the same predicate as literal by
literal.
"""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

import mdt.filters.expression
import mdt.filters.tokens
from indexes.predicate import Leaf
from mdt.errors import Invalid, MdtError
from mdt.filters.tokens import Token, characters_besides_lists, tokenize
from mdt.filters.where import parse_where

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("flag", pa.bool_()),
        ("in", pa.int64()),
    ]
)
NUMBERS = list(range(-100, 100))
TEXTS = [f"x, ({n}) -- é" for n in range(200)]


def _kinds(text: str) -> list[str]:
    return [token.kind for token in tokenize(text)]


@pytest.mark.parametrize("between", [",", " ,\n\t"])
@pytest.mark.parametrize(("column", "values"), [("n", NUMBERS), ("f", NUMBERS), ("id", TEXTS)])
def test_a_long_list_is_one_token_and_the_same_predicate_as_a_parameter(
    column: str, values: list[object], between: str
) -> None:
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
def test_a_list_with_another_literal_is_read_as_ever(odd: str) -> None:
    """Both ways lead to the same predicate or the same kind of error; the short list is never one
    token.
    """
    for column, plain in (("n", "1"), ("id", "'1'")):
        found: list[object] = []
        for count in (3, 300):
            text = f"{column} in ({', '.join([plain] * count)}, {odd})"
            assert ("list" in _kinds(text)) == (count == 300 and odd == "'5'" and column == "id")
            try:
                leaf = parse_where(text, SCHEMA, {"p": 7} if odd == ":p" else None)
                assert isinstance(leaf, Leaf)
                assert isinstance(leaf.value, tuple)
                found.append(set(leaf.value))
            except MdtError as error:
                found.append(type(error))
        assert found[0] == found[1]


def test_text_and_dates_in_a_long_list_are_read_as_values_of_the_column() -> None:
    days = [f"'2024-02-{day:02}'" for day in range(1, 29)] * 5
    found = parse_where(f"d in ({','.join(days)})", SCHEMA)
    assert isinstance(found, Leaf)
    assert found.value == tuple(date(2024, 2, day) for day in range(1, 29)) * 5
    with pytest.raises(Invalid, match="no whole number"):
        parse_where(f"n in ({','.join(map(repr, TEXTS))})", SCHEMA)
    with pytest.raises(Invalid, match="flag"):
        parse_where(f"flag in ({','.join(map(str, NUMBERS))})", SCHEMA)


def test_brackets_after_another_word_are_no_list() -> None:
    assert "list" not in _kinds(f"n not ({','.join(map(str, NUMBERS))})")
    assert "list" not in _kinds(f"`in` = ({','.join(map(str, NUMBERS))})")
    assert _kinds("n in (1, 2)") == [
        "word",
        "word",
        "sign",
        "number",
        "sign",
        "number",
        "sign",
        "end",
    ]


def test_only_what_is_no_long_list_counts_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ",".join(map(str, NUMBERS))
    assert characters_besides_lists(f"n in ({listed}) or n in({listed})") == len("n in or n in")
    monkeypatch.setattr(mdt.filters.expression, "WHERE_BYTES_MAX", 100)
    assert parse_where(f"n in ({listed})", SCHEMA) == parse_where(
        "n in :them", SCHEMA, {"them": NUMBERS}
    )
    with pytest.raises(Invalid, match="the filter has"):
        parse_where(f"n in ({listed}) or {' or '.join(['n = 1'] * 20)}", SCHEMA)
    monkeypatch.setattr(mdt.filters.expression, "WHERE_LISTS_BYTES_MAX", 200)
    with pytest.raises(Invalid, match="the filter has"):
        parse_where(f"n in ({listed})", SCHEMA)


def test_more_literals_than_are_taken_are_refused_and_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mdt.filters.sql, "LITERALS_MAX", 150)
    monkeypatch.setattr(mdt.filters.tokens, "LITERALS_MAX", 150)
    for column, values in (("n", NUMBERS), ("id", TEXTS)):
        with pytest.raises(Invalid, match="IN has"):
            parse_where(f"{column} in ({','.join(map(repr, values))})", SCHEMA)
        token = Token("list", f"({','.join(map(repr, values))})", 0)
        assert len(mdt.filters.tokens.list_items(token)) == 151

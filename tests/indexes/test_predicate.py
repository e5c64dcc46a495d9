"""The meaning of predicates, compared with a row-by-row model in plain Python."""

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.characters import word_table
from indexes.predicate import (
    And,
    Leaf,
    Or,
    Unknown,
    bind,
    check,
    columns,
    matches,
    negate,
    simplify,
)
from indexes.testing import ALL_TYPES, column_of, foreign_literals, leaves_for, pool, predicates
from indexes.testing import columns as arrays


def rank(value, type, literal=False):
    """Return a value or literal in a form that Python orders as specified."""
    if pa.types.is_decimal(type) and isinstance(value, float):
        value = Decimal(repr(value)) if math.isfinite(value) else value
    if pa.types.is_floating(type) and isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, (float, int, Decimal)) and not isinstance(value, bool):
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)
    if isinstance(value, str) and pa.types.is_temporal(type):
        value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value.encode() if isinstance(value, str) else value


def like(pattern, text):
    wild = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def tokens(text, spec):
    """Return the words, or with ``spec`` the bigrams, of texts without special cases."""
    folded = text.lower()
    if spec:
        return {folded[at : at + 2] for at in range(len(folded) - 1)}
    return set("".join(c if word_table()[ord(c)] else " " for c in folded).split(" ")) - {""}


def evaluate_leaf(leaf, value, type):
    """Return the result of SQL for one row: True, False, or None for unknown."""
    type = type.value_type if pa.types.is_dictionary(type) else type
    op, literal = leaf.op, leaf.value
    if op in ("is null", "is not null"):
        return (value is None) == (op == "is null")
    if op == "<=>" and (value is None or literal is None):
        return value is None and literal is None
    if value is None or literal is None:
        return None
    if op in ("in", "not in"):
        assert isinstance(literal, tuple)
        if any(w is not None and rank(value, type) == rank(w, type) for w in literal):
            return op == "in"
        return None if None in literal else op == "not in"
    if op in ("match", "not match"):
        query, size = literal if isinstance(literal, tuple) else (literal, 0)
        has = tokens(query, size) <= tokens(value, size) if tokens(query, size) else False
        return bool(has) == (op == "match")
    if op in ("starts with", "like", "not like"):
        assert isinstance(literal, (str, bytes))
        return (
            bool(value.startswith(literal))
            if op == "starts with"
            else like(str(literal), value) == (op == "like")
        )
    left, right = rank(value, type), rank(literal, type)
    answers = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "!=": left != right,
    }
    return bool(answers.get(op, left == right))


def evaluate(predicate, row, schema):
    if isinstance(predicate, Leaf):
        return evaluate_leaf(predicate, row[predicate.column], schema.field(predicate.column).type)
    assert not isinstance(predicate, Unknown)
    answers = [evaluate(child, row, schema) for child in predicate.children]
    decisive = isinstance(predicate, Or)
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


@st.composite
def tables(draw):
    size = draw(st.integers(0, 8))
    fields = draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=2))
    drawn = [draw(arrays(type, max_size=8)) for type in fields]
    padded = [column_of([*c.to_pylist(), *[None] * size][:size], c.type) for c in drawn]
    return pa.table(padded, names=[f"c{i}" for i in range(len(fields))])


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
def test_operators_and_their_negations_agree_with_the_row_model_on_corner_values(type):
    column = column_of([*pool(type), None], type)
    table = pa.table({"c": column})
    rows = column.to_pylist()
    for leaf in leaves_for("c", type, [*pool(type)[:14], *foreign_literals(type)]):
        expected = [evaluate_leaf(leaf, value, type) for value in rows]
        assert matches(leaf, table).to_pylist() == [answer is True for answer in expected], leaf
        assert matches(negate(leaf), table).to_pylist() == [
            answer is False for answer in expected
        ], leaf


@given(data=st.data())
def test_trees_and_their_negations_agree_with_the_row_model(data):
    table = data.draw(tables())
    tree = data.draw(predicates(table.schema, table))
    rows = [evaluate(tree, row, table.schema) for row in table.to_pylist()]
    assert matches(tree, table).to_pylist() == [answer is True for answer in rows]
    assert matches(negate(tree), table).to_pylist() == [answer is False for answer in rows]
    assert matches(simplify(tree), table).to_pylist() == [answer is True for answer in rows]
    assert columns(simplify(tree)) <= columns(tree) <= set(table.column_names)


@given(data=st.data())
@settings(max_examples=50)
def test_batches_chunks_and_slices_match_like_the_whole_table(data):
    table = data.draw(tables())
    tree = data.draw(predicates(table.schema, table))
    whole = matches(tree, table)
    assert isinstance(whole, pa.ChunkedArray) and whole.type == pa.bool_() and whole.null_count == 0
    cut = data.draw(st.integers(0, table.num_rows))
    run = bind(tree, table.schema)
    assert run(pa.concat_tables([table[:cut], table[cut:]])).to_pylist() == whole.to_pylist()
    for batch in table[cut:].to_batches():
        assert isinstance(run(batch), pa.BooleanArray)


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("is null", None, [False, True, True, False]),
        ("!=", "b", [True, False, False, True]),
        ("not in", ("b",), [True, False, False, True]),
    ],
)
def test_unused_and_null_dictionary_entries_do_not_match(op, value, expected):
    codes = pa.array([0, 1, None, 0], "int8")
    table = pa.table({"d": pa.DictionaryArray.from_arrays(codes, pa.array(["a", None, "b"]))})
    assert matches(Leaf("d", op, value), table).to_pylist() == expected


def test_an_empty_and_is_true_and_an_empty_or_is_false():
    table = pa.table({"a": [1]})
    assert [matches(tree(()), table).to_pylist() for tree in (And, Or)] == [[True], [False]]
    assert simplify(And((Leaf("a", "=", 1), And((Or(()),))))) == Or(())


def test_unknown_cannot_be_evaluated_but_can_be_negated_and_checked():
    table = pa.table({"a": [1]})
    tree = And((Leaf("a", "=", 1), Unknown("f(a)")))
    check(tree, table.schema)
    assert negate(tree) == Or((Leaf("a", "!=", 1), Unknown("NOT (f(a))")))
    with pytest.raises(ValueError, match=r"f\(a\)"):
        matches(tree, table)


@pytest.mark.parametrize(
    ("column", "op", "value"),
    [
        ("a", "=", "x"),
        ("a", "in", (1, "x")),
        ("a", "like", "x%"),
        ("a", "starts with", "x"),
        ("s", "<", 1),
        ("s", "like", 1),
        ("s", "like", "x\\"),
        ("s", "starts with", b"x"),
        ("s", "match", 1),
        ("a", "match", "x"),
        ("s", "match", ("x", "klingon")),
        ("s", "not match", ("x",)),
        ("s", "match", "\ud800"),
        ("l", "=", 1),
        ("l", "in", ()),
        ("s", "=", "\ud800"),
        ("s", "like", "\ud800%"),
    ],
)
def test_check_names_the_column_and_its_type(column, op, value):
    schema = pa.schema({"a": "int64", "s": "string", "l": pa.list_(pa.int64())})
    message = f"'{column}' has type {schema.field(column).type}"
    with pytest.raises(ValueError, match=re.escape(message)):
        check(Leaf(column, op, value), schema)
    check(Leaf("l", "is null"), schema)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cars red", [0]),
        ("FAST", [0, 1]),
        ("fast car", [1]),
        ("ca", []),
        ("?", []),
        ("", []),
        ("οδος STRASSE", []),
        ("οδοσ straẞe", [4]),
        (("CAR", "ngram(3)"), [0, 1]),
        (("t c", "ngram(3)"), [0, 1]),
        (("ca", "ngram(3)"), []),
        (("西安", "chinese"), [5]),
        ("西安", []),
        (("大唐不夜城", "chinese"), [5]),
        (("大唐", "ngram(2)"), [5]),
        (("", "chinese"), []),
        (None, []),
    ],
)
def test_match_finds_all_words_in_any_order_and_its_negation_is_exact(query, expected):
    texts = ["Red, fast CARS", "a fast car", None, "", "ΟΔΟΣ Straße", "西安的大唐不夜城很热闹"]
    table, leaf = pa.table({"s": texts}), Leaf("s", "match", query)
    assert np.flatnonzero(matches(leaf, table)).tolist() == expected
    rest = np.flatnonzero(matches(negate(leaf), table)).tolist()
    assert rest == [n for n in (0, 1, 3, 4, 5) if n not in expected and query is not None]
    assert negate(negate(leaf)) == leaf


def test_missing_columns_unknown_operators_and_lists_instead_of_tuples_are_refused():
    with pytest.raises(ValueError, match="no column 'b'"):
        check(Leaf("b", "=", 1), pa.schema({"a": "int64"}))
    for op, why in (("==", "unknown operator"), ("in", "tuple")):
        with pytest.raises(ValueError, match=why):
            Leaf("a", op, 1)

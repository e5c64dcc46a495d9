"""What predicates mean, against a row-by-row model in plain Python."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

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
    Predicate,
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


def rank(value: Any, type: pa.DataType, literal: bool = False) -> Any:
    """A value or literal in a form whose Python order is the order that is promised."""
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


def like(pattern: str, text: str) -> bool:
    wild = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def tokens(text: str, spec: int | str) -> set[str]:
    """Words, or with ``spec`` "ngram(2)" pairs, for texts that have no special case."""
    folded = text.lower()
    if spec:
        return {folded[at : at + 2] for at in range(len(folded) - 1)}
    return set("".join(c if word_table()[ord(c)] else " " for c in folded).split(" ")) - {""}


def keeps(leaf: Leaf, value: Any, type: pa.DataType) -> bool | None:
    """SQL's answer for one row: True, False, or None for unknown."""
    type = type.value_type if pa.types.is_dictionary(type) else type
    op, wanted = leaf.op, leaf.value
    if op in ("is null", "is not null"):
        return (value is None) == (op == "is null")
    if op == "<=>" and (value is None or wanted is None):
        return value is None and wanted is None
    if value is None or wanted is None:
        return None
    if op in ("in", "not in"):
        assert isinstance(wanted, tuple)
        if any(w is not None and rank(value, type) == rank(w, type) for w in wanted):
            return op == "in"
        return None if None in wanted else op == "not in"
    if op in ("match", "not match"):
        query, size = wanted if isinstance(wanted, tuple) else (wanted, 0)
        has = tokens(query, size) <= tokens(value, size) if tokens(query, size) else False
        return bool(has) == (op == "match")
    if op in ("starts with", "like", "not like"):
        assert isinstance(wanted, (str, bytes))
        return (
            bool(value.startswith(wanted))
            if op == "starts with"
            else like(str(wanted), value) == (op == "like")
        )
    left, right = rank(value, type), rank(wanted, type)
    answers = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "!=": left != right,
    }
    return bool(answers.get(op, left == right))


def evaluate(predicate: Predicate, row: dict[str, Any], schema: pa.Schema) -> bool | None:
    if isinstance(predicate, Leaf):
        return keeps(predicate, row[predicate.column], schema.field(predicate.column).type)
    assert not isinstance(predicate, Unknown)
    answers = [evaluate(child, row, schema) for child in predicate.children]
    decisive = isinstance(predicate, Or)
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 8))
    fields = draw(st.lists(st.sampled_from(ALL_TYPES), min_size=1, max_size=2))
    drawn = [draw(arrays(type, max_size=8)) for type in fields]
    padded = [column_of([*c.to_pylist(), *[None] * size][:size], c.type) for c in drawn]
    return pa.table(padded, names=[f"c{i}" for i in range(len(fields))])


@pytest.mark.parametrize("type", ALL_TYPES, ids=str)
def test_every_operator_agrees_with_the_row_model_on_corner_values(type: pa.DataType) -> None:
    column = column_of([*pool(type), None], type)
    table = pa.table({"c": column})
    rows = column.to_pylist()
    for leaf in leaves_for("c", type, [*pool(type)[:14], *foreign_literals(type)]):
        expected = [keeps(leaf, value, type) is True for value in rows]
        assert matches(leaf, table).to_pylist() == expected, leaf


@given(data=st.data())
@settings(deadline=None)
def test_trees_and_their_negation_agree_with_the_row_model(data: st.DataObject) -> None:
    table = data.draw(tables())
    tree = data.draw(predicates(table.schema, table))
    rows = [evaluate(tree, row, table.schema) for row in table.to_pylist()]
    assert matches(tree, table).to_pylist() == [answer is True for answer in rows]
    assert matches(negate(tree), table).to_pylist() == [answer is False for answer in rows]
    assert matches(simplify(tree), table).to_pylist() == [answer is True for answer in rows]
    assert columns(simplify(tree)) <= columns(tree) <= set(table.column_names)


@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_batches_chunks_and_slices_match_as_the_table_does(data: st.DataObject) -> None:
    table = data.draw(tables())
    tree = data.draw(predicates(table.schema, table))
    whole = matches(tree, table)
    assert isinstance(whole, pa.ChunkedArray) and whole.type == pa.bool_() and whole.null_count == 0
    cut = data.draw(st.integers(0, table.num_rows))
    run = bind(tree, table.schema)
    assert (
        run(pa.concat_tables([table.slice(0, cut), table.slice(cut)])).to_pylist()
        == whole.to_pylist()
    )
    for batch in table.slice(cut).to_batches():
        assert isinstance(run(batch), pa.BooleanArray)
    assert len(table.filter(whole)) == sum(whole.to_pylist())


def test_nan_is_above_infinity_and_equal_to_itself() -> None:
    table = pa.table({"f": pa.array([1.0, math.inf, math.nan, None], pa.float32())})
    for op, value, expected in [
        (">", math.inf, [2]),
        (">", 0.5, [0, 1, 2]),
        ("<=", math.nan, [0, 1, 2]),
        ("<", math.nan, [0, 1]),
        ("=", math.nan, [2]),
        ("!=", 1.0, [1, 2]),
        ("in", (math.nan, 1.0), [0, 2]),
        ("not in", (math.nan,), [0, 1]),
    ]:
        mask = matches(Leaf("f", op, value), table).to_pylist()
        assert [at for at, keep in enumerate(mask) if keep] == expected, op


def test_unused_and_null_dictionary_entries_do_not_match() -> None:
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0], pa.int8()), pa.array(["a", None, "b"])
    )
    table = pa.table({"d": encoded})
    assert matches(Leaf("d", "is null"), table).to_pylist() == [False, True, True, False]
    assert matches(Leaf("d", "!=", "b"), table).to_pylist() == [True, False, False, True]
    assert matches(Leaf("d", "not in", ("b",)), table).to_pylist() == [True, False, False, True]


def test_a_prefix_of_bytes_can_be_negated() -> None:
    table = pa.table({"b": [b"\xff\xffa", b"\xff", b"a", None]})
    assert matches(negate(Leaf("b", "starts with", b"\xff\xff")), table).to_pylist() == [
        False,
        True,
        True,
        False,
    ]
    assert matches(negate(Leaf("b", "starts with", b"a")), table).to_pylist() == [
        True,
        True,
        False,
        False,
    ]


def test_empty_trees_are_true_and_false() -> None:
    table = pa.table({"a": [1, 2]})
    assert matches(And(()), table).to_pylist() == [True, True]
    assert matches(Or(()), table).to_pylist() == [False, False]
    assert simplify(And((Leaf("a", "=", 1), And((Or(()),))))) == Or(())


def test_unknown_cannot_be_evaluated_but_can_be_negated_and_checked() -> None:
    table = pa.table({"a": [1]})
    tree = And((Leaf("a", "=", 1), Unknown("f(a)")))
    check(tree, table.schema)
    assert negate(tree) == Or((Leaf("a", "!=", 1), Unknown("NOT (f(a))")))
    with pytest.raises(ValueError, match=r"f\(a\)"):
        matches(tree, table)


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf("a", "=", "x"),
        Leaf("a", "in", (1, "x")),
        Leaf("a", "like", "x%"),
        Leaf("a", "starts with", "x"),
        Leaf("s", "<", 1),
        Leaf("s", "like", 1),
        Leaf("s", "like", "x\\"),
        Leaf("s", "starts with", b"x"),
        Leaf("s", "match", 1),
        Leaf("a", "match", "x"),
        Leaf("s", "match", ("x", "klingon")),
        Leaf("s", "not match", ("x",)),
        Leaf("s", "match", "\ud800"),
        Leaf("l", "=", 1),
        Leaf("l", "in", ()),
        Leaf("s", "=", "\ud800"),
        Leaf("s", "like", "\ud800%"),
    ],
)
def test_check_names_column_type_and_value(leaf: Leaf) -> None:
    schema = pa.schema({"a": pa.int64(), "s": pa.string(), "l": pa.list_(pa.int64())})
    with pytest.raises(
        ValueError,
        match=rf"'{leaf.column}' has type {re.escape(str(schema.field(leaf.column).type))}",
    ):
        check(leaf, schema)
    check(Leaf("l", "is null"), schema)


def test_match_finds_all_words_in_any_order_and_its_negation_is_exact() -> None:
    table = pa.table(
        {"s": ["Red, fast CARS", "a fast car", None, "", "ΟΔΟΣ Straße", "西安的大唐不夜城很热闹"]}
    )
    for value, expected in [
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
    ]:
        leaf = Leaf("s", "match", value)
        assert np.flatnonzero(matches(leaf, table).to_numpy()).tolist() == expected, value
        rest = sorted({0, 1, 3, 4, 5} - {*expected})
        assert np.flatnonzero(matches(negate(leaf), table).to_numpy()).tolist() == rest, value
        assert negate(negate(leaf)) == leaf
    for null in (Leaf("s", "match"), negate(Leaf("s", "match"))):
        assert not any(matches(null, table).to_pylist())


def test_missing_columns_unknown_operators_and_bare_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="no column 'b'"):
        check(Leaf("b", "=", 1), pa.schema({"a": pa.int64()}))
    with pytest.raises(ValueError, match="unknown operator"):
        Leaf("a", "==", 1)
    with pytest.raises(ValueError, match="tuple"):
        Leaf("a", "in", 1)

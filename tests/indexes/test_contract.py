"""The table of operators in the docstring of the contract agrees with the code: operators, types of
values, nulls.
"""

import re
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from example_index import LengthIndex

from indexes import base, functions, predicate
from indexes.predicate import OPS, Leaf, call, matches, negate
from indexes.registry import Registry

_ROW = re.compile(r"^    (\S+(?: \S+)*?) {2,}(\S.*?) {2,}(\S.*)$", re.MULTILINE)
_GRID = base.__doc__.partition("::\n")[2].partition("\n\nA literal")[0]
LISTED = {op: (value, text) for op, value, text in _ROW.findall(_GRID) if op != "op"}
VALUES = {
    "literal": "a",
    "literal or None": None,
    "tuple": ("a", None),
    "None": None,
    "str or bytes": "a",
    "str": "a%",
    "str or (str, str)": ("a b", "word"),
}
"""A value of each kind that the table names."""
TEXTS = pa.table({"c": ["a", "b", "a b", "", None]})


@functions.register(columns=1, arguments=(str,), name="is_text_for_contract")
def is_text(column, text):
    return np.array([value == text for value in column.to_pylist()])


def _leaf(op, value):
    if op in ("f", "not f"):
        leaf = call("is_text_for_contract", ["c"], ["a"])
        return negate(leaf) if op == "not f" else leaf
    return Leaf("c", op, value)


def test_the_table_lists_exactly_the_operators_of_the_code():
    assert set(LISTED) == {*OPS, "f", "not f"}
    assert all(value in VALUES for value, _ in LISTED.values())


@pytest.mark.parametrize("op", LISTED)
def test_a_value_of_the_listed_kind_is_accepted_and_others_are_refused(op):
    kind, _ = LISTED[op]
    assert len(matches(_leaf(op, VALUES[kind]), TEXTS)) == len(TEXTS)
    if op in ("f", "not f"):
        with pytest.raises(ValueError):
            predicate.Call("c", "is_text_for_contract", "a")
    elif kind == "tuple":
        for wrong in ("a", None, ["a"]):
            with pytest.raises(ValueError):
                Leaf("c", op, wrong)
    elif kind != "None":
        for wrong in (5, date(2026, 1, 1), object()):
            with pytest.raises(ValueError):
                matches(Leaf("c", op, wrong), TEXTS)
    assert ("bytes" in kind) == (op == "starts with")
    if "bytes" in kind:
        assert matches(Leaf("c", op, b"a"), TEXTS.cast(pa.schema({"c": "binary"}))).to_pylist()[0]


@pytest.mark.parametrize("op", LISTED)
def test_null_rows_match_exactly_where_the_table_says_so(op):
    kind, text = LISTED[op]
    assert matches(_leaf(op, VALUES[kind]), TEXTS)[-1].as_py() == ("null" in text)
    if kind not in ("None", "literal or None", "tuple"):
        assert not any(matches(_leaf(op, None), TEXTS).to_pylist()), (
            "a value of None is null in SQL"
        )


def test_not_in_with_none_and_a_call_with_none_match_no_row():
    null_call = call("is_text_for_contract", ["c"], [None])
    for leaf in (Leaf("c", "not in", ("a", None)), null_call, negate(null_call)):
        assert not any(matches(leaf, TEXTS).to_pylist())


def test_negating_a_call_twice_gives_the_call():
    function_call = call("is_text_for_contract", ["c"], ["a"])
    assert negate(negate(function_call)) == function_call and negate(function_call) != function_call
    assert (function_call.op, function_call.columns, function_call.value) == (
        "is_text_for_contract",
        ("c",),
        ("a",),
    )
    assert negate(function_call).op == "not is_text_for_contract"


def test_an_index_cannot_combine_verdicts_on_row_groups_and_on_rows():
    both = type("Both", (LengthIndex,), {"row_groups": True, "finds_rows": True})
    with pytest.raises(ValueError, match="cannot be combined"):
        Registry(()).register(both)

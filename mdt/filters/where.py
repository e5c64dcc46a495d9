"""Parsing of users' filters, SQL text or a list of tests, into predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from indexes import predicate
from indexes.predicate import And, Call, Leaf, Or, Predicate, Unknown
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.filters import leaves
from mdt.filters.expression import parse_filter
from mdt.filters.parameters import Parameters, is_list, native, native_values

_WITHOUT_VALUE = ("is null", "is not null")
_FORMS = (
    "where takes SQL text such as \"fare > 10\", or a list of tests such as [('fare', '>', 10)]"
)


def parse_where(
    where: str | Sequence[tuple[str, str, object]] | Predicate | None,
    schema: pa.Schema,
    params: Mapping[str, object] | None = None,
) -> Predicate:
    """Return the predicate of a filter on rows of ``schema``.

    where: SQL text; or tuples (column, operator of ``predicate.OPS``, value) joined by AND; or None
        for every row; or a predicate, which is checked. A struct field is written ``address.city``.
        Case is ignored if a name remains unique.
    params: Values for ``:name`` in SQL text. Like values in tuples, they may be Python, NumPy,
        pandas or Arrow values, and lists or arrays for IN.

    Raises Invalid for text that is not SQL, an unknown column, a literal that cannot be compared
    with its column, and a missing or unused parameter. Raises Unsupported for SQL that mdt does not
    evaluate.

    >>> schema = pa.schema({"id": pa.string(), "fare": pa.float64()})
    >>> test = parse_where("FARE > 4 and id in :ids", schema, {"ids": ["a", "b"]})
    >>> test.children[1]
    Leaf(column='id', op='in', value=('a', 'b'))
    >>> test == parse_where([("fare", ">", 4), ("id", "in", ["a", "b"])], schema)
    True
    >>> parse_where("not (fare > 4 or id is null)", schema).children[1]
    Leaf(column='id', op='is not null', value=None)
    >>> parse_where("fair > 4", schema)
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: there is no column 'fair'
      fair > 4
      ^
      hint: did you mean fare?
    """
    parameters = Parameters(params)
    if isinstance(where, str):
        result = parse_filter(where, schema, parameters)
    elif where is None:
        result = And(())
    elif isinstance(where, (list, tuple)):
        result = And(tuple(_test_of(item, schema) for item in where))
    elif isinstance(where, (Leaf, And, Or, Unknown)):
        result = _checked(where, schema)
    else:
        _refuse(where, schema)
    parameters.require_all_used()
    return predicate.simplify(result)


def _test_of(item: object, schema: pa.Schema) -> Leaf:
    """Return the leaf of a tuple in a list filter."""
    if (
        not isinstance(item, (tuple, list))
        or len(item) not in (2, 3)
        or not isinstance(item[0], str)
    ):
        raise Invalid(
            f"{_display(item)} is not a test",
            hint="write [(column, operator, value)], e.g. [('fare', '>', 10)]",
        )
    try:
        op = " ".join(str(item[1]).lower().split())
        if len(item) == 2 and op not in _WITHOUT_VALUE:
            raise ValueError("it has no value")
        value = _value(op, (*item, None)[2])
        return leaves.leaf(leaves.column_name(item[0], schema), op, value, schema)
    except MdtError:
        raise
    except ValueError as error:
        raise Invalid(f"the test {_display(item)} is not valid: {error}") from error


def _checked(test: Predicate, schema: pa.Schema) -> Predicate:
    """Check a predicate against the schema."""
    if isinstance(test, (And, Or)):
        return type(test)(tuple(_checked(child, schema) for child in test.children))
    if isinstance(test, Unknown):
        raise Unsupported(f"{_display(test.text)} is not a test of a column")
    if isinstance(test, Call):
        predicate.check(test, schema)
        return test
    return _test_of((test.column, test.op, test.value), schema)


def _value(op: str, raw: Any) -> object:
    """Return the value of a test as a leaf stores it."""
    if op in _WITHOUT_VALUE and raw is not None:
        raise ValueError(f"{op} takes no value")
    if op in ("match", "not match") and isinstance(raw, (tuple, list)):
        return tuple(native(part) for part in raw)
    if op in ("in", "not in") and is_list(raw):
        return tuple(native_values(raw))
    return native(raw)


def _refuse(where: Any, schema: pa.Schema) -> NoReturn:
    """Raise an error that explains how to write another library's expression in SQL."""
    package = where.__class__.__module__.split(".")[0]
    kind = where.__class__.__name__
    if package == "pyarrow" and kind == "Expression":
        raise Unsupported(
            "pyarrow expressions are not supported as filters", hint=_in_sql(where, schema)
        )
    if package == "polars":
        example = "or filter the result: pl.from_arrow(scan.to_arrow()).filter(expression)"
        raise Unsupported(
            "polars expressions are not supported as filters", hint=f"{_FORMS}; {example}"
        )
    if package == "pyspark":
        raise Unsupported(
            "Spark columns are not supported as filters",
            hint=f"{_FORMS}; or mdt.read(spark, path).where(column)",
        )
    raise Invalid(f"where does not take a {kind}: {_display(where)}", hint=_FORMS)


def _in_sql(expression: Any, schema: pa.Schema) -> str:
    """Return a hint with the SQL of a pyarrow expression, if its text is valid SQL."""
    text = str(expression)
    try:
        parse_filter(text, schema, Parameters(None))
    except MdtError:
        return f"{_FORMS}; or filter the result: scan.to_arrow().filter(expression)"
    return f"write where={text!r}"


def _display(value: object) -> str:
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a user's object may fail in any way
        text = f"a {value.__class__.__name__}"
    if len(text) <= 100:
        return text
    return text[:97] + "..."

"""Conversion of Catalyst filters, as JSON written by ``CatalystJson.java``, to `indexes.predicate`.

Guarantee: the predicate is true for every row that satisfies Spark's filters. Each conversion is
exact: true for the same rows, and null or false for all other rows. Expressions without an exact
conversion become Unknown, so that Not is safe. Casts of a column are ignored only if they preserve
every value and the order. The literal of a leaf may then have another type than the column, which
leaves allow. Spark and mdt both sort NaN above all numbers and treat it as equal to itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from indexes.like import parse_like, quote_like
from indexes.predicate import And, Leaf, Or, Predicate, Unknown, negate
from mdt.engines.spark import patterns

Node = dict[str, Any]
"""One expression: ``op`` (class name), ``type`` (Spark's simple string) and the fields that
``CatalystJson.java`` adds.
"""

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<=>": "<=>"}
_INT_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INT_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_FLOAT_HOLDS = {"float": 24, "double": 53}  # integers up to this many bits are exact
_SCALARS = {
    *_INT_BITS,
    *_FLOAT_HOLDS,
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
    "binary",
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _NotUnderstood(Exception):
    """Internal: this expression cannot be converted."""


def predicate_of(filters: Sequence[Node], columns: Collection[str]) -> Predicate:
    """Return the And of ``filters``, with leaves only on ``columns`` and their fields. O(size of
    the filters).

    ``columns``: the top-level columns whose stored values equal the values in Spark.
    """
    return And(tuple(_convert(node, columns) for node in filters))


def column_of(node: Node, columns: Collection[str]) -> str | None:
    """Return the path of the column or struct field that an expression is, without casts. None if
    it is not one of ``columns``.
    """
    try:
        if node["op"] == "Cast":
            return None
        return _column(node, columns)
    except _NotUnderstood:
        return None


def constant_of(node: Node) -> Any:
    """Return the Python value of a literal, None for null. Raises ValueError for other
    expressions.
    """
    try:
        value = _literal(node, node["type"])
    except _NotUnderstood:
        raise ValueError(f"{node['op']} is not a constant") from None
    if value == 0 and isinstance(value, float):
        return float(node["value"])  # with its sign, which comparisons ignore
    return value


def _convert(node: Node, columns: Collection[str]) -> Predicate:
    try:
        return _convert_known(node, columns)
    except (_NotUnderstood, ValueError):
        return Unknown(str(node["op"]))


def _convert_known(node: Node, columns: Collection[str]) -> Predicate:
    op = node["op"]
    children = node.get("children", [])
    if op in ("And", "Or"):
        parts = tuple(_convert(child, columns) for child in children)
        if op == "And":
            return And(parts)
        return Or(parts)
    if op == "Not":
        return negate(_convert(children[0], columns))
    if op in ("AttributeReference", "GetStructField") and node["type"] == "boolean":
        return Leaf(_column(node, columns), "=", True)
    if op in _COMPARISONS:
        return _comparison(_COMPARISONS[op], children[0], children[1], columns)
    if op in _CONVERTERS:
        return _CONVERTERS[op](node, columns)
    raise _NotUnderstood


def _comparison(op: str, first: Node, second: Node, columns: Collection[str]) -> Predicate:
    if first["op"] == "Literal":
        op, first, second = _MIRRORED[op], second, first
    return Leaf(_column(first, columns), op, _literal(second, first["type"]))


def _is_null(node: Node, columns: Collection[str]) -> Predicate:
    op = {"IsNull": "is null", "IsNotNull": "is not null"}[node["op"]]
    return Leaf(_column(node["children"][0], columns), op)


def _in(node: Node, columns: Collection[str]) -> Predicate:
    first, *literals = node["children"]
    if node["op"] == "InSet":
        values = [_value(raw, first["type"]) for raw in node["values"]]
    else:
        values = [_literal(child, first["type"]) for child in literals]
    return Leaf(_column(first, columns), "in", tuple(values))


def _text(node: Node, columns: Collection[str]) -> Predicate:
    column, literal = node["children"]
    text = _literal(literal, "string")
    if column["type"] != "string" or text is None or node.get("escape", "\\") != "\\":
        raise _NotUnderstood
    name = _column(column, columns)
    if node["op"] == "StartsWith":
        return Leaf(name, "starts with", text)
    if node["op"] == "Like":
        parse_like(text)
        return Leaf(name, "like", text)
    if node["op"] == "RLike":
        return _match(name, text)
    pattern = f"%{quote_like(text)}"
    if node["op"] == "Contains":
        pattern += "%"
    return Leaf(name, "like", pattern)


def _match(name: str, regex: str) -> Leaf:
    """Return the leaf for a ``regex`` that was made from ``match``. Other regular expressions are
    not supported.
    """
    query = patterns.query_of(regex)
    if query is None:
        raise _NotUnderstood
    return Leaf(name, "match", query)


_CONVERTERS: dict[str, Callable[[Node, Collection[str]], Predicate]] = {
    "IsNull": _is_null,
    "IsNotNull": _is_null,
    "In": _in,
    "InSet": _in,
    "StartsWith": _text,
    "EndsWith": _text,
    "Contains": _text,
    "Like": _text,
    "RLike": _text,
}


def _column(node: Node, columns: Collection[str]) -> str:
    """Return the path of a column or struct field, inside casts that preserve values and order."""
    while node["op"] == "Cast" and _keeps_values(node["children"][0]["type"], node["type"]):
        node = node["children"][0]
    if not (node["type"] in _SCALARS or _DECIMAL.fullmatch(node["type"])):
        raise _NotUnderstood
    return ".".join(reversed(_names(node, columns)))


def _names(node: Node, columns: Collection[str]) -> list[str]:
    """Return the names from a field up to its column. Names with a dot are not supported in paths,
    because they are ambiguous.
    """
    names = []
    while node["op"] == "GetStructField":
        names.append(str(node["name"]))
        node = node["children"][0]
    names.append(str(node.get("name")))
    is_column = (
        node["op"] == "AttributeReference" and not node["metadata"] and node["name"] in columns
    )
    if not is_column or (len(names) > 1 and any("." in name for name in names)):
        raise _NotUnderstood
    return names


def _keeps_values(source: str, target: str) -> bool:
    """Return True if every value of ``source`` is the same number in ``target``."""
    to_decimal = _DECIMAL.fullmatch(target)
    if source in _INT_BITS:
        if to_decimal:
            return int(to_decimal[1]) - int(to_decimal[2]) >= _INT_DIGITS[source]
        wider = _INT_BITS.get(target) or _FLOAT_HOLDS.get(target, 0)
        return wider >= _INT_BITS[source]
    of_decimal = _DECIMAL.fullmatch(source)
    if of_decimal and to_decimal:
        scales = int(of_decimal[2]), int(to_decimal[2])
        return (
            scales[1] >= scales[0]
            and int(to_decimal[1]) - scales[1] >= int(of_decimal[1]) - scales[0]
        )
    return source == target or (source, target) == ("float", "double")


def _literal(node: Node, type: str) -> Any:
    """Return the value of a literal that is compared with an expression of ``type``, None for
    null.
    """
    same = node["type"] == type or bool(
        _DECIMAL.fullmatch(node["type"]) and _DECIMAL.fullmatch(type)
    )
    if node["op"] != "Literal" or not (same or node.get("value", "") is None):
        raise _NotUnderstood
    return _value(node["value"], node["type"])


def _value(raw: Any, type: str) -> Any:
    """Return the Python value of Catalyst's ``raw`` value of ``type``, None for null."""
    if raw is None:
        return None
    if isinstance(raw, dict):
        raise _NotUnderstood
    try:
        if type in _INT_BITS or type == "boolean":
            return raw
        if _DECIMAL.fullmatch(type):
            return Decimal(raw)
        return _VALUES[type](raw)
    except (KeyError, ValueError, OverflowError, TypeError) as reason:
        raise _NotUnderstood from reason


def _datetime(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


_VALUES: dict[str, Callable[[Any], Any]] = {
    "double": lambda text: float(text) + 0.0,  # Spark treats -0.0 as 0.0
    "float": (
        lambda text: float(np.float32(text)) + 0.0
    ),  # the text is the shortest one for this float32
    "date": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "timestamp": _datetime,
    "timestamp_ntz": lambda micros: _datetime(micros).replace(tzinfo=None),
    "string": lambda digits: bytes.fromhex(digits).decode(),
    "binary": bytes.fromhex,
}

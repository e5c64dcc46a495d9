"""Filters parsed by sqlglot in Spark's dialect: a second opinion on the structure of random filters
with plain literals.

It translates sqlglot's tree. ``mdt.filters.sql`` has no tree. The two share only the resulting
predicate.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import sqlglot
from sqlglot import exp

from indexes import predicate
from indexes.like import quote_like
from indexes.predicate import And, Leaf, Or, Predicate

_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def translate(text):
    """Return the predicate of a valid filter, with its columns in lower case."""
    return predicate.simplify(_predicate(sqlglot.parse_one(text, dialect="spark"), False))


def _predicate(node, negated):
    if isinstance(node, exp.Paren):
        return _predicate(node.this, negated)
    if isinstance(node, exp.Not):
        return _predicate(node.this, not negated)
    if isinstance(node, (exp.And, exp.Or)):
        children = tuple(_predicate(child, negated) for child in node.flatten(unnest=False))
        return And(children) if isinstance(node, exp.And) != negated else Or(children)
    if isinstance(node, exp.Boolean):
        return And(()) if bool(node.this) != negated else Or(())
    if isinstance(node, exp.Null):
        return Or(())
    result: Predicate
    if isinstance(node, exp.NullSafeNEQ):
        result, negated = _comparison(node, "<=>"), not negated
    else:
        result = _test(node)
    return predicate.negate(result) if negated else result


def _test(node):
    if isinstance(node, exp.Column):
        return Leaf(_column(node), "=", True)
    if type(node) in _COMPARISONS:
        return _comparison(node, _COMPARISONS[type(node)])
    if isinstance(node, exp.In):
        return Leaf(_column(node.this), "in", tuple(_literal(item) for item in node.expressions))
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        return And(
            (
                Leaf(_column(node.this), ">=", _literal(low)),
                Leaf(_column(node.this), "<=", _literal(high)),
            )
        )
    if isinstance(node, exp.Is):
        if isinstance(node.expression, exp.Null):
            return Leaf(_column(node.this), "is null")
        return Leaf(_column(node.this), "<=>", bool(node.expression.this))
    if isinstance(node, exp.Like):
        return Leaf(
            _column(node.this),
            "not like" if node.args.get("negate") else "like",
            _literal(node.expression),
        )
    if isinstance(node, exp.StartsWith):
        return Leaf(_column(node.this), "starts with", _literal(node.expression))
    assert isinstance(node, (exp.Contains, exp.EndsWith)), repr(node)
    rest = "%" if isinstance(node, exp.Contains) else ""
    return Leaf(_column(node.this), "like", f"%{quote_like(_literal(node.expression))}{rest}")


def _comparison(node, op):
    left, right = _unwrapped(node.this), _unwrapped(node.expression)
    if isinstance(left, exp.Column):
        return Leaf(_column(left), op, _literal(right))
    return Leaf(_column(right), _MIRRORED.get(op, op), _literal(left))


def _column(node):
    return ".".join(part.name for part in _unwrapped(node).parts).lower()


def _literal(node):
    node = _unwrapped(node)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        return -_literal(node.this)
    if isinstance(node, exp.Cast):
        kind = node.to.this.name
        return {"DATE": date.fromisoformat, "BIGINT": int, "DOUBLE": float}[kind](
            str(_literal(node.this))
        )
    assert isinstance(node, exp.Literal), repr(node)
    text = str(node.this)
    return (
        text
        if node.is_string
        else (
            int(text) if text.isdecimal() else float(text) if "e" in text.lower() else Decimal(text)
        )
    )


def _unwrapped(node):
    while isinstance(node, exp.Paren):
        node = node.this
    return node

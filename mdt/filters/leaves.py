"""Tests of a column with literals, checked against the schema."""

from __future__ import annotations

import pyarrow as pa

from indexes import paths, predicate
from indexes.like import parse_like
from indexes.predicate import Leaf
from mdt.arguments import named_column
from mdt.filters import literals
from mdt.limits import LIKE_CHARACTERS_MAX, LIKE_WILDCARDS_MAX, LITERAL_BYTES_MAX


def column_name(name: str, schema: pa.Schema) -> str:
    """Return a column or path as the schema spells it. Raises Invalid, with the nearest names, for
    an unknown column.

    >>> column_name("FARE", pa.schema({"fare": pa.float64()}))
    'fare'
    """
    if paths.steps(schema, name) is not None or name in schema.names:
        return name
    return named_column(name, [path for path, _ in paths.addressable(schema)])


def leaf(column: str, op: str, value: object, schema: pa.Schema) -> Leaf:
    """Return a leaf for ``schema``, with literals converted to the column's type.

    value: A value as :func:`mdt.filters.parameters.native` returns it, or a tuple of them for in
        and not in.

    Raises ValueError if a literal cannot be converted.
    """
    _check_size(op, value)
    type = paths.type_at(schema, column)
    try:
        if op in ("in", "not in") and isinstance(value, tuple):
            value = literals.all_converted_for(value, type)
        elif op not in ("like", "not like", "match", "not match"):
            value = literals.converted_for(value, type)
    except ValueError as error:
        raise ValueError(f"column {column!r} has type {type}; {error}") from None
    test = Leaf(column, op, value)
    predicate.check(test, schema)
    return test


def _check_size(op: str, value: object) -> None:
    """Raise ValueError for literals that would take too much time or memory to test."""
    for literal in value if isinstance(value, tuple) else (value,):
        if isinstance(literal, (str, bytes)) and len(literal) > LITERAL_BYTES_MAX:
            raise ValueError(
                f"the value has {len(literal):,} characters, and the limit is {LITERAL_BYTES_MAX:,}"
            )
    if op not in ("like", "not like", "match", "not match") or not isinstance(value, str):
        return
    if len(value) > LIKE_CHARACTERS_MAX:
        raise ValueError(
            f"the pattern has {len(value):,} characters, and the limit is {LIKE_CHARACTERS_MAX:,}"
        )
    wildcards = 0 if "match" in op else sum(not part for part in parse_like(value))
    if wildcards > LIKE_WILDCARDS_MAX:
        raise ValueError(
            f"the pattern has {wildcards:,} wildcards, and the limit is {LIKE_WILDCARDS_MAX}"
        )

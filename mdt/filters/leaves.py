"""One test of a filter: a column by its name, an operator and literals, checked against the schema."""

from __future__ import annotations

import pyarrow as pa

from indexes import paths, predicate
from indexes.predicate import Leaf
from mdt.arguments import named_column
from mdt.filters import literals
from mdt.limits import LIKE_CHARACTERS_MAX


def column_name(name: str, schema: pa.Schema) -> str:
    """Return the own spelling of a column or path; raises ``errors.Invalid`` naming the nearest.

    >>> column_name("FARE", pa.schema({"fare": pa.float64()}))
    'fare'
    """
    if schema.get_field_index(name) >= 0 or name in schema.names or paths.steps(schema, name) is not None:
        return name
    return named_column(name, [known for known, _ in paths.addressable(schema)])


def leaf(column: str, op: str, value: object, schema: pa.Schema) -> Leaf:
    """Return a leaf that can be tested on ``schema``, its literals read as values of the column's type.

    ``value``: as ``parameters.native`` returns it, a tuple of such for in and not in.  Raises ValueError if it cannot be.
    """
    if op in ("like", "not like") and isinstance(value, str) and len(value) > LIKE_CHARACTERS_MAX:
        raise ValueError(f"a pattern of {len(value)} characters; at most {LIKE_CHARACTERS_MAX} are taken")
    type = paths.type_at(schema, column)
    try:
        if op in ("in", "not in") and isinstance(value, tuple):
            value = literals.all_fitted(value, type)
        elif op not in ("like", "not like", "match", "not match"):
            value = literals.fitted(value, type)
    except ValueError as error:
        raise ValueError(f"column {column!r} has type {type}; {error}") from None
    made = Leaf(column, op, value)
    predicate.check(made, schema)
    return made

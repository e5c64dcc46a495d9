"""One test of a filter: a column by its name, an operator and literals, checked against the
schema.
"""

from __future__ import annotations

import pyarrow as pa

from indexes import paths, predicate
from indexes.like import parse_like
from indexes.predicate import Leaf
from mdt.arguments import named_column
from mdt.filters import literals
from mdt.limits import LIKE_CHARACTERS_MAX, LIKE_WILDCARDS_MAX, LITERAL_BYTES_MAX


def column_name(name: str, schema: pa.Schema) -> str:
    """Return the own spelling of a column or path; raises ``errors.Invalid`` naming the nearest.

    >>> column_name("FARE", pa.schema({"fare": pa.float64()}))
    'fare'
    """
    if paths.steps(schema, name) is not None or name in schema.names:
        return name
    return named_column(name, [known for known, _ in paths.addressable(schema)])


def leaf(column: str, op: str, value: object, schema: pa.Schema) -> Leaf:
    """Return a leaf that can be tested on ``schema``, its literals read as values of the column's
    type.

    ``value``: as ``parameters.native`` returns it, a tuple of such for in and not in.  Raises
    ValueError if it cannot be.
    """
    _check_size(op, value)
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


def _check_size(op: str, value: object) -> None:
    """Raise ValueError for literals whose test would take time or memory out of proportion."""
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, (str, bytes)) and len(one) > LITERAL_BYTES_MAX:
            raise ValueError(
                f"a value of {len(one):,} characters; at most {LITERAL_BYTES_MAX:,} are taken"
            )
    if op not in ("like", "not like", "match", "not match") or not isinstance(value, str):
        return
    if len(value) > LIKE_CHARACTERS_MAX:
        raise ValueError(
            f"a pattern of {len(value):,} characters; at most {LIKE_CHARACTERS_MAX:,} are taken"
        )
    wildcards = 0 if "match" in op else sum(not part for part in parse_like(value))
    if wildcards > LIKE_WILDCARDS_MAX:
        raise ValueError(
            f"a pattern with {wildcards:,} wildcards; at most {LIKE_WILDCARDS_MAX} are taken"
        )

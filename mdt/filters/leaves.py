"""One test of a filter: a column by its name, an operator and literals, checked against the schema."""

from __future__ import annotations

import difflib

import pyarrow as pa

from indexes import paths, predicate
from indexes.predicate import Leaf
from mdt.errors import Invalid
from mdt.filters import literals
from mdt.limits import LIKE_CHARACTERS_MAX


def column_name(name: str, schema: pa.Schema) -> str:
    """Return the own spelling of a column or path; raises ``errors.Invalid`` naming the nearest.

    >>> column_name("FARE", pa.schema({"fare": pa.float64()}))
    'fare'
    """
    if schema.get_field_index(name) >= 0 or name in schema.names or paths.steps(schema, name) is not None:
        return name
    names = [known for known, _ in paths.addressable(schema)]
    found = [known for known in names if known.casefold() == name.casefold()]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise Invalid(f"column {name!r} may be any of {', '.join(found)}", hint="write it as the schema does")
    by_fold = {known.casefold(): known for known in names}
    near = [by_fold[fold] for fold in difflib.get_close_matches(name.casefold(), by_fold, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "columns: " + ", ".join(schema.names[:20])
    raise Invalid(f"there is no column {name!r}", hint=hint)


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

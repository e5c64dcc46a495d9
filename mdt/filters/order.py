"""Parsing of ``order_by``, and sorting.

The order is Spark's: NaN is the greatest value, ``-0.0`` equals ``0.0``, text is compared by its
UTF-8 bytes, and nulls are first in ascending and last in descending order by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes import paths, values
from indexes.arrays import numbers, take_rows
from indexes.predicate import Leaf, Or, Predicate
from mdt.errors import Invalid
from mdt.filters.leaves import column_name

OrderBy = str | Sequence[str | tuple[str, ...]] | None
"""SQL text such as ``"ts desc, id"``; a list of such texts and of tuples (column, "asc" or "desc"[,
"nulls first" or "nulls last"]); or None for no order.
"""

_NAME = r"(?:`(?:[^`]|``)+`|[^\s,`.]+)"
_ITEM = re.compile(
    rf"\s*(?P<name>{_NAME}(?:\.{_NAME})*)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*(?:,|$)",
    re.IGNORECASE,
)
_PART = re.compile(_NAME)
_NULLS = {"first": True, "last": False, "nulls first": True, "nulls last": False}
_HINT = 'write order_by="ts desc, id" or order_by=[("ts", "desc"), ("id", "asc", "nulls last")]'
_EXCERPT_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by. ``column`` is a path, and ``type`` the type of its values."""

    column: str
    descending: bool
    nulls_first: bool
    type: pa.DataType

    def __str__(self) -> str:
        default = self.nulls_first != self.descending
        nulls = "" if default else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.column} {'desc' if self.descending else 'asc'}{nulls}"

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the values to sort by [rows]."""
        return paths.column_at(table, self.column)

    def not_behind(self, value: pa.Scalar, *, strict: bool) -> Predicate | None:
        """Return the test that rows before ``value`` pass, or None if any row may be before it.

        Rows equal to ``value`` pass too, unless ``strict``. Rows after ``value`` fail, except for
        values that no literal can express.
        """
        is_null = Leaf(self.column, "is null")
        if not value.is_valid:
            if self.nulls_first:
                if strict:
                    return Or(())
                return is_null
            if strict:
                return Leaf(self.column, "is not null")
            return None
        try:
            literal = value.as_py()
        except (ValueError, OverflowError, pa.ArrowException):
            # a timestamp after the year 9999, or text that is not UTF-8
            return None
        op = (">" if self.descending else "<") + ("" if strict else "=")
        near = Leaf(self.column, op, literal)
        if self.nulls_first:
            return Or((is_null, near))
        return near


def parse_order(order_by: OrderBy, schema: pa.Schema) -> tuple[SortKey, ...]:
    """Return the sort keys of ``order_by`` for columns of ``schema``. Repeated columns are ignored.

    Raises Invalid for text that does not parse, unknown columns, and columns without an order.

    >>> schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    >>> print(*parse_order("ts desc, id nulls last", schema), sep=", ")
    ts desc, id asc nulls last
    """
    if order_by is None:
        return ()
    keys: dict[str, SortKey] = {}
    for name, way, nulls in _items(order_by):
        key = _sort_key(name, way, nulls, schema)
        keys.setdefault(name, key)
    return tuple(keys.values())


def _items(order_by: object) -> Iterator[tuple[str, str, str]]:
    """Yield (column, direction, place of nulls) of each item, "" where it is not given."""
    if isinstance(order_by, str):
        yield from _parse(order_by)
        return
    if not isinstance(order_by, (list, tuple)):
        raise Invalid(
            f"order_by takes text or a list, not a {type(order_by).__name__}",
            hint=_HINT,
        )
    for item in order_by:
        if isinstance(item, str):
            yield from _parse(item)
        elif (
            isinstance(item, (list, tuple))
            and 1 <= len(item) <= 3
            and all(isinstance(part, str) for part in item)
        ):
            name, way, nulls = (*item, "", "")[:3]
            yield name, way.strip().lower(), nulls.strip().lower()
        else:
            raise Invalid(
                f"order_by has an item that is not a column: {_excerpt(repr(item))}", hint=_HINT
            )


def _parse(text: str) -> Iterator[tuple[str, str, str]]:
    at, is_more = 0, True
    while is_more:
        match = _ITEM.match(text, at)
        if match is None:
            raise Invalid(f"order_by cannot be parsed at {_excerpt(text[at:])!r}", hint=_HINT)
        name = ".".join(_unquote(part) for part in _PART.findall(match["name"]))
        yield name, (match["way"] or "").lower(), (match["nulls"] or "").lower()
        at, is_more = match.end(), match[0].endswith(",")


def _unquote(part: str) -> str:
    if part.startswith("`"):
        return part[1:-1].replace("``", "`")
    return part


def _sort_key(name: str, way: str, nulls: str, schema: pa.Schema) -> SortKey:
    if way not in ("", "asc", "desc") or nulls not in ("", *_NULLS):
        raise Invalid(
            f"order_by: {_excerpt(f'{way} {nulls}'.strip())!r} is not an order for column"
            f" {_excerpt(name)!r}",
            hint=_HINT,
        )
    name = column_name(name, schema)
    field = paths.field_at(schema, name)
    assert field is not None, "the name is one of the schema"
    if not values.supports(field.type):
        raise Invalid(
            f"column {name!r} has type {field.type}, which has no order",
            hint="order by a scalar column or field",
        )
    descending = way == "desc"
    nulls_first = _NULLS.get(nulls, not descending)
    return SortKey(name, descending, nulls_first, field.type)


def _excerpt(text: str) -> str:
    if len(text) <= _EXCERPT_CHARACTERS_MAX:
        return text
    return f"{text[:_EXCERPT_CHARACTERS_MAX]}…"


def sorted_rows(table: pa.Table, keys: Sequence[SortKey], limit: int | None = None) -> pa.Table:
    """Return the first ``limit`` rows of ``table`` in the order of ``keys``. The sort is stable.

    O(rows × log(rows)).

    >>> rows = pa.table({"fare": [4.0, None, 9.5, float("nan")]})
    >>> sorted_rows(rows, parse_order("fare desc", rows.schema))["fare"].to_pylist()
    [nan, 9.5, 4.0, None]
    >>> sorted_rows(rows, parse_order("fare", rows.schema), limit=2)["fare"].to_pylist()
    [None, 4.0]
    """
    columns: dict[str, Any] = {}
    ways: list[tuple[str, str]] = []
    for number, key in enumerate(keys):
        column = key.values(table)
        if column.null_count:
            # Arrow has one null placement for all columns, so nulls get a column of their own
            columns[f"null{number}"] = pc.is_null(column).cast(pa.int8())
            ways.append((f"null{number}", "descending" if key.nulls_first else "ascending"))
        columns[f"value{number}"] = _comparable(column)
        ways.append((f"value{number}", "descending" if key.descending else "ascending"))
    order = pc.sort_indices(pa.table(columns), sort_keys=ways)
    return take_rows(table, numbers(order[:limit]))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values that Arrow sorts in our order. Floats become integers, because Arrow sorts NaN
    with the nulls.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if values.kind_of(column.type) != "float":
        return column
    return pa.chunked_array([values.float_words(chunk) for chunk in column.chunks], pa.uint64())

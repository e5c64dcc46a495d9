"""SQL arithmetic on Arrow columns, with Spark's ANSI semantics: overflow and division by zero are
errors.

Values are arrays with a value per row, or a scalar for all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.decimals import as_floating
from mdt.errors import Invalid
from mdt.limits import LITERAL_BYTES_MAX

Datum = Any
"""An Arrow array, chunked array or scalar."""
Value = Callable[[pa.Table], Datum]
FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""Errors of Arrow and Python for values that a function does not accept, besides Invalid."""
Mask = Callable[[pa.Table], Any]
"""The rows of a table that meet a condition. Null counts as false."""


def column_of(table: pa.Table, value: Datum) -> pa.ChunkedArray:
    """Return a value as a column of the table."""
    if isinstance(value, pa.Scalar):
        value = pa.array([value.as_py()], value.type).take(pa.array(np.zeros(len(table), np.int64)))
    if isinstance(value, pa.ChunkedArray):
        return value
    return pa.chunked_array([value])


_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def apply_operator(sign: str, a: Datum, b: Datum) -> Datum:
    """Return ``a sign b`` for a sign of ``+ - * / % ||``."""
    if sign == "||":
        return concatenate(a, b)
    if sign == "/":
        return _divide(a, b)
    if sign == "%":
        return _remainder(a, b)
    _require(sign, a, b, is_number)
    return _CHECKED[sign](*with_common_types(a, b))


def negate(number: Datum) -> Datum:
    """Return the negated value."""
    _require("-", number, number, is_number)
    return pc.negate_checked(number)


def concatenate(*texts: Datum) -> Datum:
    """Concatenate texts. The result is null if any text is null."""
    for text in texts:
        _require("||", text, text, is_text)
    large = [pc.cast(text, pa.large_string()) for text in texts]
    if all(isinstance(text, pa.Scalar) for text in large):
        require_short(sum(len(text.as_py() or "") for text in large))
    return pc.binary_join_element_wise(
        *large, pa.scalar("", pa.large_string()), null_handling="emit_null"
    )


def require_short(characters: int) -> None:
    """Raise Invalid for a text that is longer than the limit of a filter."""
    if characters > LITERAL_BYTES_MAX:
        raise Invalid(
            f"the text would have {characters:,} characters, and the limit is {LITERAL_BYTES_MAX:,}"
        )


def case_when(branches: Sequence[tuple[Mask, Value]], otherwise: Value | None) -> Value:
    """Return CASE: for each row the value of the first true condition. Other values are not
    evaluated.
    """

    def evaluate(table: pa.Table) -> Datum:
        unassigned = np.arange(len(table))
        parts, rows = list[pa.ChunkedArray](), list[np.ndarray[Any, Any]]()
        for holds, value in (*branches, (None, otherwise)):
            remaining = table.take(pa.array(unassigned))
            mask = (
                np.ones(len(remaining), np.bool_) if holds is None else np.asarray(holds(remaining))
            )
            matches = remaining.filter(pa.array(mask))
            values = pa.chunked_array([pa.nulls(len(matches))])
            if value is not None:
                values = column_of(matches, value(matches))
            parts.append(values)
            rows.append(unassigned[mask])
            unassigned = unassigned[~mask]
        return _in_row_order(parts, rows)

    return evaluate


def coalesce(values: Sequence[Value]) -> Value:
    """Return COALESCE: for each row the first value that is not null.

    Each value is evaluated once, for the rows without an earlier value.
    """

    def evaluate(table: pa.Table) -> Datum:
        remaining, rows = table, np.arange(len(table))
        parts, positions = list[pa.ChunkedArray](), list[np.ndarray[Any, Any]]()
        for value in values:
            column = column_of(remaining, value(remaining))
            is_valid = np.asarray(pc.is_valid(column))
            if value is values[-1]:
                is_valid = np.ones(len(column), np.bool_)
            parts.append(column.filter(pa.array(is_valid)))
            positions.append(rows[is_valid])
            remaining, rows = remaining.filter(pa.array(~is_valid)), rows[~is_valid]
        return _in_row_order(parts, positions)

    return evaluate


def _in_row_order(
    parts: Sequence[pa.ChunkedArray], rows: Sequence[np.ndarray[Any, Any]]
) -> pa.ChunkedArray:
    """Concatenate values of disjoint ``rows`` in row order."""
    type = reduce(_common_type, [part.type for part in parts])
    if pa.types.is_floating(type):
        type = _floating(part.type for part in parts)
    cast = [
        as_floating(part, type) if pa.types.is_floating(type) else part.cast(type) for part in parts
    ]
    whole = pa.chunked_array([chunk for part in cast for chunk in part.chunks], type)
    return whole.take(pa.array(np.argsort(np.concatenate(rows))))


def _common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    return pc.if_else(pa.array([], pa.bool_()), pa.array([], a), pa.array([], b)).type


def with_common_types(*data: Datum) -> list[Datum]:
    """Return values with common types, as in Spark: numbers beside a floating-point number become
    floating-point, and null gets the other type.

    >>> from decimal import Decimal
    >>> [
    ...     one.as_py()
    ...     for one in with_common_types(pa.scalar(2.5), pa.scalar(Decimal("0.3")), pa.scalar(7))
    ... ]
    [2.5, 0.3, 7.0]
    """
    types = [datum.type for datum in data if not pa.types.is_null(datum.type)]
    data = tuple(
        pc.cast(datum, types[0]) if types and pa.types.is_null(datum.type) else datum
        for datum in data
    )
    floating = [datum.type for datum in data if pa.types.is_floating(datum.type)]
    if not floating:
        return list(data)
    type = _floating(datum.type for datum in data)
    return [
        (
            datum
            if pa.types.is_floating(datum.type) or not is_number(datum.type)
            else as_floating(datum, type)
        )
        for datum in data
    ]


def _floating(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the common floating-point type of numbers: double, unless all are float32."""
    numbers = {type for type in types if is_number(type)}
    if numbers == {pa.float32()}:
        return pa.float32()
    return pa.float64()


def _divide(a: Datum, b: Datum) -> Datum:
    _require("/", a, b, is_number)
    if any(pa.types.is_decimal(side.type) for side in (a, b)) and not any(
        pa.types.is_floating(side.type) for side in (a, b)
    ):
        raise Invalid(
            "division of decimals is not supported", hint="cast one side: cast(x as double) / y"
        )
    a, b = (as_floating(side, pa.float64()) for side in (a, b))
    if pc.any(pc.and_(pc.equal(b, 0.0), pc.is_valid(a))).as_py():
        raise Invalid("division by zero", hint="use nullif(y, 0) to get null")
    return pc.divide(a, b)


def _remainder(a: Datum, b: Datum) -> Datum:
    _require("%", a, b, pa.types.is_integer)
    if pc.any(pc.and_(pc.equal(b, 0), pc.is_valid(a))).as_py():
        raise Invalid("division by zero", hint="use nullif(y, 0) to get null")
    # The remainder has the sign of a. Arrow divides the smallest integer by -1 into 0, hence abs.
    b = pc.abs(pc.if_else(pc.equal(b, 0), pa.scalar(None, b.type), b))
    whole = pc.divide(a, b)
    return pc.subtract(a, pc.multiply(whole, b))


def is_number(type: pa.DataType) -> bool:
    """Return True for number types."""
    return pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)


def is_text(type: pa.DataType) -> bool:
    """Return True for text types."""
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def _require(sign: str, a: Datum, b: Datum, holds: Callable[[pa.DataType], bool]) -> None:
    for side in (a, b):
        if not holds(side.type) and not pa.types.is_null(side.type):
            raise Invalid(
                f"{sign} does not support {side.type}", hint="convert it with cast(x as …)"
            )

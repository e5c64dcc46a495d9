"""Conversion of predicates to Spark columns with the semantics of `indexes.predicate.matches`.

A literal is first converted exactly to the column's type, as in the reference. The result therefore
does not depend on Spark's coercions or the session's time zone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from indexes import functions, paths, values
from indexes.like import parse_like, quote_like
from indexes.predicate import Call, Leaf, Predicate, Unknown, evaluate, match_query
from indexes.values import members
from mdt.arguments import backquoted
from mdt.engines.spark.functions import evaluate_as_udf, match
from mdt.engines.spark.private import spark_type
from mdt.errors import Unsupported
from mdt.filters.comparison import Comparison
from mdt.filters.dates import Interval
from mdt.filters.expression_tree import (
    Among,
    Apply,
    Case,
    Cast,
    Chain,
    Coalesce,
    Constant,
    Expression,
    Field,
    Shift,
)
from mdt.filters.order import SortKey
from mdt.filters.scalar_functions import TIME_FUNCTIONS
from mdt.schema.nested import is_list

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGNS: dict[str, Callable[[Column, Column], Column]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "||": sf.concat,
}
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def quoted(name: str) -> Column:
    """Return the column called ``name``, with any characters."""
    return _path((name,))


def _path(names: tuple[str, ...]) -> Column:
    """Return a column, or a struct field, by the names on its path."""
    return sf.col(".".join(backquoted(name) for name in names))


def with_fields(column: Column, own_type: pa.DataType, table_type: pa.DataType) -> Column:
    """Add null struct fields, at any depth, to a column of type ``own_type`` so that it has all
    fields of type ``table_type``. Own fields come first.
    """
    if not _lacks(own_type, table_type):
        return column
    if pa.types.is_struct(own_type):
        missing = {field.name: field.type for field in table_type}
        fields = [
            with_fields(column.getField(f.name), f.type, missing.pop(f.name, f.type)).alias(f.name)
            for f in own_type
        ]
        fields += [
            sf.lit(None).cast(spark_type(type)).alias(name) for name, type in missing.items()
        ]
        return sf.when(column.isNotNull(), sf.struct(*fields))
    if pa.types.is_map(own_type):
        return sf.transform_values(
            column, lambda _, value: with_fields(value, own_type.item_type, table_type.item_type)
        )
    return sf.transform(
        column, lambda value: with_fields(value, own_type.value_type, table_type.value_type)
    )


def _lacks(own_type: pa.DataType, table_type: pa.DataType) -> bool:
    """Return True if a struct in ``own_type`` lacks a field of ``table_type``."""
    if pa.types.is_struct(own_type) and pa.types.is_struct(table_type):
        types = {field.name: field.type for field in own_type}
        return any(
            field.name not in types or _lacks(types[field.name], field.type) for field in table_type
        )
    if pa.types.is_map(own_type) and pa.types.is_map(table_type):
        return _lacks(own_type.item_type, table_type.item_type)
    return (
        is_list(own_type)
        and is_list(table_type)
        and _lacks(own_type.value_type, table_type.value_type)
    )


def to_sort_column(key: SortKey, schema: pa.Schema) -> Column:
    """Return the column that sorts a frame with columns of ``schema`` by ``key``."""
    column = _path(paths.names(schema, key.column))
    if key.descending:
        if key.nulls_first:
            return column.desc_nulls_first()
        return column.desc_nulls_last()
    if key.nulls_first:
        return column.asc_nulls_first()
    return column.asc_nulls_last()


def to_column(predicate: Predicate, schema: pa.Schema) -> Column:
    """Convert ``predicate`` on columns of ``schema``. Raises Unsupported for tests without
    reference semantics.
    """

    def test(leaf: Leaf | Unknown) -> Column:
        if isinstance(leaf, Comparison):
            return _compare_expressions(leaf, schema)
        if isinstance(leaf, Unknown):
            raise Unsupported(f"Spark does not support the filter {leaf.text!r}")
        if isinstance(leaf, Call):
            return _call(leaf, schema)
        return _leaf(
            leaf, _path(paths.names(schema, leaf.column)), paths.type_at(schema, leaf.column)
        )

    def both(columns: Sequence[Column]) -> Column:
        if columns:
            return reduce(operator.and_, columns)
        return sf.lit(True)

    def either(columns: Sequence[Column]) -> Column:
        if columns:
            return reduce(operator.or_, columns)
        return sf.lit(False)

    return evaluate(predicate, test, both, either)


def _compare_expressions(test: Comparison, schema: pa.Schema) -> Column:
    """Convert a comparison of two expressions. Spark evaluates it as mdt does, in ANSI mode and
    UTC.
    """
    settings = SparkSession.active().conf
    if settings.get("spark.sql.ansi.enabled") != "true":
        raise Unsupported(
            f"the filter {test.text!r} requires Spark's ANSI mode",
            hint="set spark.sql.ansi.enabled to true, or filter the DataFrame",
        )
    zone = settings.get("spark.sql.session.timeZone")
    if zone not in _UTC and _is_about_times(test, schema):
        raise Unsupported(
            f"the filter {test.text!r} uses times in UTC, but the session's time zone is {zone}",
            hint="set spark.sql.session.timeZone to UTC, or filter the DataFrame",
        )
    first, second = (_value(side, schema) for side in (test.left, test.right))
    if test.op == "<=>":
        column = first.eqNullSafe(second)
    else:
        column = _COMPARISONS[test.op](first, second)
    if test.is_negated:
        return ~column
    return column


def _is_about_times(test: Comparison, schema: pa.Schema) -> bool:
    """Return True if a comparison involves dates or times, which depend on the session's time
    zone.
    """
    types = [paths.type_at(schema, column) for column in test.columns]
    for part in test.parts():
        if isinstance(part, Shift) or (isinstance(part, Apply) and part.function in TIME_FUNCTIONS):
            return True
        if isinstance(part, Constant):
            types.append(part.scalar.type)
    return any(map(pa.types.is_temporal, types))


def _value(expression: Expression, schema: pa.Schema) -> Column:
    """Convert an expression."""
    values = [_value(part, schema) for part in expression.parts()]
    match expression:
        case Field(path):
            return _path(paths.names(schema, path))
        case Constant(scalar):
            return sf.lit(scalar.as_py()).cast(spark_type(scalar.type))
        case Chain(_, rest):
            column = values[0]
            for (sign, _), value in zip(rest, values[1:], strict=True):
                column = _SIGNS[sign](column, value)
            return column
        case Apply("negative"):
            return -values[0]
        case Apply(function):
            return sf.call_function(function, *values)
        case Coalesce():
            return sf.coalesce(*values)
        case Case(branches, otherwise):
            return _case(branches, otherwise, values, schema)
        case Cast(_, type):
            return values[0].cast(spark_type(type))
        case Shift(_, intervals):
            return reduce(
                operator.add, (sf.expr(_interval(interval)) for interval in intervals), values[0]
            )
        case Among():
            return values[0].isin(*values[1:])
    raise Unsupported(f"Spark does not support the expression {expression!r}")


def _case(
    branches: Sequence[tuple[Predicate, Expression]],
    otherwise: Expression | None,
    values: Sequence[Column],
    schema: pa.Schema,
) -> Column:
    tests = [to_column(test, schema) for test, _ in branches]
    column = sf.when(tests[0], values[0])
    for test, value in zip(tests[1:], values[1:], strict=False):
        column = column.when(test, value)
    if otherwise is None:
        return column
    return column.otherwise(values[-1])


def _interval(interval: Interval) -> str:
    """Return an interval as a Spark literal."""
    if interval.months:
        return f"INTERVAL '{interval.months}' MONTH"
    seconds, micros = divmod(abs(interval.microseconds), 1_000_000)
    sign = "-" if interval.microseconds < 0 else ""
    if interval.is_days:
        return f"INTERVAL '{sign}{seconds // 86_400}' DAY"
    return f"INTERVAL '{sign}{seconds}.{micros:06}' SECOND"


def _call(call: Call, schema: pa.Schema) -> Column:
    function = functions.find(call.function)
    if isinstance(function, functions.Unknown):
        raise Unsupported(function.reason, hint="install the package that provides it")
    assert isinstance(call.value, tuple), "a call has a tuple of arguments"
    columns = [_path(paths.names(schema, column)) for column in call.columns]
    types = [paths.type_at(schema, column) for column in call.columns]
    test = evaluate_as_udf(function, columns, call.value, types)
    if call.is_negated:
        return ~test
    return test


def _leaf(leaf: Leaf, column: Column, type: pa.DataType) -> Column:
    if leaf.op == "is null" or (leaf.op == "<=>" and leaf.value is None):
        return column.isNull()
    if leaf.op == "is not null":
        return column.isNotNull()
    if leaf.op in ("in", "not in"):
        return _membership(leaf, column, type)
    if leaf.value is None:
        return sf.lit(False)
    if leaf.op in ("like", "not like"):
        test = column.like(_pattern(leaf.value))
        if leaf.op == "like":
            return test
        return ~test
    if leaf.op in ("match", "not match"):
        text, tokenizer = match_query(leaf)
        test = match(column, text, tokenizer.spec)
        if leaf.op == "match":
            return test
        return ~test
    if leaf.op == "starts with":
        return column.startswith(sf.lit(leaf.value))
    return _comparison(leaf, column, type)


def _comparison(leaf: Leaf, column: Column, type: pa.DataType) -> Column:
    place = values.place(leaf.value, type)
    op = leaf.op.replace("<=>", "=")
    if place.tie and op == "=":
        return sf.lit(False)
    if place.tie and op == "!=":
        return column.isNotNull()
    if place.tie > 0:  # the literal is between this value and the next
        op = {"<": "<=", ">=": ">"}.get(op, op)
    elif place.tie < 0:
        op = {"<=": "<", ">": ">="}.get(op, op)
    test: Column = _COMPARISONS[op](column, _literal(place.value, type))
    return test


def _membership(leaf: Leaf, column: Column, type: pa.DataType) -> Column:
    assert isinstance(leaf.value, tuple), "the parser makes a tuple of it"
    values_of_type = members(leaf.value, type)
    literals = [
        _literal(value, type)
        for value in (
            values_of_type.to_pylist() if isinstance(values_of_type, pa.Array) else values_of_type
        )
    ]
    among = sf.lit(False)
    if literals:
        among = column.isin(*literals)
    if leaf.op == "in":
        return among
    if None in leaf.value:
        return sf.lit(False)
    return ~among & column.isNotNull()


def _literal(value: Any, type: pa.DataType) -> Column:
    """Return a value of ``type`` as a Spark literal of the same type."""
    if pa.types.is_timestamp(type):
        # As text, because Spark interprets a datetime in the driver's time zone.
        moment = _EPOCH + timedelta(microseconds=value * _MICROS_PER_UNIT[type.unit])
        text = moment.replace(tzinfo=None).isoformat(" ")
        if type.tz is None:
            return sf.lit(text).cast("timestamp_ntz")
        return sf.lit(text + "+00:00").cast("timestamp")
    if pa.types.is_date(type):
        return sf.date_from_unix_date(sf.lit(value))
    return sf.lit(value).cast(spark_type(type, prefer_timestamp_ntz=True))


def _pattern(value: object) -> str:
    """Return a LIKE pattern with backslashes only where Spark allows them: before a wildcard or a
    backslash.
    """
    pattern = ""
    for part in parse_like(str(value)):
        if part is None:
            pattern += "%"
        else:
            pattern += quote_like(part) or "_"
    return pattern

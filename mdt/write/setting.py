"""The assignments of an update by condition: columns set to constants or SQL expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.arguments import by_column, shown
from mdt.errors import Invalid
from mdt.filters.expression import parse_expression, with_fixed_time
from mdt.schema.conform import conform
from mdt.schema.convert import convert, is_encoded, is_same
from mdt.schema.declared import plain, without_views
from mdt.schema.definition import TableDefinition
from mdt.schema.lossy_casts import exact_array, zone_hint
from mdt.schema.nested import is_list, with_fields
from mdt.stores.clock import now_us

Value = Callable[[pa.Table], Any]
"""Returns a column of n values, in a stored type, for n rows of the table."""


@dataclass(frozen=True)
class UpdateAssignments:
    """Parsed assignments. They are pickled as their text, ``arguments``.

    Attributes:
        values: Column -> function that computes its new values.
        arguments: The arguments of :func:`parse_assignments`.
    """

    values: Mapping[str, Value]
    definition: TableDefinition
    arguments: tuple[Mapping[str, Any], Mapping[str, str]]

    def __reduce__(self) -> tuple[Callable[..., UpdateAssignments], tuple[Any, ...]]:
        return parse_assignments, (self.definition, *self.arguments)

    @property
    def names(self) -> frozenset[str]:
        """The columns that are set."""
        return frozenset(self.values)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return ``rows``, all columns in stored types, with their new values. Raises Invalid for a
        value that does not fit.
        """
        new_values = fit_columns(
            pa.table({name: value(rows) for name, value in self.values.items()}), self.definition
        )
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        fields = dict(zip(rows.column_names, rows.schema, strict=True))
        columns.update(zip(new_values.column_names, new_values.columns, strict=True))
        fields.update(zip(new_values.column_names, new_values.schema, strict=True))
        return pa.table(
            list(columns.values()), pa.schema(list(fields.values()), rows.schema.metadata)
        )


def fit_columns(values: pa.Table, definition: TableDefinition, key: Sequence[str] = ()) -> pa.Table:
    """Return columns converted to their stored types. Raises Invalid for a value that does not fit.

    The values come from callers or from expressions over stored values. Expressions return UTC
    timestamps for columns declared with local times, and integers for columns declared with times
    of day or durations.

    Args:
        key: As for :func:`mdt.schema.conform.conform`.
    """
    declared, stored = definition.forms(values.column_names)
    columns = [
        _cast_to_declared(column, field)
        for column, field in zip(values.columns, declared, strict=True)
    ]
    return conform(pa.table(columns, values.column_names), declared, stored, key)


def _cast_to_declared(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    target_type = _declared_type(column.type, field.type)
    if is_same(column.type, target_type):
        return column
    try:
        return pa.chunked_array(
            [convert(chunk, target_type) for chunk in column.chunks], target_type
        )
    except (ValueError, pa.ArrowException) as error:
        raise Invalid(
            f"column {field.name!r} has a value that is not of type {field.type}: {error}"
        ) from error


def _declared_type(type: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return ``type`` with local times, times of day and durations as in the type ``declared``."""
    kinds = pa.types
    if is_encoded(declared):
        return _declared_type(type, declared.value_type)
    if (
        kinds.is_timestamp(type)
        and kinds.is_timestamp(declared)
        and (type.tz, declared.tz) == ("UTC", None)
    ):
        return pa.timestamp(type.unit)
    if kinds.is_integer(type) and (kinds.is_time(declared) or kinds.is_duration(declared)):
        return declared
    if kinds.is_struct(type) and kinds.is_struct(declared):
        declared_types = {field.name: field.type for field in declared}
        return pa.struct(
            [f.with_type(_declared_type(f.type, declared_types.get(f.name, f.type))) for f in type]
        )
    if kinds.is_map(type) and kinds.is_map(declared):
        item = type.item_field.with_type(_declared_type(type.item_type, declared.item_type))
        return with_fields(type, [type.key_field, item])
    if is_list(type) and is_list(declared):
        element = type.value_field.with_type(_declared_type(type.value_type, declared.value_type))
        return with_fields(type, [element])
    return type


def parse_assignments(
    definition: TableDefinition, values: Mapping[str, Any], expressions: Mapping[str, str]
) -> UpdateAssignments:
    """Parse the assignments of an update.

    Args:
        values: Column -> Python value.
        expressions: Column -> SQL over the row.

    Raises Invalid for unknown columns, for key and partition columns, and for values that never
    fit.
    """
    values = by_column("values", values, definition.schema.names)
    column_names, now = definition.schema.names, now_us()  # the same timestamp in all columns
    texts = by_column("set", expressions, column_names)
    expressions = {name: with_fixed_time(text, column_names, now) for name, text in texts.items()}
    repeated = values.keys() & expressions.keys()
    if repeated:
        raise Invalid(f"the column {min(repeated)!r} is set twice", hint="use either set or values")
    if not values and not expressions:
        raise Invalid(
            "the update sets no column", hint="set={'fare': 'fare * 2'} or values={'fare': 2.0}"
        )
    parsed: dict[str, Value] = {}
    for name in (*values, *expressions):
        _require_settable(definition, name)
    for name, value in values.items():
        parsed[name] = constant(definition, name, value)
    for name, text in expressions.items():
        parsed[name] = parse_expression(text, definition.schema)
    assignments = UpdateAssignments(parsed, definition, (values, expressions))
    assignments.apply(definition.schema.empty_table())
    return assignments


def _require_settable(definition: TableDefinition, name: str) -> None:
    for names, role in ((definition.key, "the key"), (definition.partition_by, "the partition")):
        if name in names:
            raise Invalid(
                f"an update cannot change the column {name!r}, which belongs to {role}",
                hint="delete the rows, and insert new rows",
            )


def constant(definition: TableDefinition, name: str, value: Any) -> Value:
    """Return a Python value for every row. Raises Invalid if it is not a value of the column
    ``name``.
    """
    type = definition.declared.field(name).type
    try:
        array = exact_array([value], type)
        if without_views(type) != plain(type):
            array = convert(array, without_views(type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            f"{shown(value)} is not a valid value for the column {name!r}: {error}",
            hint=zone_hint(value, type),
        ) from error
    return lambda rows: array.take(pa.array(np.zeros(len(rows), np.int64)))

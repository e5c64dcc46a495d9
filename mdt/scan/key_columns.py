"""Converts record keys in the caller's form to columns, for look-ups and deletes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from mdt.arguments import shown
from mdt.errors import Invalid
from mdt.schema.conform import conform
from mdt.schema.declared import plain
from mdt.schema.definition import TableDefinition
from mdt.schema.input import column_of, match_names, rename_to_match, to_table
from mdt.schema.lossy_casts import first_truncated, zone_hint

_ONE_OF_SEVERAL = (tuple, list)
_VALUES = (
    str,
    bytes,
    bool,
    int,
    float,
    Decimal,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    UUID,
    np.generic,
    pa.Scalar,
)
"""Types of single values."""


@dataclass(frozen=True, slots=True)
class ParsedKeys:
    """n keys from a caller.

    Attributes:
        table: The key columns, plus the partition columns if all of them were given, in the table's
            types, n rows.
        is_one: True for a single key, False for a list of keys.
    """

    table: pa.Table
    is_one: bool


def parse_keys(keys: Any, definition: TableDefinition) -> ParsedKeys:
    """Return ``keys`` as columns.

    A single key is a value, a tuple of values for several key columns, or a dict of column ->
    value. Several keys are a list or set of these. They may also be a table (any Arrow data) with
    the key columns or, for one key column, a numpy or Arrow array or a pandas or polars Series.
    Dicts and tables may include the partition columns. Raises Invalid for keys that do not fit the
    table.
    """
    if not definition.key:
        raise Invalid(
            "the table has no key columns, because Hudi generates its record keys",
            hint="filter by other columns: t.scan(where)",
        )
    if keys is None:
        raise Invalid("no keys were given", hint=_hint(definition))
    if isinstance(keys, Mapping):
        several = [
            isinstance(value, list | np.ndarray | pa.Array | pa.ChunkedArray)
            for value in keys.values()
        ]
        if any(several):
            return ParsedKeys(_keys_from_table(to_table(_table_of(keys)), definition), False)
        return ParsedKeys(_keys_from_dicts([keys], definition), True)
    column = column_of(keys)
    if column is not None:
        return ParsedKeys(
            _keys_from_table(_keys_from_column(column, definition), definition), False
        )
    if hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__"):
        return ParsedKeys(_keys_from_table(to_table(keys), definition), False)
    if isinstance(keys, list | set | frozenset) or (
        isinstance(keys, tuple) and len(definition.key) == 1
    ):
        return ParsedKeys(_keys_from_rows(list(keys), definition), False)
    return ParsedKeys(_keys_from_rows([keys], definition), True)


def as_key_table(keys: Any, definition: TableDefinition) -> Any:
    """Return keys given as plain values as a table of the declared types. Return other keys
    unchanged.

    Accepts a single key or several, like :func:`parse_keys`. Raises Invalid for keys that do not
    fit the table.
    """
    if isinstance(keys, Mapping):
        if keys and all(map(_is_value, keys.values())):
            return [keys]
        return keys
    column = column_of(keys)
    if column is not None:
        return _keys_from_column(column, definition)
    if _is_value(keys) or (
        isinstance(keys, tuple) and len(definition.key) > 1 and all(map(_is_value, keys))
    ):
        return _keys_from_values([keys], definition)
    if isinstance(keys, list | tuple | set | frozenset) and keys and all(map(_is_key, keys)):
        return _keys_from_values(list(keys), definition)
    return keys


def _is_key(item: Any) -> bool:
    return _is_value(item) or (isinstance(item, _ONE_OF_SEVERAL) and all(map(_is_value, item)))


def _is_value(item: Any) -> bool:
    return isinstance(item, _VALUES)


def _hint(definition: TableDefinition) -> str:
    names = ", ".join(definition.key)
    form = "a value" if len(definition.key) == 1 else "a tuple of values"
    return f"a key is {form} of {names}, or a dict; pass several keys as a list or a table"


def _table_of(columns: Mapping[str, Any]) -> pa.Table:
    try:
        return pa.table(dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"the keys cannot be converted to a table: {error}") from error


def _keys_from_table(table: pa.Table, definition: TableDefinition) -> pa.Table:
    table = rename_to_match(table, definition.declared)
    names = list(definition.key)
    if definition.partition_by and all(
        name in table.column_names for name in definition.partition_by
    ):
        names = list(dict.fromkeys([*names, *definition.partition_by]))
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise Invalid(f"the key columns {', '.join(missing)} are missing", hint=_hint(definition))
    repeated = [name for name in names if table.column_names.count(name) > 1]
    if repeated:
        raise Invalid(
            f"the table of keys has repeated columns: {', '.join(repeated)}", hint=_hint(definition)
        )
    return _to_stored_types(table.select(names), definition)


def _to_stored_types(table: pa.Table, definition: TableDefinition) -> pa.Table:
    declared, stored = (
        pa.schema([schema.field(name) for name in table.column_names])
        for schema in (definition.declared, definition.schema)
    )
    return conform(table, declared, stored, definition.key)


def _keys_from_column(values: pa.Array | pa.ChunkedArray, definition: TableDefinition) -> pa.Table:
    if len(definition.key) != 1:
        raise Invalid("one array was given for several key columns", hint=_hint(definition))
    return pa.table({definition.key[0]: values})


def _keys_from_rows(values: Sequence[Any], definition: TableDefinition) -> pa.Table:
    """Return keys given as values, tuples or dicts, in the stored types."""
    if values and all(isinstance(value, Mapping) for value in values):
        return _keys_from_dicts(values, definition)
    return _to_stored_types(_keys_from_values(values, definition), definition)


def _keys_from_values(values: Sequence[Any], definition: TableDefinition) -> pa.Table:
    """Return keys given as values or tuples."""
    key = definition.key
    if len(key) == 1:
        return _to_declared_types({key[0]: values}, definition)
    if not all(isinstance(value, _ONE_OF_SEVERAL) and len(value) == len(key) for value in values):
        raise Invalid(f"the table has {len(key)} key columns", hint=_hint(definition))
    return _to_declared_types(
        {name: [value[place] for value in values] for place, name in enumerate(key)}, definition
    )


def _keys_from_dicts(rows: Sequence[Mapping[str, Any]], definition: TableDefinition) -> pa.Table:
    names_given = list(dict.fromkeys(name for row in rows for name in row))
    odd = [name for name in names_given if not isinstance(name, str)]
    if odd:
        raise Invalid(f"{odd[0]!r} is not the name of a column", hint=_hint(definition))
    table_names = dict(
        zip(names_given, match_names(names_given, definition.schema.names), strict=True)
    )
    rows = [{table_names[name]: value for name, value in row.items()} for row in rows]
    names = set(table_names.values())
    columns = {
        name: [row.get(name) for row in rows]
        for name in (*definition.key, *definition.partition_by)
        if name in names
    }
    missing = [name for name in definition.key if name not in columns]
    if missing:
        raise Invalid(f"the key columns {', '.join(missing)} are missing", hint=_hint(definition))
    has_partition = [all(name in row for name in definition.partition_by) for row in rows]
    if definition.partition_by and any(has_partition) and not all(has_partition):
        raise Invalid(
            f"key {has_partition.index(False)} has no partition, but other keys have one",
            hint=_hint(definition),
        )
    if not all(has_partition):
        columns = {name: columns[name] for name in definition.key}
    return _to_stored_types(_to_declared_types(columns, definition), definition)


def _to_declared_types(
    columns: Mapping[str, Sequence[Any]], definition: TableDefinition
) -> pa.Table:
    arrays = []
    for name, values in columns.items():
        type = plain(definition.declared.field(name).type)
        try:
            arrays.append(pa.array(values, type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            misfit = next((value for value in values if not _fits(value, type)), values)
            raise _misfit(name, type, misfit, definition) from error
        cut = first_truncated(values, type)
        if cut is not None:
            raise _misfit(name, type, values[cut], definition)
    return pa.table(arrays, names=list(columns))


def _misfit(name: str, type: pa.DataType, value: object, definition: TableDefinition) -> Invalid:
    return Invalid(
        f"key column {name!r} has type {type}, which cannot hold {shown(value)}",
        hint=zone_hint(value, type) or _hint(definition),
    )


def _fits(value: Any, type: pa.DataType) -> bool:
    """Return True if an array of ``type`` can hold ``value``."""
    try:
        pa.array([value], type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True

"""Conversion of input data to the stored columns of a table, without loss.

Casts follow ``pyarrow.compute.cast(safe=True)`` within a family of types, but are stricter where
pyarrow rounds (:mod:`mdt.schema.convert`). The families are numbers, text, bytes, and each kind of
time. They apply to plain columns, dictionaries and nested columns. Text is never parsed as a
number, and timestamps with and without time zone are never mixed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import task_starter
from mdt.errors import Invalid
from mdt.schema.convert import convert, fill_required, has_required, is_encoded, is_same, requires
from mdt.schema.declared import plain
from mdt.schema.lossy_casts import zone_advice
from mdt.schema.nested import is_list, lengths, parts_of

_SHOWN_CHARACTERS_MAX = 80
_SIDE_BY_SIDE_BYTES_MIN = 16 << 20
"""Size of data from which columns are converted by several threads. For less, starting threads
takes longer than the conversion.
"""

Int64Array = npt.NDArray[np.int64]


def conform(
    data: pa.Table,
    declared: pa.Schema,
    stored: pa.Schema,
    key: Sequence[str] = (),
    *,
    first: int | None = 0,
) -> pa.Table:
    """Convert ``data`` (n rows) to the ``stored`` columns, matched by name.

    Args:
        data: Input rows.
        declared: Columns of the table, as declared.
        stored: The same columns in the types of data files.
        key: Columns that identify a row in error messages, if the data has them.
        first: Number of the first row in error messages. None if row numbers mean nothing to the
            caller, so that messages contain only keys.

    Raises Invalid with a line for each column that is missing, unknown or does not fit. For a value
    that does not fit, the line has its first row and the value.

    >>> schema = pa.schema({"id": pa.string(), "n": pa.int32()})
    >>> conform(pa.table({"n": [3.0], "id": ["a"]}), schema, schema).to_pylist()
    [{'id': 'a', 'n': 3}]
    >>> conform(pa.table({"n": [3]}), schema, schema)
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: the data does not fit the table:
      column 'id' is missing
      hint: the table's columns are: id string, n int32
    """
    refuse_repeated(data.column_names)
    problems = list(_name_problems(data.column_names, declared.names))
    columns = []
    with task_starter(pa.cpu_count() if data.nbytes >= _SIDE_BY_SIDE_BYTES_MIN else 0) as start:
        pending = []
        for field, stored_field in zip(declared, stored, strict=True) if not problems else ():
            pending.append(start(partial(_conform_column, data, field, stored_field, key, first)))
        for result in pending:
            try:
                columns.append(result())
            except Invalid as error:
                problems.append(error.message)
    if problems:
        raise Invalid(
            "the data does not fit the table:\n  " + "\n  ".join(problems),
            hint=_hint(data.column_names, declared, key),
        )
    return pa.table(columns, schema=stored)


def _hint(data_names: Sequence[str], declared: pa.Schema, key: Sequence[str]) -> str:
    """Return the columns of the table, after a way to write rows that lack columns."""
    columns = ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in declared)
    text = f"the table's columns are: {columns}"
    names = frozenset(data_names)
    if key and names.issuperset(key) and names < frozenset(declared.names):
        return f"upsert with partial=True writes only the columns that are given; {text}"
    return text


def _conform_column(
    data: pa.Table, field: pa.Field, stored_field: pa.Field, key: Sequence[str], first: int | None
) -> pa.ChunkedArray:
    """Convert one column. Raises Invalid for the first row that does not fit."""
    column = _convert_column(data, field, stored_field, key, first)
    _require(column, stored_field, first)
    if not requires(stored_field.type):
        return column
    return pa.chunked_array(
        [fill_required(chunk, stored_field.type) for chunk in column.chunks], stored_field.type
    )


def refuse_repeated(names: Sequence[str], place: str = "") -> None:
    """Raise Invalid, with a message that begins with ``place``, if a name occurs twice."""
    if len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise Invalid(f"{place}repeated column names: {repeated}", hint="rename one of them")


def _name_problems(data_names: Sequence[str], table_names: Sequence[str]) -> Iterator[str]:
    data_set, table_set = frozenset(data_names), frozenset(table_names)
    missing = [name for name in table_names if name not in data_set]
    unknown = [name for name in data_names if name not in table_set]
    for names, candidates, problem in (
        (missing, unknown, "is missing"),
        (unknown, missing or table_names, "is not in the table"),
    ):
        for name in names:
            matches = difflib.get_close_matches(name, candidates, n=1)
            yield f"column {name!r} {problem}" + (
                f" (did you mean {matches[0]!r}?)" if matches else ""
            )


def _convert_column(
    data: pa.Table,
    field: pa.Field,
    stored_field: pa.Field,
    key: Sequence[str],
    first_row: int | None,
) -> pa.ChunkedArray:
    """Convert the values of one column to its stored type.

    Raises Invalid for the first row that does not fit.
    """
    column = data[field.name]
    mismatch = f"column {field.name!r} is {column.type}, the table has {field.type}"
    target = plain(field.type)
    if not is_same(column.type, field.type) and not _fits(column.type, target):
        raise Invalid(f"{mismatch}: the types do not fit; {_type_advice(column.type, target)}")

    def store(chunk: pa.Array) -> pa.Array:
        if not _is_number(column.type):
            chunk.validate(full=True)
        return convert(convert(chunk, target), stored_field.type)

    chunks, first = [], 0
    for chunk in column.chunks:
        try:
            chunks.append(store(chunk))
        except (ValueError, TypeError, pa.ArrowException):
            if unfit := _refusal(chunk.slice(0, 0), store):
                raise Invalid(
                    f"{mismatch}: {unfit}; cast the column, or write it under another name"
                ) from None
            position, reason = _first_misfit(chunk, store)
            row = first + position
            number = "" if first_row is None else f" {first_row + row}"
            raise Invalid(
                f"{mismatch}: row{number}{_key_text(data, key, row)} has"
                f" {_value_text(chunk, position)}: {reason}"
            ) from None
        first += len(chunk)
    return pa.chunked_array(chunks, stored_field.type)


def _type_advice(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return zone_advice(target)
    return "cast the column, or write it under another name"


def _is_number(type: pa.DataType) -> bool:
    """Return True if any bit pattern is a valid value of ``type``."""
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_boolean(type)
    )


def _first_misfit(chunk: pa.Array, store: Callable[[pa.Array], pa.Array]) -> tuple[int, str]:
    """Return (position, reason) of the first value that ``store`` refuses. O(n) by bisection."""
    start, stop, reason = 0, len(chunk), ""
    while stop - start > 1:
        middle = (start + stop) // 2
        if _refusal(chunk.slice(start, middle - start), store) is None:
            start = middle
        else:
            stop = middle
    reason = _refusal(chunk.slice(start, 1), store) or "it does not fit"
    return start, reason


def _refusal(chunk: pa.Array, store: Callable[[pa.Array], pa.Array]) -> str | None:
    try:
        store(chunk)
    except (ValueError, TypeError, pa.ArrowException) as error:
        return str(error).splitlines()[0]
    return None


def _key_text(data: pa.Table, key: Sequence[str], row: int) -> str:
    """Return the key of a row in parentheses, or "" if the data does not have it."""
    if not key or not all(name in data.column_names for name in key):
        return ""
    return " (" + ", ".join(f"{name}={_value_text(data[name], row)}" for name in key) + ")"


def _value_text(column: pa.Array | pa.ChunkedArray, row: int) -> str:
    try:
        text = repr(column[row].as_py())
    except (ValueError, OverflowError, ImportError, pa.ArrowException):
        # not UTF-8, or a time outside Python's range
        text = str(column[row].type)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


# Compatible types


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if values of ``source`` can be converted to ``target`` at all."""
    kinds = pa.types
    if is_encoded(source):
        return _fits(source.value_type, target)
    if source == target or kinds.is_null(source):
        return True
    if kinds.is_timestamp(source) and kinds.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if is_list(source) and is_list(target):
        return _fits(source.value_type, target.value_type)
    if kinds.is_map(source) and kinds.is_map(target):
        return _fits(source.key_type, target.key_type) and _fits(source.item_type, target.item_type)
    if kinds.is_struct(source) and kinds.is_struct(target):
        return _struct_fits(source, target)
    families = (
        (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
        (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view),
        (kinds.is_date,),
        (kinds.is_time,),
        (kinds.is_duration,),
    )
    return any(
        any(f(source) for f in family) and any(f(target) for f in family) for family in families
    )


def _struct_fits(source: pa.DataType, target: pa.DataType) -> bool:
    fields = {field.name: field.type for field in source}
    if len(fields) != source.num_fields or fields.keys() != {field.name for field in target}:
        return False
    return all(_fits(fields[field.name], field.type) for field in target)


# Required fields


def _require(column: pa.ChunkedArray, field: pa.Field, first: int | None) -> None:
    """Raise Invalid if a required field is null while its parent is not."""
    if not has_required(field):
        return
    missing, before = dict[str, list[Int64Array]](), first or 0
    for chunk in column.chunks:
        for path, rows in _missing(
            chunk, field, field.name, np.arange(before, before + len(chunk))
        ):
            missing.setdefault(path, []).append(rows)
        before += len(chunk)
    for path, parts in missing.items():
        rows = np.unique(np.concatenate(parts))
        number = "" if first is None else f", first in row {rows[0]}"
        raise Invalid(f"column {path!r} is required, but null in {len(rows)} rows{number}")


def _missing(
    array: pa.Array, field: pa.Field, path: str, rows: Int64Array
) -> Iterator[tuple[str, Int64Array]]:
    """Yield (path, rows) for each required field with nulls.

    ``rows`` are the row numbers of the n values in ``array`` (int64[n]).
    """
    if array.null_count:
        valid = np.asarray(array.is_valid())
        if not field.nullable:
            yield path, rows[~valid]
        array, rows = array.filter(pa.array(valid)), rows[valid]
    if not requires(field.type):
        return
    parts = parts_of(array)
    if pa.types.is_struct(field.type):
        for part, child in zip(parts, field.type, strict=True):
            yield from _missing(part, child, f"{path}.{child.name}", rows)
    elif pa.types.is_map(field.type):
        sizes = np.diff(np.asarray(array.offsets))
        item = field.type.item_field
        yield from _missing(parts[1], item, f"{path}.value", np.repeat(rows, sizes))
    else:
        element = field.type.value_field
        yield from _missing(parts[0], element, f"{path}.element", np.repeat(rows, lengths(array)))

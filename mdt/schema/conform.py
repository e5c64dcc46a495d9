"""Data as callers give it becomes columns as the table stores them, if that loses nothing; else an
error says where.

Casts are those of ``pyarrow.compute.cast(safe=True)`` between types of one family, and stricter
where pyarrow rounds (:mod:`mdt.schema.convert`): numbers to numbers, text to text, bytes to bytes,
moments to moments, in plain columns, dictionaries and nested ones.  Text is never a number, a time
without zone never one with.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import begun_on
from mdt.errors import Invalid
from mdt.schema.convert import convert, filled, has_required, is_encoded, is_same, requires
from mdt.schema.declared import plain
from mdt.schema.nested import is_list, lengths, parts_of

_SHOWN_CHARACTERS_MAX = 80
_SIDE_BY_SIDE_BYTES_MIN = 16 << 20
"""Columns of so many bytes are looked at by several threads: of fewer, one takes no longer than
these take to begin.
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
    """Return the columns of ``data``, n rows, as ``stored``; they are matched by name.

    ``key``: columns by which a row is called in errors, where the data has them.  Raises Invalid
    with one line for each column that is missing, unknown, of a type that does not fit, or has a
    value that does not, naming the first such row (``first`` is the number of the first one; None:
    rows have no numbers that mean anything to the caller, and are called by their keys) and its
    value.

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
    problems = list(_wrong_names(data.column_names, declared.names))
    columns = []
    with begun_on(pa.cpu_count() if data.nbytes >= _SIDE_BY_SIDE_BYTES_MIN else 0) as begun:
        waiting = []
        for field, kept in zip(declared, stored, strict=True) if not problems else ():
            waiting.append(begun(partial(_conformed, data, field, kept, key, first)))
        for waits in waiting:
            try:
                columns.append(waits())
            except Invalid as error:
                problems.append(error.message)
    if problems:
        raise Invalid(
            "the data does not fit the table:\n  " + "\n  ".join(problems),
            hint="the table's columns are: "
            + ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in declared),
        )
    return pa.table(columns, schema=stored)


def _conformed(
    data: pa.Table, field: pa.Field, kept: pa.Field, key: Sequence[str], first: int | None
) -> pa.ChunkedArray:
    """Return column ``field`` of ``data`` as the table keeps it.  Raises Invalid, naming the first
    row that does not fit.
    """
    column = _stored(data, field, kept, key, first)
    _require(column, kept, first)
    if not requires(kept.type):
        return column
    return pa.chunked_array([filled(chunk, kept.type) for chunk in column.chunks], kept.type)


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise Invalid if a name occurs twice."""
    if len(set(names)) != len(names):
        raise Invalid(
            f"column names occur twice: {sorted({n for n in names if names.count(n) > 1})}"
        )


def _wrong_names(given: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    have, ours = frozenset(given), frozenset(known)
    missing = [name for name in known if name not in have]
    unknown = [name for name in given if name not in ours]
    for names, others, what in (
        (missing, unknown, "is missing"),
        (unknown, missing or known, "is not in the table"),
    ):
        for name in names:
            near = difflib.get_close_matches(name, others, n=1)
            yield f"column {name!r} {what}" + (f" (is it {near[0]!r}?)" if near else "")


def _stored(
    data: pa.Table, field: pa.Field, kept: pa.Field, key: Sequence[str], before: int | None
) -> pa.ChunkedArray:
    """Return column ``field`` of ``data`` as it is stored.  Raises Invalid, naming the first row
    that does not fit.
    """
    column = data[field.name]
    what = f"column {field.name!r} is {column.type}, the table has {field.type}"
    target = plain(field.type)
    if not is_same(column.type, field.type) and not _fits(column.type, target):
        raise Invalid(
            f"{what}: the types do not fit; cast the column, or write it under another name"
        )

    def store(chunk: pa.Array) -> pa.Array:
        if not _is_number(column.type):
            chunk.validate(full=True)
        return convert(convert(chunk, target), kept.type)

    chunks, first = [], 0
    for chunk in column.chunks:
        try:
            chunks.append(store(chunk))
        except (ValueError, TypeError, pa.ArrowException):
            if unfit := _refused(chunk.slice(0, 0), store):
                raise Invalid(
                    f"{what}: {unfit}; cast the column, or write it under another name"
                ) from None
            at, reason = _first_misfit(chunk, store)
            row = first + at
            number = "" if before is None else f" {before + row}"
            raise Invalid(
                f"{what}: row{number}{_called(data, key, row)} has {_shown(chunk, at)}: {reason}"
            ) from None
        first += len(chunk)
    return pa.chunked_array(chunks, kept.type)


def _is_number(type: pa.DataType) -> bool:
    """Return whether any bytes are values of ``type``."""
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_boolean(type)
    )


def _first_misfit(chunk: pa.Array, store: Callable[[pa.Array], pa.Array]) -> tuple[int, str]:
    """Return the first of n values that ``store`` refuses, and why.  O(n): each step looks at half
    of what is left.
    """
    start, stop, reason = 0, len(chunk), ""
    while stop - start > 1:
        middle = (start + stop) // 2
        if _refused(chunk.slice(start, middle - start), store) is None:
            start = middle
        else:
            stop = middle
    reason = _refused(chunk.slice(start, 1), store) or "it does not fit"
    return start, reason


def _refused(chunk: pa.Array, store: Callable[[pa.Array], pa.Array]) -> str | None:
    try:
        store(chunk)
    except (ValueError, TypeError, pa.ArrowException) as error:
        return str(error).splitlines()[0]
    return None


def _called(data: pa.Table, key: Sequence[str], row: int) -> str:
    """Return the key of a row in parentheses, if it has one that can be shown."""
    if not key or not all(name in data.column_names for name in key):
        return ""
    return " (" + ", ".join(f"{name}={_shown(data[name], row)}" for name in key) + ")"


def _shown(column: pa.Array | pa.ChunkedArray, row: int) -> str:
    try:
        text = repr(column[row].as_py())
    except (ValueError, OverflowError, ImportError, pa.ArrowException):
        # not UTF-8; a moment that Python has not
        text = str(column[row].type)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


# -- which types belong together


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of ``source`` may be values of ``target``."""
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


# -- required fields


def _require(column: pa.ChunkedArray, field: pa.Field, first: int | None) -> None:
    """Raise Invalid if a required field, ``field`` or one in it, is null where what holds it is
    not.
    """
    if not has_required(field):
        return
    found, before = dict[str, list[Int64Array]](), first or 0
    for chunk in column.chunks:
        for path, rows in _missing(
            chunk, field, field.name, np.arange(before, before + len(chunk))
        ):
            found.setdefault(path, []).append(rows)
        before += len(chunk)
    for path, parts in found.items():
        rows = np.unique(np.concatenate(parts))
        number = "" if first is None else f", first in row {rows[0]}"
        raise Invalid(f"column {path!r} is required, but null in {len(rows)} rows{number}")


def _missing(
    array: pa.Array, field: pa.Field, path: str, rows: Int64Array
) -> Iterator[tuple[str, Int64Array]]:
    """Yield the path of each required field that is null, and where.  ``rows``: the row of each of
    n values -> int64[n].
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

"""Conversion of input data and schemas to Arrow.

Input is recognized by its protocols or the name of its class, so pandas, polars, duckdb and pyspark
are not imported. Types are not changed here, but by :mod:`mdt.schema.conform`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.arguments import own_spelling
from mdt.errors import Invalid
from mdt.schema.calendars import require_gregorian
from mdt.schema.convert import without_rows
from mdt.schema.declared import plain
from mdt.schema.lossy_casts import TRUNCATED, first_truncated
from mdt.schema.nested import is_list

_PANDAS_INDEX = "__index_level_"
_ACCEPTED = (
    "use a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an iterable of"
    " tables or batches, a list of dicts, a dict of columns, a pandas, polars or duckdb object, or"
    " a Spark DataFrame"
)
_SHOWN_CHARACTERS_MAX = 80
_SMALL_BYTES = 64 << 10
"""Smaller pieces are combined with their neighbours."""
_TOGETHER_MAX = 1024
"""Maximum number of small pieces that are combined."""


def _is_of(data: Any, package: str, *names: str) -> bool:
    """Return True if ``data`` is an instance of a class in ``package``, without importing the
    package.
    """
    return any(
        c.__module__.split(".")[0] == package and c.__name__ in names for c in type(data).__mro__
    )


def to_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return ``data`` as an Arrow table.

    ``schema`` has the expected columns and determines the types of Python values. Raises Invalid if
    ``data`` cannot be converted. Errors raised by an iterable of the caller are passed on.

    >>> to_table([{"id": "a", "n": 1}]).schema.types
    [DataType(string), DataType(int64)]
    >>> to_table({"n": [1]}, pa.schema({"n": pa.int8()})).schema.types
    [DataType(int8)]
    """
    return rename_to_match(_as_table(data, schema), schema)


def rename_to_match(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """Rename the columns of ``table`` to the matching names of ``schema`` (:func:`match_names`).

    Raises Invalid for ambiguous names, and for dates in another calendar
    (:mod:`mdt.schema.calendars`).
    """
    require_gregorian(table)
    if schema is None:
        return table
    names = match_names(table.column_names, schema.names)
    if names == table.column_names:
        return table
    return table.rename_columns(names)


def match_names(data_names: Sequence[str], table_names: Sequence[str]) -> list[str]:
    """Return the table's name for each column of the data.

    Names match if they differ only in case, unless the data also has the exact name. Raises Invalid
    if the match is ambiguous.

    >>> match_names(["ID", "more"], ["id", "fare"])
    ['id', 'more']
    """
    known_names = frozenset(table_names)
    if known_names.issuperset(data_names):
        return list(data_names)
    exact = known_names.intersection(data_names)
    unmatched = [name for name in table_names if name not in exact]
    matches = {
        name: own_spelling(name, unmatched) for name in data_names if name not in known_names
    }
    for column in filter(None, matches.values()):
        candidates = [name for name, match in matches.items() if match == column]
        if len(candidates) > 1:
            raise Invalid(
                f"the column {column!r} matches several columns of the data:"
                f" {', '.join(candidates)}",
                hint=f"rename one of them to {column}",
            )
    return [matches.get(name) or name for name in data_names]


def _as_table(data: Any, schema: pa.Schema | None) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _of_columns(data, schema)
    if _is_of(data, "polars", "LazyFrame"):
        data = data.collect()
    _require_values(data)
    if _is_of(data, "pyarrow", "Dataset", "Scanner"):
        return _checked(data, data.to_table)
    if _is_of(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _checked(data, lambda: pa.table(data))
    if (
        isinstance(data, Iterable)
        and not isinstance(data, str | bytes)
        and not hasattr(data, "__array__")
    ):
        return _of_items(data, schema)
    hint = _ACCEPTED
    if isinstance(data, str):
        hint = f"read it first; then {_ACCEPTED}"
    raise Invalid(f"data of type {type(data).__name__} cannot be written", hint=hint)


def _require_values(data: Any) -> None:
    """Raise Invalid for columns of Python objects in polars, which polars exports as addresses."""
    if not _is_of(data, "polars", "DataFrame"):
        return
    for name, type in data.schema.items():
        if str(type) == "Object":
            raise Invalid(
                f"column {name!r} has the type Object of polars, which has no values in Arrow",
                hint="convert it to another type of polars, such as pl.String or pl.Binary",
            )


def column_of(data: Any) -> pa.Array | pa.ChunkedArray | None:
    """Return an array or Series as an Arrow array, or None if ``data`` is neither.

    Accepts arrays of Arrow and numpy, and a Series or Index of pandas or polars. Struct arrays
    return None because they have columns. Raises Invalid for values that Arrow cannot represent,
    and for several dimensions.

    >>> column_of(pa.array([1, 2])).to_pylist(), column_of(pa.array([{"id": 1}])), column_of([1, 2])
    ([1, 2], None, None)
    """
    if isinstance(data, pa.Array | pa.ChunkedArray):
        if pa.types.is_struct(data.type):
            return None
        return data
    if _is_of(data, "polars", "Series"):
        return column_of(data.to_arrow())
    is_array = _is_of(data, "numpy", "ndarray") and data.dtype.names is None
    if not is_array and not _is_of(data, "pandas", "Series", "Index"):
        return None
    if data.ndim != 1:
        raise Invalid(f"an array of {data.ndim} dimensions is not a column")
    try:
        return pa.array(data, from_pandas=not is_array)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(
            f"the values of the {type(data).__name__} are not a column: {error}"
        ) from error


def pieces(
    data: Any,
    schema: pa.Schema | None = None,
    convert_rows: Callable[[Any, pa.Schema | None], pa.Table] = to_table,
) -> Iterator[pa.Table] | None:
    """Return an iterator over tables if ``data`` is read in pieces, else None.

    Readers and objects with ``__arrow_c_stream__``, datasets, scanners, and generators of tables or
    batches are read in pieces. Small pieces are combined. ``schema`` is as in :func:`to_table`, and
    ``convert_rows`` converts rows that are dicts. The iterator raises Invalid, or the error of the
    caller's generator.

    >>> [
    ...     len(table)
    ...     for table in pieces(
    ...         iter([pa.table({"n": [1]}), pa.table({"n": [2, 3]}), pa.table({"n": [0.5]})])
    ...     )
    ... ]
    [3, 1]
    """
    tables = _pieces(data, schema, convert_rows)
    if tables is None:
        return None
    return (rename_to_match(piece, schema) for piece in tables)


def _pieces(
    data: Any, schema: pa.Schema | None, convert_rows: Callable[[Any, pa.Schema | None], pa.Table]
) -> Iterator[pa.Table] | None:
    if isinstance(data, pa.Table | pa.RecordBatch | Mapping) or _is_of(data, "pandas", "DataFrame"):
        return None
    if _is_of(data, "pyarrow", "Dataset"):
        return _of_reader(data, lambda: data.scanner().to_reader())
    if _is_of(data, "pyarrow", "Scanner"):
        return _of_reader(data, data.to_reader)
    if hasattr(data, "__arrow_c_stream__"):
        _require_values(data)
        return _of_reader(data, lambda: pa.RecordBatchReader.from_stream(data))
    if isinstance(data, Iterator):
        return _combine_small(_of_iterator(data, schema, convert_rows))
    return None


def _combine_small(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Combine small neighbouring pieces with the same columns.

    Each piece takes some kilobytes of memory, however few rows it has.
    """
    small: list[pa.Table] = []
    for piece in pieces:
        is_small = piece.nbytes < _SMALL_BYTES
        fits = is_small and len(small) < _TOGETHER_MAX
        if small and not (fits and piece.schema.equals(small[0].schema, check_metadata=True)):
            yield _concatenate(small)
            small = []
        if is_small:
            small.append(piece)
        else:
            yield piece
    if small:
        yield _concatenate(small)


def _concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables with the same columns.

    Chunks are combined unless their dictionaries are too large for one.
    """
    combined = pa.concat_tables([table for table in tables if len(table)] or tables[:1])
    if len(tables) == 1:
        return combined
    try:
        return combined.combine_chunks()
    except pa.ArrowException:
        return combined


def has_fixed_columns(data: Any) -> bool:
    """Return True if the first piece of ``data`` has all columns.

    Pieces of a generator may have different columns.
    """
    return not isinstance(data, Iterator) or hasattr(data, "__arrow_c_stream__")


def _of_reader(data: Any, open_reader: Callable[[], pa.RecordBatchReader]) -> Iterator[pa.Table]:
    try:
        reader = open_reader()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _table_error(data, error) from error
    yield without_rows(reader.schema)
    yield from _combine_small(_batches(data, reader))


def _batches(data: Any, reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(
                f"data of type {type(data).__name__} could not be read: {error}",
                hint="nothing was written",
            ) from error
        yield pa.Table.from_batches([batch])


def _of_iterator(
    data: Iterator[Any],
    schema: pa.Schema | None,
    convert_rows: Callable[[Any, pa.Schema | None], pa.Table],
) -> Iterator[pa.Table]:
    """Yield tables and batches as they come.

    Rows that are dicts are converted together, because any of them may determine a type.
    """
    first = list(islice(data, 1))
    if not first or isinstance(first[0], Mapping):
        yield convert_rows([*first, *data], schema)
        return
    for item in chain(first, data):
        _require_table(data, item)
        yield to_table(item)


def to_schema(schema: Any) -> pa.Schema:
    """Return a schema of pyarrow, polars or any object with ``__arrow_c_schema__``.

    Raises Invalid for data and for other objects.
    """
    if isinstance(schema, pa.Schema):
        return schema
    kind = type(schema).__name__
    if hasattr(type(schema), "schema") or hasattr(schema, "__arrow_c_stream__"):
        by = "data.schema"
        if _is_of(schema, "pandas", "DataFrame"):
            by = "pa.Schema.from_pandas(data, preserve_index=False)"
        raise Invalid(
            f"the schema is a {kind}, which is data",
            hint=f"use {by}, and write the rows after the table is created",
        )
    if hasattr(schema, "__arrow_c_schema__"):
        try:
            return pa.schema(schema)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(
                f"a schema of type {kind} cannot be used: {error}", hint="use a pyarrow.Schema"
            ) from error
    raise Invalid(
        f"a {kind} is not a schema",
        hint="use a pyarrow.Schema, such as table.schema, or the schema of a polars or Spark frame",
    )


def _checked(data: Any, read: Any) -> pa.Table:
    try:
        table = read()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _table_error(data, error) from error
    assert isinstance(table, pa.Table), "pyarrow makes tables of streams"
    return table


def _table_error(data: Any, error: Exception) -> Invalid:
    return Invalid(
        f"data of type {type(data).__name__} is not a table: {error}",
        hint="use one type for each column",
    )


def _of_pandas(data: Any) -> pa.Table:
    """Convert a pandas frame. Named index levels become columns, unnamed levels are dropped."""
    named = any(name is not None for name in data.index.names)
    table = _checked(data, lambda: pa.Table.from_pandas(data, preserve_index=named))
    return table.drop_columns(
        [name for name in table.column_names if name.startswith(_PANDAS_INDEX)]
    )


def _of_items(data: Iterable[Any], schema: pa.Schema | None) -> pa.Table:
    """Return an iterable of tables, batches or dicts as one table."""
    items = list(data)
    if not items:
        return without_rows(pa.schema([] if schema is None else schema))
    if all(isinstance(item, Mapping) for item in items):
        return _of_rows(items, schema)
    for item in items:
        _require_table(data, item)
    return concatenate([to_table(item) for item in items])


def _require_table(data: Any, item: Any) -> None:
    """Raise Invalid unless an item of ``data`` is a table or a batch."""
    if isinstance(item, pa.Array) or not (
        hasattr(item, "__arrow_c_array__") or hasattr(item, "__arrow_c_stream__")
    ):
        raise Invalid(
            f"data of type {type(data).__name__} with an item of type {type(item).__name__} cannot"
            " be written",
            hint=_ACCEPTED,
        )


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables, at least one. Missing columns become null.

    Raises Invalid if column types do not match.
    """
    try:
        return pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowException, TypeError) as error:
        raise Invalid(
            f"the pieces of the data have different columns: {error}",
            hint="use the same schema for all pieces",
        ) from error


def _of_rows(rows: Sequence[Mapping[Any, Any]], schema: pa.Schema | None) -> pa.Table:
    """Convert rows to columns. Missing values are null."""
    names = dict.fromkeys(name for row in rows for name in row)
    _require_text(names)
    table_names = _table_names(names, schema)
    return _table(
        {
            name: _to_array(table_names[name], [row.get(name) for row in rows], schema)
            for name in names
        }
    )


def _table_names(names: Iterable[str], schema: pa.Schema | None) -> dict[str, str]:
    """Return each name -> name of the expected column."""
    given_names = table_names = list(names)
    if schema is not None:
        table_names = match_names(given_names, schema.names)
    return dict(zip(given_names, table_names, strict=True))


def _of_columns(columns: Mapping[Any, Any], schema: pa.Schema | None) -> pa.Table:
    _require_text(columns)
    table_names = _table_names(columns, schema)
    arrays = {}
    for name, values in columns.items():
        # A zero-dimensional numpy array is a scalar, although its class is iterable.
        if (
            isinstance(values, str | bytes)
            or not isinstance(values, Iterable)
            or getattr(values, "ndim", 1) == 0
        ):
            kind = type(values).__name__
            raise Invalid(
                f"column {name!r} of a dict is a {kind}, not a list",
                hint="to write one row, use a list of one dict: [row]",
            )
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            if not hasattr(values, "__array__"):
                values = list(values)
            values = _to_array(table_names[name], values, schema)
        arrays[name] = values
    return _table(arrays)


def _require_text(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise Invalid(
                f"the column name {name!r} is not a string", hint="use strings as column names"
            )


def _table(columns: Mapping[str, Any]) -> pa.Table:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise Invalid(
            f"columns have different lengths: {lengths}",
            hint="every column needs one value for each row",
        )
    try:
        return pa.table(dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"the columns cannot be combined into a table: {error}") from error


_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""Errors that pyarrow raises for Python values of another type. Text with lone surrogates raises
UnicodeEncodeError, a ValueError.
"""


def _to_array(name: str, values: Any, schema: pa.Schema | None) -> Any:
    """Convert Python values to an array of the expected type.

    Falls back to their own type, which may be cast later.
    """
    type = None
    if schema is not None and name in schema.names:
        type = plain(schema.field(name).type)
    if type is not None and not _hides_type(type, values):
        cut = first_truncated(_objects(values, type), type)
        if cut is not None and not _is_number(type):
            raise _value_error(name, values, cut, type, TRUNCATED)
        try:
            if cut is None:
                return pa.array(values, type)
        except _UNFIT:
            pass
    try:
        return pa.array(values)
    except _UNFIT as error:
        row, reason = 0, str(error)
        if isinstance(values, list):
            row, reason = _first_misfit(values, type)
        raise _value_error(name, values, row, type, reason) from error


def _value_error(
    name: str, values: Any, row: int, type: pa.DataType | None, reason: str
) -> Invalid:
    text = repr(list(values)[row])[:_SHOWN_CHARACTERS_MAX]
    expected = type or "value of the column"
    return Invalid(
        f"column {name!r}: row {row} has {text}, which is not a valid {expected}: {reason}"
    )


def _objects(values: Any, type: pa.DataType) -> Sequence[Any]:
    """Return values as a list with None for missing pandas values.

    The list is empty if no value of the array's type can be truncated.
    """
    if isinstance(values, list):
        return values
    if getattr(values, "dtype", object) != object:
        if pa.types.is_floating(type):
            return values.tolist()
        return ()
    objects = list(values)
    if hasattr(values, "isna"):
        for row in np.flatnonzero(values.isna()).tolist():
            objects[row] = None
    return objects


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type))


def _hides_type(type: pa.DataType, values: Any) -> bool:
    """Return True if the values carry type information that a conversion to ``type`` would hide.

    Examples are a time zone, booleans among numbers, and the dtype of an array.
    """
    inner = type
    while is_list(inner):
        inner = inner.value_type
    if pa.types.is_timestamp(inner):
        # pyarrow ignores the nanoseconds of pandas timestamps
        return not any(getattr(value, "nanosecond", 0) for value in values)
    if getattr(values, "dtype", object) != object and len(values):
        is_integer = getattr(values.dtype, "kind", "") in ("i", "u")
        return pa.types.is_integer(inner) or (pa.types.is_temporal(inner) and not is_integer)
    return (
        _is_number(inner)
        and isinstance(values, list)
        and any(value is True or value is False for value in values)
    )


def _first_misfit(values: list[Any], type: pa.DataType | None) -> tuple[int, str]:
    """Return (position, reason) of the first value that cannot be converted.

    Converts O(log n) prefixes.
    """
    ends = range(1, len(values))
    position = bisect_left(ends, True, key=lambda end: _refusal(values[:end], type) is not None)
    return position, _refusal(values[: position + 1], type) or "values of different types"


def _refusal(values: list[Any], type: pa.DataType | None) -> str | None:
    try:
        pa.array(values, type)
    except _UNFIT as error:
        return str(error).splitlines()[0]
    if type is None or first_truncated(values, type) is None:
        return None
    return TRUNCATED

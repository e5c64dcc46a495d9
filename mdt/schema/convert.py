"""Lossless conversion of Arrow arrays between types, including nested types.

pyarrow casts flat types. But it cannot dictionary-encode numbers in a cast, loses values of list
views (seen with 26.0.1), rounds floats and decimals even in safe casts, and ignores required fields
of nested types. So nested arrays are split and rebuilt (:mod:`mdt.schema.nested`). An array may
have at most 2^31 values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import run_starts
from indexes.decimals import as_floating
from mdt.schema.nested import fields_of, lengths, nulls, parts_of, rebuild

_INT64_DIGITS = 20
"""Digits of the largest 64-bit integer."""
_DECIMAL128_DIGITS_MAX = 38
_EXACT_BITS = {pa.float32(): 24, pa.float64(): 53}
"""Floating-point type -> n, where it holds every integer up to 2^n. pyarrow refuses larger ones."""


def without_rows(schema: pa.Schema) -> pa.Table:
    """Return an empty table.

    ``schema.empty_table()`` fails for lists of dictionaries of views.
    """
    return pa.Table.from_batches([], schema)


def is_same(a: pa.DataType, b: pa.DataType) -> bool:
    """Return True if two types are equal, including field names and metadata."""
    return bool(a == b and (not a.num_fields or a.equals(b, check_metadata=True)))


def with_nulls(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of ``schema``, with null for columns that ``rows`` lacks."""
    names = frozenset(rows.column_names)
    columns = []
    for field in schema:
        if field.name in names:
            columns.append(rows[field.name])
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.table(columns, schema=schema)


def is_encoded(type: pa.DataType) -> bool:
    """Return True if ``type`` is a dictionary or run-end encoded."""
    return bool(pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type))


def convert(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return ``array`` (n values) as an array of ``type``.

    Raises ValueError or one of its subclasses in pyarrow if a value has no equal value in ``type``,
    or a list has another length. The caller decides which kinds of types may be converted, e.g.
    numbers to text.

    >>> convert(pa.array([3.0, None]), pa.int8()).to_pylist()
    [3, None]
    """
    source = array.type
    if is_same(source, type):
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), type)
    if is_encoded(source):
        return convert(_decode(array), type)
    if pa.types.is_dictionary(type):
        return _dictionary(convert(array, type.value_type), type)
    if pa.types.is_run_end_encoded(type):
        return pc.run_end_encode(convert(array, type.value_type), run_end_type=type.run_end_type)
    if pa.types.is_struct(type):
        return _struct(array, type)
    if pa.types.is_fixed_size_list(type):
        return _fixed_size(array, type)
    fields = fields_of(type)
    if not fields:
        return _cast_exactly(array, type)
    pairs = zip(parts_of(array), fields, strict=True)
    return rebuild(array, [convert(part, field.type) for part, field in pairs], type)


def _decode(array: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(array.type):
        return pc.run_end_decode(array)
    values = array.dictionary
    if pa.types.is_string_view(values.type):  # Arrow cannot take rows of views
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.take(array.indices)


def _dictionary(values: pa.Array, type: pa.DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(type.index_type), encoded.dictionary, ordered=type.ordered
    )


def _struct(array: pa.StructArray, type: pa.DataType) -> pa.Array:
    names = [field.name for field in array.type]
    expected = [field.name for field in type]
    if len(set(names)) != len(names) or set(names) != set(expected):
        raise ValueError(f"the struct has the fields {names}, not {expected}")
    fields = [convert(array.field(names.index(field.name)), field.type) for field in type]
    return rebuild(array, fields, type)


def _fixed_size(array: pa.Array, type: pa.DataType) -> pa.Array:
    values, sizes, mask, size = array.flatten(), lengths(array), nulls(array), type.list_size
    starts = run_starts(sizes)
    valid = np.asarray(array.is_valid())
    wrong = np.flatnonzero(valid & (sizes != size))
    if len(wrong):
        raise ValueError(f"a list has {sizes[wrong[0]]} values, not {size}")
    if _is_view(values.type):  # pyarrow cannot take rows of views
        values = convert(values, type.value_type)
    if mask is not None:
        positions = (np.where(valid, starts, 0)[:, None] + np.arange(size)).ravel()
        values = values.take(pa.array(positions, mask=np.repeat(~valid, size)))
    return pa.FixedSizeListArray.from_arrays(convert(values, type.value_type), type=type, mask=mask)


def _is_view(type: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type) or pa.types.is_binary_view(type))


def _cast_exactly(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Cast flat values without rounding.

    Also casts integers that pyarrow refuses because the widest value of their type would not fit.
    """
    source, kinds = array.type, pa.types
    if kinds.is_integer(source) and kinds.is_decimal(type):
        wide, digits = pa.decimal128, _INT64_DIGITS + type.scale
        if digits > _DECIMAL128_DIGITS_MAX:
            wide = pa.decimal256
        return array.cast(wide(digits, type.scale)).cast(type)
    if kinds.is_integer(source) and (kinds.is_time(type) or kinds.is_duration(type)):
        if kinds.is_time32(type):
            return array.cast(pa.int32()).cast(type)
        return array.cast(pa.int64()).cast(type)
    pair = (source, type)
    result = _cast(array, type)
    narrows = all(map(kinds.is_floating, pair)) and type.bit_width < source.bit_width
    narrows |= kinds.is_integer(source) and kinds.is_float16(type)
    if narrows or (any(map(kinds.is_floating, pair)) and any(map(kinds.is_decimal, pair))):
        _require_equal(array, result)
    return result


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type) and pa.types.is_floating(type):
        return as_floating(array, type)
    try:
        return array.cast(type)
    except pa.ArrowInvalid as error:
        if not (pa.types.is_integer(array.type) and type in _EXACT_BITS):
            raise
        exact = 1 << _EXACT_BITS[type]
        raise ValueError(f"{type} holds only integers from {-exact:,} to {exact:,}") from error


def _require_equal(array: pa.Array, converted: pa.Array) -> None:
    back = _cast(converted, array.type)
    if pa.types.is_floating(array.type):
        equal = pc.or_(pc.equal(array, back), pc.and_(pc.is_nan(array), pc.is_nan(back)))
    else:
        equal = pc.equal(array, back)
    if not pc.all(equal).as_py() and len(equal) > equal.null_count:
        raise ValueError(f"{array.type} would be rounded to {converted.type}")


def fill_required(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return a stored array with values in the required fields of null structs.

    Arrow leaves these values undefined, but Parquet's writer refuses nulls in them. ``type`` has
    only plain lists and maps.
    """
    if not requires(type):
        return array
    if pa.types.is_struct(type):
        pairs = zip(array.flatten(), fields_of(type), strict=True)  # null in null structs
        return rebuild(array, [_fill_field(*pair, array) for pair in pairs], type)
    pairs = zip(parts_of(array), fields_of(type), strict=True)
    return rebuild(array, [fill_required(part, field.type) for part, field in pairs], type)


def _fill_field(array: pa.Array, field: pa.Field, structs: pa.StructArray) -> pa.Array:
    array = fill_required(array, field.type)
    if field.nullable or not array.null_count:
        return array
    rows = np.where(np.asarray(structs.is_null()), len(array), np.arange(len(array)))
    return pa.concat_arrays([array, pa.array([_any_value(field.type)], field.type)]).take(
        pa.array(rows)
    )


def _any_value(type: pa.DataType) -> object:
    """Return an arbitrary value of a stored type, for ``pa.array``."""
    kinds = pa.types
    if kinds.is_struct(type):
        return {field.name: _any_value(field.type) for field in type}
    if kinds.is_list(type) or kinds.is_map(type):
        return []
    if kinds.is_string(type):
        return ""
    if kinds.is_binary(type):
        return b""
    if kinds.is_boolean(type):
        return False
    return 0


def requires(type: pa.DataType) -> bool:
    """Return True if ``type`` contains a required field."""
    if pa.types.is_map(type):
        return has_required(type.item_field)
    return any(has_required(type.field(i)) for i in range(type.num_fields))


def has_required(field: pa.Field) -> bool:
    """Return True if ``field`` or a field in it is required."""
    return not field.nullable or requires(field.type)

"""Nested Arrow types and arrays (structs, maps, lists of every kind): splitting and rebuilding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]

_LISTS = (
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)
"""Other list types and their constructors. Plain and fixed-size lists are handled separately."""


def is_list(type: pa.DataType) -> bool:
    """Return True if ``type`` is a list of any kind. Maps are not lists.

    >>> is_list(pa.list_(pa.int8(), 3)), is_list(pa.map_(pa.string(), pa.int8()))
    (True, False)
    """
    tests = (pa.types.is_list, pa.types.is_fixed_size_list, *(test for test, _ in _LISTS))
    return any(test(type) for test in tests)


def fields_of(type: pa.DataType) -> list[pa.Field]:
    """Return the child fields of a type.

    A struct has its fields, a list its element, a map its key and value. Flat types have none.
    """
    if pa.types.is_struct(type):
        return list(type)
    if pa.types.is_map(type):
        return [type.key_field, type.item_field]
    if is_list(type):
        return [type.value_field]
    return []


def holds(type: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Return True if ``type``, or a type in it at any depth, is of a kind.

    >>> holds(pa.list_(pa.struct([("day", pa.date32())])), pa.types.is_date)
    True
    """
    return is_kind(type) or any(holds(field.type, is_kind) for field in fields_of(type))


def is_local_time(type: pa.DataType) -> bool:
    """Return True for timestamps without time zone."""
    return bool(pa.types.is_timestamp(type) and type.tz is None)


def with_fields(type: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return a nested type of the same kind with other child fields.

    Fields are in the order of :func:`fields_of`. Flat types are returned unchanged.
    """
    if not fields:
        return type
    if pa.types.is_struct(type):
        return pa.struct(fields)
    if pa.types.is_map(type):
        return pa.map_(fields[0].type, fields[1], type.keys_sorted)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(fields[0], type.list_size)
    return next((make for test, make in _LISTS if test(type)), pa.list_)(fields[0])


def lengths(array: pa.Array) -> Int64Array:
    """Lengths of n lists (int64[n]), 0 for null lists."""
    return np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)


def nulls(array: pa.Array) -> pa.Array | None:
    """Return the null mask of ``array``, or None if no value is null."""
    if array.null_count:
        return array.is_null()
    return None


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the child arrays of a nested array, one for each of :func:`fields_of`.

    Raises ValueError for flat arrays.
    """
    if pa.types.is_struct(array.type):
        return [array.field(i) for i in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        first, last = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
        return [part.slice(first, last - first) for part in (array.keys, array.items)]
    if not is_list(array.type):
        raise ValueError(f"{array.type} is not a nested type")
    return [array.flatten()]


def rebuild(array: pa.Array, parts: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """Rebuild a nested array from other ``parts``; the inverse of :func:`parts_of`.

    ``array`` provides offsets and nulls. ``type`` is the type of the result, which must not be a
    fixed-size list.
    """
    kinds, mask = pa.types, nulls(array)
    if kinds.is_struct(type):
        return pa.StructArray.from_arrays(parts, fields=list(type), mask=mask)
    if kinds.is_map(type):
        offsets = np.asarray(array.offsets)
        begins = pa.array(offsets - offsets[0], pa.int32())
        return pa.MapArray.from_arrays(begins, *parts, type=type, mask=mask)
    sizes = lengths(array)
    bounds = np.append(0, np.cumsum(sizes))
    if kinds.is_list(type):
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), *parts, type=type, mask=mask)
    if kinds.is_large_list(type):
        return pa.LargeListArray.from_arrays(bounds, *parts, type=type, mask=mask)
    if kinds.is_list_view(type):
        starts, counts = (pa.array(numbers, pa.int32()) for numbers in (bounds[:-1], sizes))
        return pa.ListViewArray.from_arrays(starts, counts, *parts, type=type, mask=mask)
    return pa.LargeListViewArray.from_arrays(bounds[:-1], sizes, *parts, type=type, mask=mask)

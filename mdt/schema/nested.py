"""Nested types and arrays, taken apart into the fields in them and put together again: structs,
lists of every kind, maps.
"""

from __future__ import annotations

from collections.abc import Sequence

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
"""Kinds of lists beside plain ones and those of a fixed size, and what makes them."""


def is_list(type: pa.DataType) -> bool:
    """Return whether ``type`` is a list of any kind; a map is not.

    >>> is_list(pa.list_(pa.int8(), 3)), is_list(pa.map_(pa.string(), pa.int8()))
    (True, False)
    """
    tests = (pa.types.is_list, pa.types.is_fixed_size_list, *(test for test, _ in _LISTS))
    return any(test(type) for test in tests)


def fields_of(type: pa.DataType) -> list[pa.Field]:
    """Return the fields in a type: of a struct its own, of a list the elements, of a map keys and
    values; none of a flat one.
    """
    if pa.types.is_struct(type):
        return list(type)
    if pa.types.is_map(type):
        return [type.key_field, type.item_field]
    if is_list(type):
        return [type.value_field]
    return []


def with_fields(type: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return a nested type of the same kind with other fields, in the order of
    :func:`fields_of`; a flat type, which has none, as it is.
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
    """Return how many values each of n lists has, 0 where it is null -> int64[n]."""
    return np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)


def nulls(array: pa.Array) -> pa.Array | None:
    """Return which values are null, None if none is."""
    if array.null_count:
        return array.is_null()
    return None


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the values in nested ones, an array for each of :func:`fields_of`.  Raises ValueError
    for flat values.
    """
    if pa.types.is_struct(array.type):
        return [array.field(i) for i in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        first, last = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
        return [part.slice(first, last - first) for part in (array.keys, array.items)]
    if not is_list(array.type):
        raise ValueError(f"{array.type} has nothing inside")
    return [array.flatten()]


def put_together(array: pa.Array, parts: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """Return nested values with other ``parts`` in the place of what :func:`parts_of` gives of
    ``array``.  ``type``: of what is returned; no list of a fixed size.
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
        starts, counts = (pa.array(one, pa.int32()) for one in (bounds[:-1], sizes))
        return pa.ListViewArray.from_arrays(starts, counts, *parts, type=type, mask=mask)
    return pa.LargeListViewArray.from_arrays(bounds[:-1], sizes, *parts, type=type, mask=mask)

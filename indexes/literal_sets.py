"""The literals of a list (IN), as values and as keys of a column's type; long lists of numbers or
texts without a loop over them.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indexes import values


def members(literals: Sequence[object], type: pa.DataType) -> list[object] | pa.Array:
    """Return the values of ``type`` that one of ``literals`` equals, nulls aside; literals and
    errors as for :func:`values.place`.

    >>> members((3, 1.5, None, 300), pa.int8()), members((3, 3, 300), pa.int8()).to_pylist()
    ([3], [3])
    """
    found = _of_one_class(literals, type)
    if found is not None:
        return found
    places = [values.place(value, type) for value in literals if value is not None]
    return [place.value for place in places if place.tie == 0]


def sorted_keys(literals: Sequence[object], type: pa.DataType) -> list[bytes]:
    """Return the keys of the literals that some value can equal, each once, rising.

    >>> len(sorted_keys((7, 3, None, 3, 1.5), pa.int64()))
    2
    """
    found = _of_one_class(literals, type)
    if found is not None:
        keys = values.encode(found)
        return [bytes(key) for key in keys.take(pc.array_sort_indices(keys)).to_pylist()]
    coded = {values.encode_scalar(value, type) for value in literals if value is not None}
    return sorted(key for key in coded if key is not None)


def _of_one_class(literals: Sequence[object], type: pa.DataType) -> pa.Array | None:
    """Return distinct values, if all literals are of the one class of Python that Arrow reads as
    ``type`` does; None otherwise.
    """
    kind, plain = values.kind_of(type), type.value_type if pa.types.is_dictionary(type) else type
    classes = set(map(builtins.type, literals)) - {None.__class__}
    if kind == "string" and classes == {str}:
        return pa.array(literals, pa.string()).drop_null().unique().cast(plain)
    if kind != "int" or classes != {int}:
        return None
    try:
        numbers = pa.array(literals, pa.int64()).drop_null().unique()
    except OverflowError:
        return None
    low, high = values.int_range(plain)
    if plain != pa.int64():
        numbers = numbers.filter(
            pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
        )
    return numbers.cast(plain)

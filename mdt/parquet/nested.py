"""Leaves of nested columns: Parquet stores a struct, list or map as one column for each value in it
that is not nested.

A *chain* is a nested type with a single leaf left in it: ``list<struct<x, y>>`` has the chains
``list<struct<x>>`` and ``list<struct<y>>``.  The levels that Parquet stores beside the values of a
leaf are those of its chain, so a leaf can be read without its neighbours, whose pages hold other
rows.  :func:`assembled` puts the chains together.

The chain of a map has a list of structs in its place, which has the same levels: ``map<k, v>`` has
``list<struct<key: k>>`` and ``list<struct<value: v>>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.session import memo

_KEY, _VALUE = "key", "value"


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf of the column number ``column`` of a schema.

    ``path``: as Parquet writes it.  ``number``: among the leaves of the column.  ``type``: of its
    values.  ``chain``: the column with this leaf alone.
    """

    path: str
    column: int
    number: int
    type: pa.DataType
    chain: pa.Field


@memo(64)
def leaf_columns(schema: pa.Schema) -> tuple[LeafColumn, ...]:
    """Return the leaves of all columns, in the order in which Parquet stores them.

    >>> place = pa.struct([("zip", pa.string()), ("at", pa.list_(pa.float64()))])
    >>> [leaf.path for leaf in leaf_columns(pa.schema([("id", pa.int64()), ("place", place)]))]
    ['id', 'place.zip', 'place.at.list.element']
    """
    return tuple(
        LeafColumn(".".join((field.name, *path)), column, number, type, field.with_type(chain))
        for column, field in enumerate(schema)
        for number, (path, type, chain) in enumerate(_chains(field.type))
    )


def top_level(path: str) -> str:
    """Return the name of the column that has the leaf ``path``.

    >>> top_level("place.at.list.element")
    'place'
    """
    return path.partition(".")[0]


def is_list(type: pa.DataType) -> bool:
    """Return whether ``type`` is a list with offsets, or one of fixed size; a map is not."""
    kinds = pa.types
    return bool(kinds.is_list(type) or kinds.is_large_list(type) or kinds.is_fixed_size_list(type))


def _chains(type: pa.DataType) -> Iterator[tuple[tuple[str, ...], pa.DataType, pa.DataType]]:
    """Yield path below a field of ``type``, type of the values, and chain of each leaf."""
    if pa.types.is_struct(type):
        for field in type:
            for path, leaf, chain in _chains(field.type):
                yield (field.name, *path), leaf, pa.struct([field.with_type(chain)])
    elif pa.types.is_map(type):
        for name, field in ((_KEY, type.key_field), (_VALUE, type.item_field)):
            for path, leaf, chain in _chains(field.type):
                entry = pa.struct([pa.field(name, chain, field.nullable)])
                yield (
                    ("key_value", name, *path),
                    leaf,
                    pa.list_(pa.field("entry", entry, nullable=False)),
                )
    elif is_list(type):
        for path, leaf, chain in _chains(type.value_type):
            yield ("list", "element", *path), leaf, pa.list_(type.value_field.with_type(chain))
    else:
        yield (), type, type


def leaf_values(column: pa.ChunkedArray, leaf: LeafColumn) -> pa.Array | pa.ChunkedArray:
    """Return the values of ``leaf`` in its ``column``, one after the other; null where something
    around them is.
    """
    if not pa.types.is_nested(column.type):
        return column
    return next(islice(_values(column.combine_chunks()), leaf.number, None))


def _values(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each leaf."""
    if not pa.types.is_nested(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _values(field)
    elif pa.types.is_map(array.type):
        first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        yield from _values(array.keys.slice(first, end - first))
        yield from _values(array.items.slice(first, end - first))
    else:
        yield from _values(array.flatten())


def assembled(type: pa.DataType, chains: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the column of ``type`` whose leaves are ``chains``, n rows each.  O(n + values in
    lists).
    """
    if len(chains) == 1 and chains[0].type == type:
        return chains[0]
    batches = pa.table(list(chains), [str(number) for number in range(len(chains))]).to_batches()
    return pa.chunked_array([_joined(type, batch.columns) for batch in batches], type)


def _joined(type: pa.DataType, chains: Sequence[pa.Array]) -> pa.Array:
    """Return the array of ``type`` whose leaves are ``chains``: lists in these have the same
    lengths, and the same rows are null.
    """
    first = chains[0]
    if len(chains) == 1 and first.type == type:
        return first
    mask = first.is_null() if first.null_count else None
    if pa.types.is_struct(type):
        return pa.StructArray.from_arrays(_fields(list(type), chains), fields=list(type), mask=mask)
    lengths = pc.list_value_length(first).fill_null(0)
    if any(pc.list_value_length(chain).fill_null(0) != lengths for chain in chains[1:]):
        raise ValueError("lists have other lengths in one leaf than in another")
    ends = np.append(0, np.cumsum(np.asarray(lengths))).astype(np.int32)
    values = [chain.flatten() for chain in chains]
    if pa.types.is_map(type):
        keys, items = _fields([type.key_field, type.item_field], values)
        return pa.MapArray.from_arrays(ends, keys, items, type=type, mask=mask)
    return pa.ListArray.from_arrays(ends, _joined(type.value_type, values), type=type, mask=mask)


def _fields(fields: Sequence[pa.Field], chains: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the values of ``fields``, whose leaves are in the structs of one field ``chains``."""
    found, left = [], iter(chains)
    for field in fields:
        mine = [next(left).field(0) for _ in _chains(field.type)]
        found.append(_joined(field.type, mine))
    return found

"""Leaves of nested columns. Parquet stores a struct, list or map as one column per non-nested
value.

A *chain* is a nested type reduced to a single leaf: ``list<struct<x, y>>`` has the chains
``list<struct<x>>`` and ``list<struct<y>>``. Parquet stores the levels of the chain with the values
of its leaf. A leaf can therefore be read without its neighbors, whose pages hold different rows.
:func:`assemble` combines the chains.

The chain of a map is a list of structs with the same levels: ``map<k, v>`` has ``list<struct<key:
k>>`` and ``list<struct<value: v>>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.schema.nested import is_list, parts_of
from mdt.session import memo

_KEY, _VALUE = "key", "value"


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf of a column.

    Attributes:
        path: In Parquet's notation.
        column: Number of the column in its schema.
        number: Number of the leaf in its column.
        type: Type of its values.
        chain: The column reduced to this leaf.
    """

    path: str
    column: int
    number: int
    type: pa.DataType
    chain: pa.Field


@memo(64)
def leaf_columns(schema: pa.Schema) -> tuple[LeafColumn, ...]:
    """Return the leaves of all columns, in Parquet's order.

    >>> place = pa.struct([("zip", pa.string()), ("at", pa.list_(pa.float64()))])
    >>> [leaf.path for leaf in leaf_columns(pa.schema([("id", pa.int64()), ("place", place)]))]
    ['id', 'place.zip', 'place.at.list.element']
    """
    return tuple(
        LeafColumn(".".join((field.name, *path)), column, number, type, field.with_type(chain))
        for column, field in enumerate(schema)
        for number, (path, type, chain) in enumerate(_chains(field.type))
    )


def _chains(type: pa.DataType) -> Iterator[tuple[tuple[str, ...], pa.DataType, pa.DataType]]:
    """Yield, for each leaf of ``type``, its path below the field, its value type and its chain."""
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
    """Return the flattened values of ``leaf`` in its ``column``, null where an enclosing struct is
    null.
    """
    if not pa.types.is_nested(column.type):
        return column
    return next(islice(_values(column.combine_chunks()), leaf.number, None))


def _values(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of each leaf."""
    if not pa.types.is_nested(array.type):
        yield array
        return
    parts = array.flatten() if pa.types.is_struct(array.type) else parts_of(array)
    for part in parts:
        yield from _values(part)


def assemble(type: pa.DataType, chains: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the column of ``type`` with the leaves ``chains``, n rows each. O(n + values in
    lists).
    """
    if len(chains) == 1 and chains[0].type == type:
        return chains[0]
    batches = pa.table(list(chains), [str(number) for number in range(len(chains))]).to_batches()
    return pa.chunked_array([_assemble_array(type, batch.columns) for batch in batches], type)


def _assemble_array(type: pa.DataType, chains: Sequence[pa.Array]) -> pa.Array:
    """Return the array of ``type`` with the leaves ``chains``.

    The chains must have equal list lengths, and nulls in the same rows.
    """
    first = chains[0]
    if len(chains) == 1 and first.type == type:
        return first
    mask = first.is_null() if first.null_count else None
    if pa.types.is_struct(type):
        return pa.StructArray.from_arrays(_fields(list(type), chains), fields=list(type), mask=mask)
    lengths = pc.list_value_length(first).fill_null(0)
    if any(pc.list_value_length(chain).fill_null(0) != lengths for chain in chains[1:]):
        raise ValueError("lists have different lengths in different leaves")
    ends = np.append(0, np.cumsum(np.asarray(lengths))).astype(np.int32)
    values = [chain.flatten() for chain in chains]
    if pa.types.is_map(type):
        keys, items = _fields([type.key_field, type.item_field], values)
        return pa.MapArray.from_arrays(ends, keys, items, type=type, mask=mask)
    return pa.ListArray.from_arrays(
        ends, _assemble_array(type.value_type, values), type=type, mask=mask
    )


def _fields(fields: Sequence[pa.Field], chains: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the values of ``fields``.

    Args:
        chains: A single-field struct array per leaf of these fields.
    """
    values, remaining = [], iter(chains)
    for field in fields:
        structs = [next(remaining).field(0) for _ in _chains(field.type)]
        values.append(_assemble_array(field.type, structs))
    return values

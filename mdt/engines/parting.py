"""Partitioning of rows among tasks by key hash, so that equal keys reach the same task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import stable_order
from indexes.base import Int64Array
from indexes.key_hash import KeyHash, hash_keys
from mdt.hudi.record_keys import record_keys


def sample_evenly(table: pa.Table, share: float) -> pa.Table:
    """Return a fraction ``share`` of the rows at even distances, rounded up."""
    return table.take(
        pa.array(
            np.linspace(
                0, len(table), math.ceil(len(table) * share), endpoint=False, dtype=np.int64
            )
        )
    )


def hash_values(
    table: pa.Table, names: Sequence[str]
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Hash the columns ``names``, equal values to equal numbers -> uint64[n]. Null is a value like
    any other.
    """
    texts = [
        pc.fill_null(pc.cast(_without_negative_zero(table[name]), pa.string()), "")
        for name in names
    ]
    return hash_keys(pc.binary_join_element_wise(*texts, "\0"), 0).lo


def _without_negative_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0, because an integer column of the table stores both as the same key."""
    if not pa.types.is_floating(column.type):
        return column
    wide = pc.cast(column, pa.float64())  # Arrow cannot add half floats
    return pc.add(wide, 0.0)


def part_of(
    table: pa.Table, names: Sequence[str], parts: int, key_hash: KeyHash | None = None
) -> Int64Array:
    """Return the part of each row, equal for equal values of the columns ``names`` -> int64[n].

    ``parts``: the number of parts, at most 2^31. ``key_hash``: the key hash of the table if
    ``names`` are its key columns. Each part then has a range of hashes, provided that the columns'
    types yield the table's record keys. Raises Invalid for null keys.
    """
    if key_hash is None or not all(_is_plain(table.schema.field(name).type) for name in names):
        return (hash_values(table, names) % np.uint64(parts)).astype(np.int64)
    upper = key_hash.hash(record_keys(table, names, numbered=False)).hi >> np.uint64(32)
    return (upper * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def _is_plain(type: pa.DataType) -> bool:
    """Return True if equal values of a column make equal record keys in any storage type."""
    return bool(pa.types.is_string(type) or pa.types.is_integer(type))


def by_part(table: pa.Table, part: Int64Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield (part, rows) for each part that has rows, in their order. ``part``: the part of each
    row, int64[n]. O(n log n).
    """
    order = stable_order(part)
    parts, first = np.unique(part[order], return_index=True)
    table = table.take(pa.array(order))
    for number, start, end in zip(
        parts.tolist(), first.tolist(), [*first[1:].tolist(), len(table)], strict=False
    ):
        yield number, table.slice(start, end - start)

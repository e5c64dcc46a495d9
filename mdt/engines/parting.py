"""How rows are parted among tasks: by the hashes of keys, so that equal keys meet in one."""

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


def thinned(table: pa.Table, share: float) -> pa.Table:
    """Return about ``share`` of the rows, at even distances, at least one of some."""
    return table.take(
        pa.array(
            np.linspace(
                0, len(table), math.ceil(len(table) * share), endpoint=False, dtype=np.int64
            )
        )
    )


def hashed(table: pa.Table, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return equal numbers for equal values of the columns ``names`` -> uint64[n].  A null is as
    any other value here.
    """
    texts = [
        pc.fill_null(pc.cast(_without_negative_zero(table[name]), pa.string()), "")
        for name in names
    ]
    return hash_keys(pc.binary_join_element_wise(*texts, "\0"), 0).lo


def _without_negative_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers with 0.0 in the place of -0.0, which is the same key in a column of whole
    numbers.
    """
    if not pa.types.is_floating(column.type):
        return column
    wide = pc.cast(column, pa.float64())  # Arrow adds no half floats
    return pc.add(wide, 0.0)


def part_of(
    table: pa.Table, names: Sequence[str], parts: int, key_hash: KeyHash | None = None
) -> Int64Array:
    """Return which of ``parts``, at most 2^31, each row belongs to, the same for equal values of
    the columns ``names`` -> int64[n].

    ``key_hash``: that of the table, if ``names`` are its key columns: each part has a range of them
    then, where rows say keys as the table does. Raises Invalid for keys that are null.
    """
    if key_hash is None or not all(_is_plain(table.schema.field(name).type) for name in names):
        return (hashed(table, names) % np.uint64(parts)).astype(np.int64)
    upper = key_hash.hash(record_keys(table, names, numbered=False)).hi >> np.uint64(32)
    return (upper * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def _is_plain(type: pa.DataType) -> bool:
    """Return whether equal values of a column are equal in record keys, however the table stores
    them.
    """
    return bool(pa.types.is_string(type) or pa.types.is_integer(type))


def by_part(table: pa.Table, part: Int64Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each part that has some, in their order; ``part``: int64[n], of each row.
    O(n log n).
    """
    order = stable_order(part)
    parts, first = np.unique(part[order], return_index=True)
    table = table.take(pa.array(order))
    for number, start, end in zip(
        parts.tolist(), first.tolist(), [*first[1:].tolist(), len(table)], strict=False
    ):
        yield number, table.slice(start, end - start)

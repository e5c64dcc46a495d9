"""Sorted entries of HFiles, as :data:`mdt.hudi.read.hfile_format.ENTRIES`. An entry without a value
deletes its key.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.hfile_format import ENTRIES


def deletions(keys: pa.Array) -> pa.RecordBatch:
    """Return the entries that delete n keys, large_binary[n]."""
    return pa.record_batch([keys, pa.nulls(len(keys), pa.large_binary())], schema=ENTRIES)


def sort(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the entries of all parts, sorted by key."""
    keys, values = _columns(parts)
    order = pc.sort_indices(keys)
    return pa.record_batch([keys.take(order), values.take(order)], schema=ENTRIES)


def merge(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the last entry of each key, sorted by key, without those that delete their keys.

    Args:
        parts: Entries, oldest first. The keys of a part differ.
    """
    keys, values = _columns(parts)
    order = pc.sort_indices(keys)  # stable
    ordered = keys.take(order)
    is_last = pc.not_equal(ordered[:-1], ordered[1:])
    if len(keys):
        is_last = pa.concat_arrays([is_last, pa.array([True])])
    last = order.filter(pc.and_(is_last, values.is_valid().take(order)))
    return pa.record_batch([keys.take(last), values.take(last)], schema=ENTRIES)


def _columns(parts: Iterable[pa.RecordBatch]) -> list[pa.Array]:
    return [plain(column) for column in pa.Table.from_batches(parts, ENTRIES).columns]

"""Sorted entries of HFiles, as :data:`mdt.hudi.read.hfile_format.ENTRIES`. An entry without a value
deletes its key.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.hfile_format import ENTRIES


def deletions(keys: pa.Array) -> pa.RecordBatch:
    """Return the entries that delete n keys, large_binary[n]."""
    return pa.record_batch([keys, pa.nulls(len(keys), pa.large_binary())], schema=ENTRIES)


def sort(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the entries of all parts, sorted by key."""
    table = pa.Table.from_batches(parts, ENTRIES).combine_chunks()
    return _in_order(table, pc.sort_indices(table["key"]))


def merge(parts: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the last entry of each key, sorted by key, without those that delete their keys.

    Args:
        parts: Entries, oldest first. The keys of a part differ.
    """
    table = pa.Table.from_batches(parts, ENTRIES).combine_chunks()
    order = np.asarray(pc.sort_indices(table["key"]))  # stable
    keys = plain(table["key"].take(pa.array(order)))
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = np.asarray(pc.not_equal(keys[:-1], keys[1:]))
    merged = _in_order(table, pa.array(order[is_last]))
    return merged.filter(merged["value"].is_valid())


def _in_order(table: pa.Table, rows: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([plain(column.take(rows)) for column in table.columns], schema=ENTRIES)

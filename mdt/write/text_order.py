"""Comparison of ordering fields, with exact comparison of text values.

Text is ordered by its UTF-8 bytes, which is the order of code points and the order of Hudi readers.
Key maps contain the first eight bytes. If these are equal, the values of the rows are read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from indexes.base import BoolArray, Int64Array, UInt64Array
from mdt.metadata.files.key_map import has_whole_words, ordering_words
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.scan.lookup import KeyRows, rows_at
from mdt.schema.definition import TableDefinition
from mdt.write.slices import KeyedRows


def ordering_ranks(rows: KeyedRows, definition: TableDefinition) -> UInt64Array:
    """Return numbers with the same order as the ordering values of rows -> uint64[n]. Zeros without
    an ordering field.
    """
    if rows.ordering is None or definition.ordering is None:
        return np.zeros(len(rows), np.uint64)
    if has_whole_words(definition.schema.field(definition.ordering).type):
        return rows.ordering
    return text_ranks(rows.table[definition.ordering])


def text_ranks(values: pa.ChunkedArray) -> UInt64Array:
    """Return numbers with the same order as texts, nulls last -> uint64[n]."""
    return np.asarray(pc.rank(values, tiebreaker="dense").to_numpy()).astype(np.uint64)


def is_below(new: pa.ChunkedArray, old: pa.ChunkedArray) -> BoolArray:
    """Return True where the new text sorts before the old text -> bool[n]."""
    return flags(pc.less(new, old))


def is_late(
    metadata: Metadata, snapshot: Snapshot, batch: KeyedRows, located: Located
) -> BoolArray:
    """Return True where a row has a smaller ordering value than the row that it would replace ->
    bool[n].
    """
    late = np.zeros(len(batch), np.bool_)
    definition = snapshot.definition
    if batch.ordering is None or definition.ordering is None:
        return late
    late = located.is_live & (batch.ordering < located.ordering)
    if has_whole_words(definition.schema.field(definition.ordering).type):
        return late
    same: Int64Array = np.flatnonzero(located.is_live & (batch.ordering == located.ordering))
    if len(same):
        threads = metadata.options(definition).threads("reader")
        where = KeyRows(located.file[same], located.position[same])
        old = rows_at(metadata, snapshot, where, [definition.ordering], threads=threads)[
            definition.ordering
        ]
        late[same] = is_below(batch.table[definition.ordering].take(pa.array(same)), old)
    return late


def any_decrease(old: pa.Table, new: KeyedRows, definition: TableDefinition) -> bool:
    """Return True if any new row has a smaller ordering value than its old row."""
    name = definition.ordering
    if name is None or new.ordering is None:
        return False
    if has_whole_words(definition.schema.field(name).type):
        return bool((new.ordering < ordering_words(old[name])).any())
    return bool(is_below(new.table[name], old[name]).any())

"""Comparison of ordering fields, where their words do not decide.

Several fields are compared one after the other. Text is ordered by its UTF-8 bytes, which is the
order of code points and the order of Hudi readers. Key maps contain a word of the first field, of
text its first eight bytes. If words are equal, the values of the rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import row_ranks
from indexes.base import BoolArray, Int64Array, UInt64Array
from mdt.metadata.files.key_map import has_whole_words, ordering_words, words_decide
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.scan.lookup import KeyRows, rows_at
from mdt.schema.definition import TableDefinition
from mdt.write.slices import KeyedRows


def ordering_ranks(rows: KeyedRows, definition: TableDefinition) -> UInt64Array:
    """Return numbers with the same order as the ordering values of rows -> uint64[n]. Zeros without
    ordering values.
    """
    if rows.ordering is None:
        return np.zeros(len(rows), np.uint64)
    if words_decide(definition.schema, definition.ordering):
        return rows.ordering
    return value_ranks([rows.table[name] for name in definition.ordering])


def value_ranks(columns: Sequence[pa.ChunkedArray]) -> UInt64Array:
    """Return numbers with the same order as the values in ``columns``, at least one and without
    nulls, the first column first -> uint64[n].
    """
    return row_ranks([_numbers(column) for column in columns]).astype(np.uint64, copy=False)


def _numbers(column: pa.ChunkedArray) -> UInt64Array:
    """Return numbers with the same order as the values of a column without nulls -> uint64[n]."""
    if has_whole_words(column.type):
        return ordering_words(column, numbered=False)
    return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy()).astype(np.uint64)


def is_below(new: pa.Table, old: pa.Table, fields: Sequence[str]) -> BoolArray:
    """Return True where the new values of ``fields`` sort before the old ones -> bool[n]."""
    both = [pa.chunked_array([*new[name].chunks, *old[name].chunks]) for name in fields]
    ranks = value_ranks(both)
    below: BoolArray = ranks[: len(new)] < ranks[len(new) :]
    return below


def is_late(
    metadata: Metadata, snapshot: Snapshot, batch: KeyedRows, located: Located
) -> BoolArray:
    """Return True where a row has a smaller ordering value than a row that it would replace ->
    bool[n].
    """
    definition = snapshot.definition
    if batch.ordering is None or not definition.ordering:
        return np.zeros(len(batch), np.bool_)
    late = located.is_live & (batch.ordering < located.ordering)
    if words_decide(definition.schema, definition.ordering):
        return late
    same, places = located.is_live & (batch.ordering == located.ordering), located.with_further()
    keys = places.keys_of(np.arange(len(places.file)))
    entries: Int64Array = np.flatnonzero(same[keys])
    if len(entries):
        threads = metadata.options(definition).threads("reader")
        where, names = KeyRows(places.file[entries], places.position[entries]), definition.ordering
        old = rows_at(metadata, snapshot, where, list(names), threads=threads)
        new = batch.table.select(list(names)).take(pa.array(keys[entries]))
        late[keys[entries[is_below(new, old, names)]]] = True
    return late


def any_decrease(old: pa.Table, new: KeyedRows, definition: TableDefinition) -> bool:
    """Return True if any new row has a smaller ordering value than its old row."""
    if new.ordering is None or not definition.ordering:
        return False
    return bool(is_below(new.table, old, definition.ordering).any())

"""The newest row of each key of a source that repeats keys, as ``dedupe=True`` of a merge asks
for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array, UInt64Array
from mdt.errors import Invalid, Unsupported
from mdt.hudi.record_keys import record_keys
from mdt.metadata.files.key_map import has_whole_words, ordering_words
from mdt.schema.definition import TableDefinition
from mdt.write.matching import On
from mdt.write.merge_source import Source


def newest_rows(source: Source, on: On, definition: TableDefinition) -> Source:
    """Return ``source`` with one row for each key: that with the largest ordering value, of equal
    ones the last.

    Rows without a key stay.  Raises Unsupported if rows are not matched by the key, Invalid if the
    source lacks the ordering field.
    """
    require_key(source, on, definition)
    keys = pa.table({name: source.stored_as(on.equal[name], name) for name in on.key})
    rows = np.flatnonzero(_have_keys(keys.select(list(definition.key))))
    code = _codes(keys.take(pa.array(rows)), definition)
    rank = _ranks(source, definition)[rows]
    order = np.lexsort((rows, rank, code))
    last = (
        np.append(code[order][1:] != code[order][:-1], True)
        if len(order)
        else np.empty(0, np.bool_)
    )
    if last.all():
        return source
    stays = np.ones(len(source), np.bool_)
    stays[rows[order[~last]]] = False
    return Source(source.table.filter(pa.array(stays)), definition)


def require_key(source: Source, on: On, definition: TableDefinition) -> None:
    """Raise Unsupported if rows are not matched by the key, Invalid if the source lacks the
    ordering field of the table.
    """
    if not on.is_by_key:
        raise Unsupported(
            "dedupe=True leaves one row for each record key, and this merge matches rows by other"
            " columns",
            hint=f"match by {', '.join(definition.key)}, or give one row for each",
        )
    if definition.ordering is not None and definition.ordering not in source.table.column_names:
        raise Invalid(
            f"dedupe=True takes the row with the largest {definition.ordering!r}, which the source"
            " lacks",
            hint="give the source that column, or one row for each key",
        )


def _have_keys(keys: pa.Table) -> npt.NDArray[np.bool_]:
    valid = np.ones(len(keys), np.bool_)
    for column in keys.columns:
        valid &= np.asarray(column.is_valid())
    return valid


def _codes(keys: pa.Table, definition: TableDefinition) -> Int64Array:
    """Return numbers that are equal where keys are -> int64[n]; partition columns belong to the key
    where rows are matched by them.
    """
    texts = [record_keys(keys, definition.key, numbered=False)]
    texts += [keys[name] for name in keys.column_names if name not in definition.key]
    code = np.zeros(len(keys), np.int64)
    for values in texts:
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        one = np.asarray(array.dictionary_encode(null_encoding="encode").indices).astype(np.int64)
        _, code = np.unique(code * (int(one.max(initial=0)) + 1) + one, return_inverse=True)
    return code.astype(np.int64)


def _ranks(source: Source, definition: TableDefinition) -> UInt64Array:
    """Return numbers that compare as the ordering values of rows do -> uint64[n]; zeros without an
    ordering field.
    """
    name = definition.ordering
    if name is None:
        return np.zeros(len(source), np.uint64)
    type = definition.schema.field(name).type
    values = source.stored_as(name, name)
    if has_whole_words(type):
        return ordering_words(values, numbered=False)
    return np.asarray(pc.rank(values, tiebreaker="dense").to_numpy()).astype(np.uint64)

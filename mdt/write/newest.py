"""Deduplication of a merge source: ``dedupe=True`` keeps the newest row of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from indexes.base import UInt64Array
from mdt.errors import Invalid, Unsupported
from mdt.hudi.record_keys import record_keys
from mdt.schema.definition import TableDefinition
from mdt.write.matching import JoinCondition, all_valid
from mdt.write.merge_source import Source
from mdt.write.normalize import definition_paths
from mdt.write.ordering import value_ranks


def newest_rows(source: Source, on: JoinCondition, definition: TableDefinition) -> Source:
    """Return ``source`` with only the newest row of each key.

    The newest row has the largest ordering value, or is the last of equal rows. Rows with a null
    key are kept. Raises Unsupported if rows are not matched by key, Invalid if the source lacks the
    ordering field.
    """
    require_key(source, on, definition)
    keys = pa.table({name: source.stored_as(on.equal[name], name) for name in on.key})
    rows = np.flatnonzero(all_valid(keys.select(list(definition.key))))
    keys = keys.take(pa.array(rows))
    parts = [record_keys(keys, definition.key, numbered=False)]
    if set(definition.partition_by) <= set(on.key):  # two times may be in one partition
        parts.append(pa.array(definition_paths(keys, definition)[0]))
    order = np.argsort(_ordering_ranks(source, definition)[rows], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    names = list(map(str, range(len(parts))))
    by_key = pa.table([*parts, pa.array(place)], names=[*names, "place"]).group_by(names)
    last = by_key.aggregate([("place", "max")])["place_max"].to_numpy()
    if len(last) == len(rows):
        return source
    is_kept = np.ones(len(source), np.bool_)
    is_kept[rows] = False
    is_kept[rows[order[last]]] = True
    return Source(source.table.filter(pa.array(is_kept)), definition)


def require_key(source: Source, on: JoinCondition, definition: TableDefinition) -> None:
    """Raise Unsupported if rows are not matched by key, Invalid if the source lacks the ordering
    field.
    """
    if not on.is_by_key:
        raise Unsupported(
            "dedupe=True needs a merge by record key, but this merge matches rows by other columns",
            hint=f"match by {', '.join(definition.key)}, or remove the duplicates from the source",
        )
    for name in definition.ordering:
        if name not in source.table.column_names:
            raise Invalid(
                f"dedupe=True keeps the row with the largest {name!r}, which the source lacks",
                hint="add the column to the source, or remove the duplicates",
            )


def _ordering_ranks(source: Source, definition: TableDefinition) -> UInt64Array:
    """Return numbers with the same order as the ordering values -> uint64[n]. Zeros without an
    ordering field.
    """
    if not definition.ordering:
        return np.zeros(len(source), np.uint64)
    return value_ranks([source.stored_as(name, name) for name in definition.ordering])

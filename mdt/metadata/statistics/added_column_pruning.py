"""Prunes files by their age: a column that was added later is null in all rows, unless it has a
default.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from indexes import column_stats, values
from indexes.base import BoolArray
from indexes.predicate import Call, Predicate, leaves
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.versions import Column, SchemaVersion, numbers_of


def may_match(snapshot: Snapshot, predicate: Predicate) -> BoolArray | None:
    """Return a mask of the files that may have a matching row, by their schema version ->
    bool[numbered].

    None if no file can be excluded.  O(versions + files).
    """
    versions = snapshot.definition.versions
    if not versions:
        return None
    tested = {leaf.column for leaf in leaves(predicate) if not isinstance(leaf, Call)}
    ways = {path: way for path, way in _ways(versions[-1]) if path in tested}
    maybe = [_may_match(version, versions[-1], ways, predicate) for version in versions]
    if all(maybe):
        return None
    mask: BoolArray = np.array(maybe)[numbers_of(versions, snapshot.segment_ids)]
    return mask


def _may_match(
    version: SchemaVersion,
    newest: SchemaVersion,
    ways: dict[str, tuple[Column, ...]],
    predicate: Predicate,
) -> bool:
    """Return True if a row of a file of ``version`` may match.

    ``ways`` maps a column's path to the fields that lead to it.
    """
    absent = {
        path: way[-1].type
        for path, way in ways.items()
        if way[-1].id not in version.ids and not any(column.id in newest.defaults for column in way)
    }
    if not absent:
        return True

    def lookup(path: str) -> tuple[pa.RecordBatch, pa.DataType] | None:
        if path not in absent:
            return None
        return (
            column_stats.to_batch([column_stats.summarize(pa.nulls(1, absent[path]))]),
            absent[path],
        )

    return bool(column_stats.prune_predicate(lookup, predicate, 1)[0])


def _ways(version: SchemaVersion) -> Iterator[tuple[str, tuple[Column, ...]]]:
    """Yield the path of each scalar column or struct field, and the fields that lead to it, itself
    last.
    """

    def walk(
        column: Column, prefix: str, way: tuple[Column, ...]
    ) -> Iterator[tuple[str, tuple[Column, ...]]]:
        path = prefix + column.field.name
        if values.supports(column.type):
            yield path, (*way, column)
        elif pa.types.is_struct(column.type):
            for child in column.children:
                yield from walk(child, f"{path}.", (*way, column))

    for column in version.columns:
        yield from walk(column, "", ())

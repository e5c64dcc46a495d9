"""Row look-ups by record key: the key index finds file groups, key maps find positions, and only
the pages with these positions are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, numbers, one_array, take_rows
from indexes.base import BoolArray, Int64Array
from indexes.predicate import And, Leaf
from mdt.arguments import shown
from mdt.errors import Invalid, MdtError
from mdt.filters.where import parse_where
from mdt.hudi.avro_schema import with_meta
from mdt.hudi.partitions import partition_paths
from mdt.hudi.record_keys import record_keys, sort_keys
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.locate import Hits, find
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import plan
from mdt.scan.key_columns import parse_keys
from mdt.scan.reader import read, read_places

_KEYS_SHOWN = 10
"""Maximum number of keys in an error message."""


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Locations of n keys.

    Attributes:
        file: File number, or -1 if the key is absent, int64[n].
        position: Row in the file, int64[n].
    """

    file: Int64Array
    position: Int64Array

    def existing(self) -> KeyRows:
        """Return the locations of the existing keys, in order."""
        live = self.file >= 0
        return KeyRows(self.file[live], self.position[live])


def key_rows(metadata: Metadata, snapshot: Snapshot, table: pa.Table) -> KeyRows:
    """Return the locations of the keys in ``table`` (:class:`mdt.scan.key_columns.ParsedKeys`).

    Without partition columns a key is looked up in all partitions. Raises Invalid if it exists in
    several.
    """
    definition = snapshot.definition
    keys = _keys_of(table, snapshot)
    partition = None
    if definition.partition_by and set(definition.partition_by) <= set(table.column_names):
        codes, names = partition_paths(
            table, definition.partition_by, definition.hive_style, definition.time_path
        )
        partition = np.array(names, np.object_)[codes]
    file, position = np.full(len(keys), -1, np.int64), np.full(len(keys), -1, np.int64)
    hashes = definition.key_hash.hash(keys)
    lookup_keys = keys_for(definition.key_index, keys, sort_keys(table, definition.key))
    hits = find(metadata, snapshot, lookup_keys, hashes, partition)
    if not definition.key_hash.is_keyed and sum(len(hit.key) for hit in hits) > 1:
        hits = [_with_texts(metadata, snapshot, keys, hit) for hit in hits]
    for hit in hits:
        file[hit.key], position[hit.key] = hit.file, hit.position
    if sum(len(hit.key) for hit in hits) > int(np.count_nonzero(file >= 0)):
        repeated = np.flatnonzero(np.bincount(np.concatenate([hit.key for hit in hits])) > 1)
        scope, hint = "rows", "scan() returns all rows of a key"
        if partition is None and definition.partition_by and not definition.is_global:
            columns = ", ".join(definition.partition_by)
            scope = "partitions"
            hint = f"give the partition columns, too ({columns}), in a dict or table"
        raise Invalid(
            f"{len(repeated)} keys exist in several {scope}: {_display_keys(keys, repeated)}",
            hint=hint,
        )
    return KeyRows(file, position)


def _keys_of(table: pa.Table, snapshot: Snapshot) -> pa.Array:
    """Return the record keys of rows with the key columns."""
    definition = snapshot.definition
    return record_keys(table, definition.key, named=definition.names_key)


def _with_texts(metadata: Metadata, snapshot: Snapshot, keys: pa.Array, hits: Hits) -> Hits:
    """Return the ``hits`` whose rows have the same key, not just the same hash."""
    places = KeyRows(hits.file, hits.position)
    rows = rows_at(metadata, snapshot, places, snapshot.definition.key, threads=1)
    same = np.flatnonzero(_are_same(snapshot, rows, keys, hits.key))
    return Hits(hits.key[same], hits.file[same], hits.position[same], hits.ordering[same])


def _are_same(snapshot: Snapshot, rows: pa.Table, keys: pa.Array, at: Int64Array) -> BoolArray:
    """Return a mask of the ``rows`` whose keys equal ``keys[at]``, bool[n]."""
    stored = _keys_of(rows, snapshot)
    return flags(pc.equal(stored, keys.take(pa.array(at))))


def rows_of_keys(
    metadata: Metadata, snapshot: Snapshot, table: pa.Table, names: Sequence[str], *, threads: int
) -> tuple[KeyRows, pa.Table]:
    """Return the locations of the keys in ``table``, and the rows of existing keys in order.

    The rows have the columns ``names``. If the table's key hash has no secret, keys are compared as
    text, and a row of another key with the same hash is treated as absent.
    """
    if len(snapshot.without_key_map):
        return _scan_keys(metadata, snapshot, table, names, threads)
    definition = snapshot.definition
    compares = not definition.key_hash.is_keyed
    places = key_rows(metadata, snapshot, table)
    needed = (*names, *definition.key) if compares else names
    columns_to_read = tuple(dict.fromkeys(needed)) or definition.key[:1]
    rows = rows_at(metadata, snapshot, places.existing(), columns_to_read, threads=threads)
    if not compares:
        return places, rows
    live = np.flatnonzero(places.file >= 0)
    is_same = _are_same(snapshot, rows, _keys_of(table, snapshot), live)
    if not is_same.all():
        places.file[live[~is_same]] = -1
        rows = rows.filter(pa.array(is_same))
    return places, rows


def _scan_keys(
    metadata: Metadata, snapshot: Snapshot, table: pa.Table, names: Sequence[str], threads: int
) -> tuple[KeyRows, pa.Table]:
    """Do the work of :func:`rows_of_keys` without key maps: read the rows that may have the keys.

    The places are not in files: a ``file`` of 0 only marks an existing key.
    """
    definition = snapshot.definition
    fields = definition.key
    if set(definition.partition_by) <= set(table.column_names):
        fields = tuple(dict.fromkeys((*definition.key, *definition.partition_by)))
    tests = [Leaf(name, "in", tuple(table[name].unique().to_pylist())) for name in fields]
    scan = plan(metadata, snapshot, And(tuple(tests)))
    columns = list(dict.fromkeys((*fields, *names)))
    schema = with_meta(definition.schema)
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    rows = pa.concat_tables([empty, *read(metadata, scan, columns, threads=threads)])
    keys = record_keys(table, fields)
    key_of_row = numbers(one_array(pc.index_in(record_keys(rows, fields), keys)).fill_null(-1))
    wanted = np.flatnonzero(key_of_row >= 0)
    counts = np.bincount(key_of_row[wanted], minlength=len(keys))
    if len(counts) and counts.max() > 1:
        repeated = np.flatnonzero(counts > 1)
        raise Invalid(
            f"{len(repeated)} keys exist in several rows: {_display_keys(keys, repeated)}",
            hint="scan() returns all rows of a key",
        )
    row_of_key = np.full(len(keys), -1, np.int64)
    row_of_key[key_of_row[wanted]] = wanted
    row = row_of_key[numbers(one_array(pc.index_in(keys, keys)))]
    places = KeyRows(np.minimum(row, 0), row)
    return places, take_rows(rows.select(list(names)), row[row >= 0])


def with_nulls(rows: pa.Table, places: KeyRows) -> pa.Table:
    """Return ``rows``, which belong to existing keys, with a row of nulls for each absent key."""
    live = places.file >= 0
    if live.all():
        return rows
    return take_rows(rows, np.where(live, np.cumsum(live) - 1, -1))


def refuse_condition(metadata: Metadata, snapshot: Snapshot, keys: Any) -> None:
    """Raise Invalid if ``keys`` is a string that reads as a condition, e.g. ``"fare > 4"``, and not
    a key.
    """
    if isinstance(keys, list | tuple) and len(keys) == 1:
        (keys,) = keys
    if not isinstance(keys, str) or keys.isidentifier():
        return
    try:
        parse_where(keys, snapshot.definition.schema)
    except MdtError:  # like most keys
        return
    if not _is_key(metadata, snapshot, keys):
        raise Invalid(
            f"{shown(keys)} reads as a condition, and no row has it as its key; nothing was"
            " deleted",
            hint=f"t.delete_where({shown(keys)}) deletes the rows that match",
        )


def _is_key(metadata: Metadata, snapshot: Snapshot, text: str) -> bool:
    """Return True if a row has this key."""
    if len(snapshot.definition.key) > 1:
        return False
    try:
        table = parse_keys([text], snapshot.definition).table
    except Invalid:  # the key is not a string
        return False
    try:
        return bool((key_rows(metadata, snapshot, table).file >= 0).any())
    except Invalid:  # it exists in several partitions
        return True


def require_all(snapshot: Snapshot, table: pa.Table, places: KeyRows) -> None:
    """Raise Invalid with the first absent keys unless every key exists."""
    absent = np.flatnonzero(places.file < 0)
    if len(absent):
        keys = record_keys(table, snapshot.definition.key)
        raise Invalid(f"{len(absent)} keys are not in the table: {_display_keys(keys, absent)}")


def _display_keys(keys: pa.Array, rows: Int64Array) -> str:
    return ", ".join(repr(key.as_py()) for key in keys.take(pa.array(rows[:_KEYS_SHOWN])))


def rows_at(
    metadata: Metadata,
    snapshot: Snapshot,
    locations: KeyRows,
    names: Sequence[str],
    *,
    threads: int,
) -> pa.Table:
    """Return columns ``names`` of the rows at ``locations``, with nulls for absent keys."""
    existing = locations.existing()
    places = existing.file << 32 | existing.position
    return with_nulls(read_places(metadata, snapshot, places, names, threads=threads), locations)

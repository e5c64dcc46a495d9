"""Rules of operations: conversion of data to a batch, and the outcome for each row.

Engines send rules to their tasks. They are the same as in the calling thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from mdt.metadata import key_indexes
from mdt.metadata.keys import footer_filters
from mdt.metadata.keys.locate import Located, locate
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import older_than_delete
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.write.deletes import tombstones_of_keys
from mdt.write.fixed_partition import keep_partition, refuse_null_partition
from mdt.write.normalize import (
    Batch,
    convert_to_current,
    normalize,
    normalize_keys,
    partition_names,
    rehash,
)
from mdt.write.ordering import is_late
from mdt.write.row_groups import by_value


def _none() -> Int64Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for the n rows of ``batch``. Row numbers are int64 arrays.

    Attributes:
        located: Locations of the keys.
        inserts: Rows to write whose keys are new.
        returns: Rows to write whose keys are re-inserted where their deleted row is.
        updates: Rows to write whose keys are live.
        moves: Entries of :attr:`places`, table rows that are replaced by rows in another partition.
        ends: Entries of :attr:`places`, table rows that are deleted.
        late: Rows that are ignored because the table has newer rows.
        missing: Deletes of keys that are not live.
        absent: All rows whose keys are not live.
        repeated: Number of dropped rows with the same key as a row of the batch.
        tombstones: Tombstones of deleted keys, schema TOMBSTONES.
    """

    batch: Batch
    located: Located
    inserts: Int64Array = field(default_factory=_none)
    returns: Int64Array = field(default_factory=_none)
    updates: Int64Array = field(default_factory=_none)
    moves: Int64Array = field(default_factory=_none)
    ends: Int64Array = field(default_factory=_none)
    late: Int64Array = field(default_factory=_none)
    missing: Int64Array = field(default_factory=_none)
    absent: Int64Array = field(default_factory=_none)
    repeated: int = 0
    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES)

    @property
    def places(self) -> Located:
        """Locations of the keys, with an entry for each additional row of a repeated key."""
        return self.located.with_further()

    def left(self, snapshot: Snapshot) -> dict[int, BitMap] | None:
        """Return segment id -> positions of the table rows that are newer than a late row of the
        batch.

        None if such keys may have several rows.
        """
        rows = self.late[self.located.file[self.late] >= 0]
        if len(rows) and len(self.located.further.key):
            return None
        segments = snapshot.segment_ids[self.located.file[rows]] if len(rows) else rows
        return {
            segment: BitMap(self.located.position[rows_of_segment])
            for segment, rows_of_segment in by_value(rows, segments).items()
        }


class Rule(ABC):
    """The effect of an operation on rows."""

    __slots__ = ()

    def columns(self, definition: TableDefinition) -> pa.Schema:
        """Return the columns required to write rows, by default those of the table."""
        return definition.schema

    @abstractmethod
    def batch(self, data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
        """Return ``data`` as a batch. Argument and errors as for
        :func:`mdt.write.normalize.normalize`.
        """

    @abstractmethod
    def outcome(self, metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Outcome:
        """Return the outcome for the rows of ``batch``, which may have an older schema version."""


@dataclass(frozen=True, slots=True)
class Upserting(Rule):
    """Replace live keys and insert new keys.

    Attributes:
        refuses: True if live keys are an error, as for inserts. The outcome then contains only
            these keys.
    """

    refuses: bool = False

    def batch(self, data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
        """Return ``data`` as a batch."""
        return normalize(data, definition, numbered=numbered)

    def outcome(self, metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Outcome:
        """Return the outcome for the rows."""
        batch = convert_to_current(batch, snapshot.definition)
        located = locate_batch(metadata, snapshot, batch)
        if self.refuses:
            existing = np.flatnonzero(located.is_live & ~batch.deletes)
            if len(existing) or batch.duplicates:
                return Outcome(batch, located, updates=existing, repeated=batch.duplicates)
        batch = keep_partition(snapshot, batch, located)
        return upsert_outcome(snapshot, batch, located, *decide(metadata, snapshot, batch, located))


@dataclass(frozen=True, slots=True)
class Deleting(Rule):
    """Delete keys. Absent keys are counted as ``missing``.

    If the batch has ordering values, keys with newer rows survive and are counted as ``late``.
    """

    def columns(self, definition: TableDefinition) -> pa.Schema:
        """Return the key columns."""
        return pa.schema(map(definition.schema.field, definition.key))

    def batch(self, data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
        """Return the keys in ``data`` as a batch."""
        return normalize_keys(data, definition, numbered=numbered)

    def outcome(self, metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Outcome:
        """Return the outcome for the keys."""
        batch = rehash(batch, snapshot.definition)
        located = locate_batch(metadata, snapshot, batch)
        late = np.zeros(len(batch), np.bool_)
        if batch.ordering is not None:
            late = located.is_live & (batch.ordering < located.ordering)
        missing = np.flatnonzero(~located.is_live)
        return Outcome(
            batch,
            located,
            ends=np.append(np.flatnonzero(located.is_live & ~late), _further(located, late)),
            late=np.flatnonzero(late),
            missing=missing,
            absent=missing,
            tombstones=tombstones_of_keys(snapshot, batch, located, late),
        )


def upsert_outcome(
    snapshot: Snapshot, batch: Batch, located: Located, late: BoolArray, moved: BoolArray
) -> Outcome:
    """Return the outcome for rows to upsert.

    Args:
        late: bool[n], late rows as found by :func:`decide`.
        moved: bool[n], moved rows as found by :func:`decide`.
    """
    is_live, deletes = located.is_live, batch.deletes
    late = late | older_than_delete(
        snapshot, batch.hashes, partition_names(batch), batch.ordering, is_live
    )
    missing = deletes & ~is_live
    late &= ~missing
    fresh, returning = new_in_partition(located, late | deletes, moved)
    tombstones = NO_TOMBSTONES
    if batch.ends is not None:
        tombstones = tombstones_of_keys(snapshot, batch, located, late, deletes)
    return Outcome(
        batch,
        located,
        fresh,
        returning,
        updates=np.flatnonzero(is_live & ~late & ~moved & ~deletes),
        moves=np.flatnonzero(moved),
        ends=np.append(np.flatnonzero(is_live & deletes & ~late), _further(located, late)),
        late=np.flatnonzero(late),
        missing=np.flatnonzero(missing),
        absent=np.flatnonzero(~is_live),
        repeated=batch.duplicates,
        tombstones=tombstones,
    )


def _further(located: Located, late: BoolArray) -> Int64Array:
    """Return the additional entries of :meth:`Located.with_further` for keys that are not
    ``late``.
    """
    return np.flatnonzero(~late[located.further.key]) + len(located.file)


def decide(
    metadata: Metadata, snapshot: Snapshot, batch: Batch, located: Located
) -> tuple[BoolArray, BoolArray]:
    """Return (late, moved), both bool[n].

    Late rows have a smaller ordering value than the table. Moved rows have a live row in another
    partition. It is deleted there and inserted here, under table scope only.
    """
    late = is_late(metadata, snapshot, batch, located)
    if not snapshot.definition.is_global or not len(snapshot):
        return late, np.zeros(len(batch), np.bool_)
    live_partition, names = snapshot.file_groups.partitions(located.group), partition_names(batch)
    moved = located.is_live & ~late & ~batch.deletes & np.asarray(live_partition != names)
    refuse_null_partition(snapshot.definition, batch, names, live_partition, np.flatnonzero(moved))
    return late, moved


def new_in_partition(
    located: Located, late: BoolArray, moved: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Return (rows whose key is new to its partition, rows whose key is re-inserted). Late rows are
    in neither.
    """
    is_new = (~located.is_live & ~late) | moved
    return np.flatnonzero(is_new & (located.dead_in < 0)), np.flatnonzero(
        is_new & (located.dead_in >= 0)
    )


def locate_batch(metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Located:
    """Return the locations of the keys of ``batch``, each in its scope."""
    definition, partition = snapshot.definition, partition_names(batch)
    keys = key_indexes.keys_for(definition.key_index, batch.keys, batch.sort_keys)
    proposed, options = None, metadata.options(definition)
    if not options.bloom_metadata and key_indexes.is_bloom(definition.key_index):
        matters = None if definition.is_global else partition
        proposed = footer_filters.propose(metadata, snapshot, options, batch.keys, matters)
    return locate(metadata, snapshot, keys, batch.hashes, partition, proposed)

"""Tombstones: ordering values of deletes, in tables with ``mdt.delete.keeps.ordering``.

A tombstone has the hash of a key, not its text.  With partition scope, the hash includes the
partition path.  A withdrawn tombstone has no ordering value.  Commit records add tombstones, and
checkpoints store them sorted by hash.

They expire after ``mdt.delete.keeps.ordering.hours``, by the instants of commits and not by a
clock.  So all processes and checkpoints forget the same tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import flags, numbers
from indexes.base import BoolArray, Int64Array, KeyHashes, UInt64Array
from indexes.key_hash import KeyHash
from mdt.hudi.timeline import instant_us
from mdt.metadata.files.key_map import KeyMap, upper
from mdt.metadata.log.checkpoint_columns import STORED_TOMBSTONES, Columns, no_rows
from mdt.metadata.log.commit_log import TOMBSTONES, CommitRecord
from mdt.schema.definition import TableDefinition

MERGED = 16
"""Number of sets of one level that are merged.

So a look-up searches few sets, and a tombstone is copied once per level.
"""

_COLUMN = "tombstones"
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Tombstones:
    """n tombstones with unique hashes, ascending.

    ``marks`` are the hashes, and ``ordering`` is uint64[n], as in key maps.  ``stands`` is False
    for withdrawn tombstones, bool[n].  ``deleted_us`` is int64[n].  ``level`` counts the merges of
    the set.
    """

    marks: KeyHashes
    ordering: UInt64Array
    stands: BoolArray
    deleted_us: Int64Array
    level: int = 0

    def __len__(self) -> int:
        return len(self.ordering)

    def find(self, keys: KeyHashes) -> Int64Array:
        """Return the index of each key's tombstone, -1 for none -> int64[m]."""
        places = np.arange(len(self), dtype=np.uint32)
        return KeyMap(self.marks.hi, upper(self.marks.lo), places, None).find(keys)

    def take(self, rows: Int64Array | BoolArray) -> Tombstones:
        """Return the tombstones at ``rows``."""
        return Tombstones(
            self.marks.take(rows),
            self.ordering[rows],
            self.stands[rows],
            self.deleted_us[rows],
            self.level,
        )

    def table(self) -> pa.Table:
        """Return the tombstones as a section of a commit record, schema TOMBSTONES."""
        ordering = pa.array(self.ordering, pa.uint64(), mask=~self.stands)
        return pa.table(
            [pa.array(self.marks.hi), pa.array(self.marks.lo), ordering], schema=TOMBSTONES
        )

    def stored(self) -> pa.Table:
        """Return the tombstones as a column of a checkpoint, schema STORED_TOMBSTONES."""
        return self.table().append_column(
            STORED_TOMBSTONES.field("deleted_us"), pa.array(self.deleted_us)
        )


def from_table(table: pa.Table, deleted_us: int | None = None) -> Tombstones:
    """Return the tombstones in a section of a record, or in a column of a checkpoint.

    ``deleted_us`` is the record's time, or None for a checkpoint, whose column has the times.
    """
    marks = KeyHashes(*(numbers(table[name]).astype(np.uint64) for name in ("hi", "lo")))
    ordering = numbers(table["ordering"].fill_null(0)).astype(np.uint64)
    if deleted_us is None:
        times = numbers(table["deleted_us"])
    else:
        times = np.full(len(table), deleted_us, np.int64)
    return Tombstones(marks, ordering, flags(table["ordering"].is_valid()), times)


def new_tombstones(
    marks: KeyHashes, ordering: UInt64Array, stands: BoolArray | None = None
) -> pa.Table:
    """Return a section of a commit record for deleted keys, schema TOMBSTONES.

    ``marks`` are unique, in any order.
    """
    rows = marks.order()
    standing = np.ones(len(rows), np.bool_) if stands is None else stands[rows]
    return Tombstones(
        marks.take(rows), ordering[rows], standing, np.zeros(len(rows), np.int64)
    ).table()


def marks_of(
    hashes: KeyHashes, paths: npt.NDArray[np.object_] | str | None, key_hash: KeyHash
) -> KeyHashes:
    """Return the hashes of the tombstones of keys.

    ``paths`` is the partition path of all keys, the path of each key (object[n]), or None with
    table scope.  ``key_hash`` is that of the table.
    """
    if paths is None:
        return hashes
    if isinstance(paths, str):
        names, path_of_key = np.array([paths], np.object_), np.zeros(len(hashes), np.int64)
    else:
        names, path_of_key = np.unique(paths.astype(str), return_inverse=True)
    mixed = key_hash.hash_paths(names.tolist())
    return KeyHashes(hashes.hi ^ mixed.hi[path_of_key], hashes.lo ^ mixed.lo[path_of_key])


def merge(parts: Sequence[Tombstones], level: int = 0) -> Tombstones:
    """Merge sets, oldest first.  The newest tombstone of a key counts."""
    marks = KeyHashes.concat([part.marks for part in parts])
    age = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.lexsort((age, marks.lo, marks.hi))
    hi, lo = marks.hi[order], marks.lo[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    together = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("ordering", "stands", "deleted_us")
    ]
    return Tombstones(marks, together[0], together[1], together[2], level).take(order[is_last])


@dataclass(frozen=True, slots=True)
class TombstonesSince:
    """The tombstone changes in commit records since the checkpoint.

    ``parts`` are sets, oldest first.  ``forgets`` is True if the checkpoint's tombstones are void.
    """

    parts: tuple[Tombstones, ...] = field(default=())
    forgets: bool = False

    def followed_by(self, record: CommitRecord) -> TombstonesSince:
        """Return the changes after ``record``."""
        if record.header.get("forgets_deletes"):
            return TombstonesSince((), True)
        table = record.table("tombstones")
        if not len(table):
            return self
        parts = (*self.parts, from_table(table, instant_us(record.instant)))
        while len(parts) >= MERGED and len({part.level for part in parts[-MERGED:]}) == 1:
            parts = (*parts[:-MERGED], merge(parts[-MERGED:], parts[-1].level + 1))
        return TombstonesSince(parts, self.forgets)

    def is_known(self, checkpoint: Columns) -> bool:
        """Return True if there may be a tombstone.  O(1).

        Tables without the option have none.
        """
        return bool(self.parts) or (not self.forgets and _COLUMN in checkpoint)

    def sets(self, checkpoint: Columns) -> tuple[Tombstones, ...]:
        """Return all sets, those of the checkpoint first, oldest first."""
        if self.forgets or _COLUMN not in checkpoint:
            return self.parts
        return (
            checkpoint.memo(_COLUMN, lambda: from_table(checkpoint.table(_COLUMN))),
            *self.parts,
        )

    def in_force(self, checkpoint: Columns, since_us: int) -> Tombstones:
        """Return all tombstones in force, without those deleted before ``since_us``.
        O(tombstones).
        """
        parts = [part for part in self.sets(checkpoint) if len(part)]
        tombstones = merge(parts) if parts else from_table(no_rows(STORED_TOMBSTONES))
        return tombstones.take(tombstones.stands & (tombstones.deleted_us >= since_us))


def remembered_since(definition: TableDefinition, last_instant: str) -> int:
    """Return the expiry time of tombstones after the commit ``last_instant``.

    Tombstones deleted before it are forgotten.  Microseconds since 1970, 0 if they never expire.
    """
    hours = definition.tombstone_hours
    return instant_us(last_instant) - hours * _HOUR_US if hours else 0

"""Tombstones: at which ordering value keys were deleted, in tables that keep it
(``mdt.delete.keeps.ordering``).

A tombstone has the hash of a key, no text of it: under partition scope mixed with that of the
partition's path.  One that is taken back has no ordering value.  They come with commit records, and
stand together in checkpoints, sorted by hash.  They are forgotten after
``mdt.delete.keeps.ordering.hours``, by the instants of commits and no clock: so every process
forgets the same, and so does a checkpoint.
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
"""So many sets of one size become one: a look-up asks few, and a tombstone is copied once for each
power.
"""

_COLUMN = "tombstones"
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Tombstones:
    """n tombstones by rising hash, each once.

    ``marks``: hashes; ``ordering``: uint64[n], as in key maps; ``stands``: bool[n], whether it was
    not taken back; ``deleted_us``: int64[n]. ``level``: how often sets were merged into this one.
    """

    marks: KeyHashes
    ordering: UInt64Array
    stands: BoolArray
    deleted_us: Int64Array
    level: int = 0

    def __len__(self) -> int:
        return len(self.ordering)

    def find(self, wanted: KeyHashes) -> Int64Array:
        """Return which tombstone each key has, -1 for none -> int64[m]."""
        places = np.arange(len(self), dtype=np.uint32)
        return KeyMap(self.marks.hi, upper(self.marks.lo), places, None).find(wanted)

    def take(self, rows: Int64Array | BoolArray) -> Tombstones:
        """Return some of them."""
        return Tombstones(
            self.marks.take(rows),
            self.ordering[rows],
            self.stands[rows],
            self.deleted_us[rows],
            self.level,
        )

    def table(self) -> pa.Table:
        """Return them as a section of a commit record, schema TOMBSTONES."""
        ordering = pa.array(self.ordering, pa.uint64(), mask=~self.stands)
        return pa.table(
            [pa.array(self.marks.hi), pa.array(self.marks.lo), ordering], schema=TOMBSTONES
        )

    def stored(self) -> pa.Table:
        """Return them as a column of a checkpoint, schema STORED_TOMBSTONES."""
        return self.table().append_column(
            STORED_TOMBSTONES.field("deleted_us"), pa.array(self.deleted_us)
        )


def of_table(table: pa.Table, deleted_us: int | None = None) -> Tombstones:
    """Return the tombstones of a section of a record, made at ``deleted_us``, or (None) of a column
    of a checkpoint.
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
    """Return what a commit record says of deleted keys, schema TOMBSTONES.  ``marks``: each once,
    in any order.
    """
    rows = marks.order()
    standing = np.ones(len(rows), np.bool_) if stands is None else stands[rows]
    return Tombstones(
        marks.take(rows), ordering[rows], standing, np.zeros(len(rows), np.int64)
    ).table()


def marks_of(
    hashes: KeyHashes, paths: npt.NDArray[np.object_] | str | None, key_hash: KeyHash
) -> KeyHashes:
    """Return the hashes under which tombstones of keys stand.  ``paths``: of their partitions, one
    or object[n]; None under table scope.

    ``key_hash``: that of the table.
    """
    if paths is None:
        return hashes
    if isinstance(paths, str):
        names, of = np.array([paths], np.object_), np.zeros(len(hashes), np.int64)
    else:
        names, of = np.unique(paths.astype(str), return_inverse=True)
    mixed = key_hash.hash_paths(names.tolist())
    return KeyHashes(hashes.hi ^ mixed.hi[of], hashes.lo ^ mixed.lo[of])


def merged(parts: Sequence[Tombstones], level: int = 0) -> Tombstones:
    """Return sets as one, oldest first: of a key the newest counts."""
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
    """What commit records have said of tombstones since the checkpoint: sets, oldest first;
    ``forgets``: whether those before count no more.
    """

    parts: tuple[Tombstones, ...] = field(default=())
    forgets: bool = False

    def followed_by(self, record: CommitRecord) -> TombstonesSince:
        """Return the same after ``record``."""
        if record.header.get("forgets_deletes"):
            return TombstonesSince((), True)
        table = record.table("tombstones")
        if not len(table):
            return self
        parts = (*self.parts, of_table(table, instant_us(record.instant)))
        while len(parts) >= MERGED and len({part.level for part in parts[-MERGED:]}) == 1:
            parts = (*parts[:-MERGED], merged(parts[-MERGED:], parts[-1].level + 1))
        return TombstonesSince(parts, self.forgets)

    def is_known(self, checkpoint: Columns) -> bool:
        """Return whether there may be a tombstone; without the option there is none.  O(1)."""
        return bool(self.parts) or (not self.forgets and _COLUMN in checkpoint)

    def sets(self, checkpoint: Columns) -> tuple[Tombstones, ...]:
        """Return all sets, those of the checkpoint and those since, oldest first."""
        if self.forgets or _COLUMN not in checkpoint:
            return self.parts
        return (checkpoint.memo(_COLUMN, lambda: of_table(checkpoint.table(_COLUMN))), *self.parts)

    def standing(self, checkpoint: Columns, since_us: int) -> Tombstones:
        """Return all tombstones that count, as a checkpoint keeps them; older ones are forgotten.
        O(tombstones).
        """
        parts = [part for part in self.sets(checkpoint) if len(part)]
        found = merged(parts) if parts else of_table(no_rows(STORED_TOMBSTONES))
        return found.take(found.stands & (found.deleted_us >= since_us))


def remembered_since(definition: TableDefinition, last_instant: str) -> int:
    """Return the time before which tombstones are forgotten after the commit ``last_instant``,
    microseconds since 1970.
    """
    hours = definition.tombstone_hours
    return instant_us(last_instant) - hours * _HOUR_US if hours else 0

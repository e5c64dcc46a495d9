"""What the write core takes: file slices to be, each said in three parts: where its rows come from,
what is new, what dies.

Every operation and service that writes rows says what it wants in this form, and
:mod:`mdt.write.new_files` makes files of it:

- an upsert: a slice has new rows, and the positions that they replace die;
- a delete: positions die, and a log file names their keys;
- a compaction: nothing is new and nothing dies, the live rows of a file group become one base file;
- a log compaction: the live rows of some log files (``replaced``) become one log file;
- a service that arranges rows anew gives them itself (``carried``), for a new file group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import taken
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.metadata.keys.locate import Located
from mdt.write.assign import Assignment

Carried = Callable[[], Sequence[pa.Table]]
"""Gives rows that stand in the table already, with the columns of
:func:`mdt.write.rewrite_rows.moved_schema`, in the order in which a file is to hold them.
"""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """n rows with what the table needs to know of their keys.

    ``table``: the data columns.  ``keys``: string[n] record keys, and ``hashes`` of them.
    ``sort_keys``: string or binary[n], what rows are ordered by and key ranges hold.  ``ordering``:
    uint64[n], None without an ordering field.
    """

    table: pa.Table
    keys: pa.Array
    sort_keys: pa.Array
    hashes: KeyHashes
    ordering: UInt64Array | None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row in Arrow."""
        return self.table.nbytes / max(1, len(self))

    def in_one_chunk(self) -> Self:
        """Return the same rows, of which it then costs little to take a few: Arrow joins all chunks
        of a column whenever some rows are taken.
        """
        if max((column.num_chunks for column in self.table.columns), default=0) <= 1:
            return self
        return replace(self, table=self.table.combine_chunks())

    def rows(self, rows: Int64Array) -> KeyedRows:
        """Return the rows at positions ``rows``; those that follow each other are not copied."""
        if (
            len(rows)
            and int(rows[-1]) - int(rows[0]) == len(rows) - 1
            and bool((rows[1:] > rows[:-1]).all())
        ):
            return self._run(int(rows[0]), len(rows))
        at = pa.array(rows)
        ordering = None if self.ordering is None else self.ordering[rows]
        return KeyedRows(
            taken(self.table, rows),
            self.keys.take(at),
            self.sort_keys.take(at),
            self.hashes.take(rows),
            ordering,
        )

    def _run(self, first: int, count: int) -> KeyedRows:
        ordering = None if self.ordering is None else self.ordering[first : first + count]
        hashes = self.hashes.slice(first, count)
        keys, sort_keys = (of.slice(first, count) for of in (self.keys, self.sort_keys))
        return KeyedRows(self.table.slice(first, count), keys, sort_keys, hashes, ordering)


def stacked(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Return rows of one table, in at least one part, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    ordering, of_parts = None, [part.ordering for part in parts if part.ordering is not None]
    if of_parts:
        ordering = np.concatenate(of_parts)
    return KeyedRows(
        pa.concat_tables([part.table for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.sort_keys for part in parts]),
        KeyHashes.concat([part.hashes for part in parts]),
        ordering,
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """n keys whose rows are deleted: string[n] record keys, and their hashes."""

    keys: pa.Array
    hashes: KeyHashes

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, rows: Int64Array) -> Keys:
        """Return the keys at positions ``rows``."""
        return Keys(self.keys.take(pa.array(rows)), self.hashes.take(rows))


@dataclass(frozen=True, slots=True)
class Slice:
    """The next file of one file group.

    ``group``: number of the file group in the snapshot, or :data:`mdt.write.assign.NEW`.
    ``is_log``: whether the file stands beside those of the group, or is a base file in their place.

    ``carried``: rows that move into the file; None: the live rows of the group into a base file.
    ``replaced``: numbers of the log files in whose place a log file stands; a base file stands in
    the place of all.  ``new``: rows that are written; the first ``updates`` of them replace rows of
    this group, the keys of the others are new to it.  ``dead``: file number -> live positions that
    are replaced or deleted.  ``deleted``: the keys of those that nothing replaces, which a log file
    names.
    """

    partition: str
    group: int
    is_log: bool = False
    carried: Carried | None = None
    replaced: Sequence[int] = ()
    new: KeyedRows | None = None
    updates: int = 0
    dead: Mapping[int, BitMap] = field(default_factory=dict)
    deleted: Keys | None = None

    @property
    def deletes(self) -> int:
        """How many rows die without a successor in this group."""
        return sum(map(len, self.dead.values())) - self.updates

    @property
    def inserts(self) -> int:
        """How many keys the group gains."""
        if self.new is None:
            return 0
        return len(self.new) - self.updates


@dataclass(frozen=True, slots=True)
class Fates:
    """Rows of a batch, int64, by what one file group does with them.

    ``updates`` replace rows of the group.  ``inserts`` are new to it, and ``returns`` too, where a
    dead row of their key stands. ``deletes`` end rows of the group: the batch deletes them, they
    move to another partition, or replace a row elsewhere; these are entries of
    :meth:`mdt.metadata.keys.locate.Located.with_further`.
    """

    updates: Int64Array
    inserts: Int64Array
    returns: Int64Array
    deletes: Int64Array

    @property
    def new(self) -> Int64Array:
        """The rows that are written, in the order in which they are stored."""
        return np.concatenate([self.updates, self.inserts, self.returns])


def slice_of(
    batch: KeyedRows,
    located: Located,
    one: Assignment,
    fates: Fates,
    gathered: tuple[KeyedRows, Int64Array] | None = None,
) -> Slice:
    """Return the slice in which rows of a batch find what they do to one file group.  ``located``:
    of all rows of ``batch``.

    ``gathered``: rows of the batch in the order of the slices, and where each stands there ->
    int64[len(batch)].
    """
    new = deleted = None
    if len(fates.new) and gathered is None:
        new = batch.rows(fates.new)
    elif len(fates.new) and gathered is not None:
        new = gathered[0].rows(gathered[1][fates.new])
    if len(fates.deletes):
        deleted = Keys(batch.keys, batch.hashes).rows(located.keys_of(fates.deletes))
    return Slice(
        one.partition,
        one.group,
        one.is_log,
        new=new,
        updates=len(fates.updates),
        dead=_dead(located, np.concatenate([fates.updates, fates.deletes])),
        deleted=deleted,
    )


def _dead(located: Located, rows: Int64Array) -> dict[int, BitMap]:
    file, position = located.file[rows], located.position[rows]
    return {int(n): BitMap(position[file == n].astype(np.uint32)) for n in np.unique(file)}

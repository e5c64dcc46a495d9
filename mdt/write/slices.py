"""Slices, the input of the write core. A slice has carried-over rows, new rows and deleted rows.

All operations and services that write rows create slices, and :mod:`mdt.write.new_files` makes
files of them:

- An upsert has new rows, and deletes the positions that they replace.
- A delete has positions, and the keys for a log file.
- A compaction has neither. The live rows of a file group become a base file.
- A log compaction replaces some log files (``replaced``) by a single log file with their live rows.
- A service that rearranges rows passes them (``carried``) for a new file group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import take_rows
from indexes.base import Int64Array, KeyHashes, UInt64Array
from mdt.metadata.keys.locate import Located
from mdt.write.assign import Assignment

Carried = Callable[[], Sequence[pa.Table]]
"""Returns existing rows in the order of the new file, with the columns of
:func:`mdt.write.rewrite_rows.moved_schema`.
"""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """n rows with their keys.

    Attributes:
        table: Data columns.
        keys: string[n], record keys.
        sort_keys: string or binary[n], keys that define the row order and key ranges.
        hashes: Hashes of the record keys.
        ordering: uint64[n], ordering words. None without an ordering field.
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
        """Return the rows in a single chunk. Arrow otherwise joins all chunks of a column for each
        take.
        """
        if max((column.num_chunks for column in self.table.columns), default=0) <= 1:
            return self
        return replace(self, table=self.table.combine_chunks())

    def rows(self, rows: Int64Array) -> KeyedRows:
        """Return the rows at the positions ``rows``. Consecutive rows are not copied."""
        if (
            len(rows)
            and int(rows[-1]) - int(rows[0]) == len(rows) - 1
            and bool((rows[1:] > rows[:-1]).all())
        ):
            return self._run(int(rows[0]), len(rows))
        at = pa.array(rows)
        ordering = None if self.ordering is None else self.ordering[rows]
        return KeyedRows(
            take_rows(self.table, rows),
            self.keys.take(at),
            self.sort_keys.take(at),
            self.hashes.take(rows),
            ordering,
        )

    def _run(self, first: int, count: int) -> KeyedRows:
        ordering = None if self.ordering is None else self.ordering[first : first + count]
        hashes = self.hashes.slice(first, count)
        keys, sort_keys = (column.slice(first, count) for column in (self.keys, self.sort_keys))
        return KeyedRows(self.table.slice(first, count), keys, sort_keys, hashes, ordering)


def concat_rows(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Concatenate rows of the same table, at least one part."""
    if len(parts) == 1:
        return parts[0]
    ordering, orderings = None, [part.ordering for part in parts if part.ordering is not None]
    if orderings:
        ordering = np.concatenate(orderings)
    return KeyedRows(
        pa.concat_tables([part.table for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.sort_keys for part in parts]),
        KeyHashes.concat([part.hashes for part in parts]),
        ordering,
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """n deleted keys.

    Attributes:
        keys: string[n], record keys.
        hashes: Their hashes.
    """

    keys: pa.Array
    hashes: KeyHashes

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, rows: Int64Array) -> Keys:
        """Return the keys at the positions ``rows``."""
        return Keys(self.keys.take(pa.array(rows)), self.hashes.take(rows))


@dataclass(frozen=True, slots=True)
class Slice:
    """The next file of a file group.

    Attributes:
        group: Number of the file group in the snapshot, or :data:`mdt.write.assign.NEW`.
        is_log: True for a log file, False for a base file that replaces the files of the group.
        carried: Existing rows to move into the file. None for a base file with the live rows of the
            group.
        replaced: Numbers of the log files that a log file replaces.
        new: Rows to write. The first ``updates`` replace rows of this group, the keys of the rest
            are new to it.
        dead: File number -> live positions that are updated or deleted.
        deleted: Keys of the deleted rows, for a log file.
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
        """Number of rows deleted without an update in this group."""
        return sum(map(len, self.dead.values())) - self.updates

    @property
    def inserts(self) -> int:
        """Number of keys that the group gains."""
        if self.new is None:
            return 0
        return len(self.new) - self.updates


@dataclass(frozen=True, slots=True)
class RowDispositions:
    """Rows of a batch, int64, by their effect on a file group.

    Attributes:
        updates: Replace rows of the group.
        inserts: Are new to the group.
        returns: Are new to the group, where a deleted row has their key.
        deletes: End rows of the group: deletes, moves to another partition, and updates of a
            repeated key elsewhere. Entries of
            :meth:`mdt.metadata.keys.locate.Located.with_further`.
    """

    updates: Int64Array
    inserts: Int64Array
    returns: Int64Array
    deletes: Int64Array

    @property
    def new(self) -> Int64Array:
        """The rows to write, in storage order."""
        return np.concatenate([self.updates, self.inserts, self.returns])


def slice_of(
    batch: KeyedRows,
    located: Located,
    assignment: Assignment,
    dispositions: RowDispositions,
    gathered: tuple[KeyedRows, Int64Array] | None = None,
) -> Slice:
    """Return the slice of an assignment.

    Args:
        located: Locations of the keys of ``batch``.
        assignment: The assignment.
        gathered: Rows of the batch in slice order, and the index of each batch row there ->
            int64[len(batch)].
    """
    new = deleted = None
    if len(dispositions.new) and gathered is None:
        new = batch.rows(dispositions.new)
    elif len(dispositions.new) and gathered is not None:
        new = gathered[0].rows(gathered[1][dispositions.new])
    if len(dispositions.deletes):
        deleted = Keys(batch.keys, batch.hashes).rows(located.keys_of(dispositions.deletes))
    return Slice(
        assignment.partition,
        assignment.group,
        assignment.is_log,
        new=new,
        updates=len(dispositions.updates),
        dead=_dead(located, np.concatenate([dispositions.updates, dispositions.deletes])),
        deleted=deleted,
    )


def _dead(located: Located, rows: Int64Array) -> dict[int, BitMap]:
    file, position = located.file[rows], located.position[rows]
    return {int(n): BitMap(position[file == n].astype(np.uint32)) for n in np.unique(file)}

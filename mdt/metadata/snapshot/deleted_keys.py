"""What a snapshot knows of keys that were deleted: which tombstones stand, and which rows come too
late for theirs.

Where a key lives, its row alone decides; a tombstone counts while it does not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.base import BoolArray, Int64Array, KeyHashes, UInt64Array
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.tombstones import (
    Tombstones,
    marks_of,
    new_tombstones,
    of_table,
    remembered_since,
)


def has_tombstones(snapshot: Snapshot) -> bool:
    """Return whether there may be a tombstone; without the option there is none.  O(1)."""
    return snapshot.tombstones_since.is_known(snapshot.checkpoint)


def standing(snapshot: Snapshot) -> Tombstones:
    """Return all tombstones that count.  O(tombstones)."""
    since = remembered_since(snapshot.definition, snapshot.last_instant)
    return snapshot.tombstones_since.standing(snapshot.checkpoint, since)


def deleted_at(snapshot: Snapshot, marks: KeyHashes) -> tuple[BoolArray, UInt64Array]:
    """Return which keys have a tombstone, and its ordering value -> bool[n], uint64[n].  O(n log
    tombstones).
    """
    known, stands = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
    ordering = np.zeros(len(marks), np.uint64)
    since = remembered_since(snapshot.definition, snapshot.last_instant)
    for part in reversed(snapshot.tombstones_since.sets(snapshot.checkpoint)):
        at = part.find(marks)
        hit = np.flatnonzero((at >= 0) & ~known)
        at = at[hit]
        known[hit] = True
        stands[hit] = part.stands[at] & (part.deleted_us[at] >= since)
        ordering[hit] = part.ordering[at]
    return stands, ordering


def scope_of(
    snapshot: Snapshot, partition: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_] | None:
    """Return the partition paths that tombstones of keys depend on, None under table scope.
    ``partition``: of each key.
    """
    return None if snapshot.definition.is_global else partition


def outlived(
    snapshot: Snapshot,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_],
    ordering: UInt64Array | None,
    found: BoolArray,
) -> BoolArray:
    """Return which rows, of keys that do not live (``found``), are older than the delete of their
    key -> bool[n].

    Rows of the same ordering value are not: of those that compare equal, the later write counts, as
    between rows.
    """
    late = np.zeros(len(hashes), np.bool_)
    if ordering is None or not has_tombstones(snapshot):
        return late
    rows: Int64Array = np.flatnonzero(~found)
    marks = marks_of(
        hashes.take(rows), scope_of(snapshot, partition[rows]), snapshot.definition.key_hash
    )
    stands, deleted = deleted_at(snapshot, marks)
    late[rows] = stands & (ordering[rows] < deleted)
    return late


def undone(old: Snapshot, snapshot: Snapshot) -> pa.Table:
    """Return what a record says of tombstones, schema TOMBSTONES, so that after ``snapshot`` those
    of ``old`` stand again.  O(tombstones).
    """
    if not has_tombstones(old) and not has_tombstones(snapshot):
        return NO_TOMBSTONES
    now = standing(snapshot)
    then = (
        standing(old)
        if old.definition.key_hash == snapshot.definition.key_hash
        else of_table(NO_TOMBSTONES, 0)
    )
    stands, ordering = deleted_at(snapshot, then.marks)
    back = then.take(~stands | (ordering != then.ordering))
    gone = now.take(then.find(now.marks) < 0)
    marks = KeyHashes.concat([back.marks, gone.marks])
    stands = np.arange(len(marks)) < len(back)
    return new_tombstones(marks, np.append(back.ordering, gone.ordering), stands)

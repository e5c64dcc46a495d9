"""Look-ups of tombstones in a snapshot, and detection of rows older than the delete of their key.

A tombstone counts only while its key is not live.  The ordering value of a live row decides alone.
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
    from_table,
    marks_of,
    new_tombstones,
    remembered_since,
)


def has_tombstones(snapshot: Snapshot) -> bool:
    """Return True if the snapshot may have tombstones.  O(1).

    Tables without the option have none.
    """
    return snapshot.tombstones_since.is_known(snapshot.checkpoint)


def in_force(snapshot: Snapshot) -> Tombstones:
    """Return all tombstones in force.  O(tombstones)."""
    since = remembered_since(snapshot.definition, snapshot.last_instant)
    return snapshot.tombstones_since.in_force(snapshot.checkpoint, since)


def deleted_at(snapshot: Snapshot, marks: KeyHashes) -> tuple[BoolArray, UInt64Array]:
    """Return a mask of the keys with a tombstone, and its ordering values -> bool[n], uint64[n].

    O(n log tombstones).
    """
    decided, stands = np.zeros(len(marks), np.bool_), np.zeros(len(marks), np.bool_)
    ordering = np.zeros(len(marks), np.uint64)
    since = remembered_since(snapshot.definition, snapshot.last_instant)
    for part in reversed(snapshot.tombstones_since.sets(snapshot.checkpoint)):
        at = part.find(marks)
        hit = np.flatnonzero((at >= 0) & ~decided)
        at = at[hit]
        decided[hit] = True
        stands[hit] = part.stands[at] & (part.deleted_us[at] >= since)
        ordering[hit] = part.ordering[at]
    return stands, ordering


def scope_of(
    snapshot: Snapshot, partition: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_] | None:
    """Return the partition paths that tombstones depend on, or None with table scope."""
    return None if snapshot.definition.is_global else partition


def older_than_delete(
    snapshot: Snapshot,
    hashes: KeyHashes,
    partition: npt.NDArray[np.object_],
    ordering: UInt64Array | None,
    is_live: BoolArray,
) -> BoolArray:
    """Return a mask of rows older than the delete of their key -> bool[n].

    ``is_live`` is True for keys that are live, which are not tested.  A row with the delete's
    ordering value is not older: of equal values the later write counts, as between rows.
    """
    late = np.zeros(len(hashes), np.bool_)
    if ordering is None or not has_tombstones(snapshot):
        return late
    rows: Int64Array = np.flatnonzero(~is_live)
    marks = marks_of(
        hashes.take(rows), scope_of(snapshot, partition[rows]), snapshot.definition.key_hash
    )
    stands, deleted = deleted_at(snapshot, marks)
    late[rows] = stands & (ordering[rows] < deleted)
    return late


def undo_changes(target: Snapshot, snapshot: Snapshot) -> pa.Table:
    """Return the tombstone changes that turn ``snapshot`` back into ``target``, schema TOMBSTONES.

    O(tombstones).
    """
    if not has_tombstones(target) and not has_tombstones(snapshot):
        return NO_TOMBSTONES
    current = in_force(snapshot)
    previous = (
        in_force(target)
        if target.definition.key_hash == snapshot.definition.key_hash
        else from_table(NO_TOMBSTONES, 0)
    )
    stands, ordering = deleted_at(snapshot, previous.marks)
    restored = previous.take(~stands | (ordering != previous.ordering))
    withdrawn = current.take(previous.find(current.marks) < 0)
    marks = KeyHashes.concat([restored.marks, withdrawn.marks])
    stands = np.arange(len(marks)) < len(restored)
    return new_tombstones(marks, np.append(restored.ordering, withdrawn.ordering), stands)

"""Selection of file groups that may be joined in tables where keys may repeat.

A key must be unique in a file group: look-ups rely on it, and Hudi's readers merge the rows of a
file slice by key. So only file groups without common keys may be joined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexes.base import UInt64Array
from mdt.metadata.keys.locate import is_live
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.clustering_plan import Unit


def exclude_shared_keys(
    metadata: Metadata, snapshot: Snapshot, units: Sequence[Unit]
) -> list[Unit]:
    """Remove file groups that share keys with earlier groups of their unit.

    Reads key maps, but only if keys may repeat in the table, also by inserts of other writers.
    """
    if not (snapshot.definition.keys_repeat or snapshot.is_shared):
        return list(units)
    return [
        remaining
        for unit in units
        if (remaining := _exclude_shared_keys(metadata, snapshot, unit)).groups
    ]


def _exclude_shared_keys(metadata: Metadata, snapshot: Snapshot, unit: Unit) -> Unit:
    seen_hashes, groups = np.empty(0, np.uint64), []
    for group in unit.groups:
        hashes = _live_hashes(metadata, snapshot, group)
        if not np.isin(hashes, seen_hashes).any():
            seen_hashes = np.concatenate([seen_hashes, hashes])
            groups.append(group)
    if len(groups) < min(len(unit.groups), 2):
        groups = []  # joining needs two groups
    return Unit(unit.partition, tuple(groups))


def _live_hashes(metadata: Metadata, snapshot: Snapshot, group: int) -> UInt64Array:
    """Return the high words of the key hashes of a group's live rows (uint64[rows])."""
    hashes = [np.empty(0, np.uint64)]
    for number in snapshot.file_groups.members(group).tolist():
        stored = snapshot.segment(number).key_map
        if stored is not None:
            keys = metadata.objects.key_map(stored).verify_all()
            hashes.append(
                keys.hi[is_live(snapshot, number, np.asarray(keys.position).astype(np.int64))]
            )
    return np.concatenate(hashes)

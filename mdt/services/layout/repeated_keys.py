"""Which file groups may become one, in a table whose keys may live more than once: those that share
no key.

Within a file group a key lives once; whoever looks for it there relies on that, and Hudi's readers
merge by key in a file slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from indexes.base import UInt64Array
from mdt.metadata.keys.locate import is_live
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.clustering_plan import Unit


def apart(metadata: Metadata, snapshot: Snapshot, units: Sequence[Unit]) -> list[Unit]:
    """Return ``units`` without the file groups that share keys with earlier ones of their unit.
    Reads key maps, if keys may repeat.
    """
    if not snapshot.definition.keys_repeat:
        return list(units)
    return [kept for unit in units if (kept := _apart(metadata, snapshot, unit)).groups]


def _apart(metadata: Metadata, snapshot: Snapshot, unit: Unit) -> Unit:
    known, kept = np.empty(0, np.uint64), []
    for group in unit.groups:
        hashes = _live_hashes(metadata, snapshot, group)
        if not np.isin(hashes, known).any():
            known = np.concatenate([known, hashes])
            kept.append(group)
    if len(kept) < min(len(unit.groups), 2):
        kept = []  # one alone gains nothing
    return Unit(unit.partition, tuple(kept))


def _live_hashes(metadata: Metadata, snapshot: Snapshot, group: int) -> UInt64Array:
    """Return the first words of the hashes of a group's live keys -> uint64[rows]."""
    found = [np.empty(0, np.uint64)]
    for number in snapshot.file_groups.members(group).tolist():
        stored = snapshot.segment(number).key_map
        if stored is not None:
            keys = metadata.objects.key_map(stored).whole()
            found.append(
                keys.hi[is_live(snapshot, number, np.asarray(keys.position).astype(np.int64))]
            )
    return np.concatenate(found)

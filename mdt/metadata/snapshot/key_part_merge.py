"""Merges key parts during compaction, because a look-up in a few large parts is cheaper."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array, KeyIndex
from mdt.errors import Corrupt
from mdt.limits import INLINE_SUMMARY_BYTES_MAX
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot

Payload = Callable[[KeyPart], bytes | pa.Buffer]
"""Reads the bytes of a key part.  Raises Corrupt if they are missing."""


def can_be_read(key_part: KeyPart, index: KeyIndex, payload: Payload) -> bool:
    """Return True if the bytes of a key part exist and are intact."""
    try:
        count = len(key_part.groups) if key_part.numbers is None else len(key_part.numbers)
        index.merge([memoryview(payload(key_part))], [np.arange(count)], count)
    except (ValueError, Corrupt):
        return False
    return True


def mergeable(key_parts: Sequence[KeyPart], index: KeyIndex) -> list[KeyPart]:
    """Return the smaller ``key_parts``, which the next compaction merges.

    Size-tiered: a part is merged while it is at most four times the total of the smaller parts.  So
    a byte is rewritten O(log n) times in n compactions.
    """
    chosen: list[KeyPart] = []
    total = 0
    for key_part in sorted((u for u in key_parts if u.index == index.name), key=lambda u: u.size):
        if chosen and key_part.size > max(4 * total, INLINE_SUMMARY_BYTES_MAX):
            break
        chosen.append(key_part)
        total += key_part.size
    return chosen


def merge_key_parts(
    snapshot: Snapshot,
    key_parts: tuple[KeyPart, ...],
    index: KeyIndex,
    payload: Payload,
    *,
    whole: bool = False,
) -> tuple[KeyPart, ...]:
    """Return the key parts of ``snapshot`` with the smaller ones merged, or all of them if
    ``whole``.

    Groups without files are dropped.
    """
    chosen, least = mergeable(key_parts, index), 2
    if whole:
        chosen, least = [part for part in key_parts if part.index == index.name], 1
    if len(chosen) < least:
        return key_parts
    groups = [snapshot.key_part_groups(key_part) for key_part in chosen]
    live_groups = np.unique(np.concatenate(groups))
    live_groups = live_groups[
        [n >= 0 and len(snapshot.file_groups.members(n)) > 0 for n in live_groups.tolist()]
    ]
    maps = [_places(live_groups, numbers) for numbers in groups]
    data = index.merge(
        [memoryview(payload(key_part)) for key_part in chosen], maps, len(live_groups)
    )
    retained = tuple(u for u in key_parts if all(u is not c for c in chosen))
    return (*retained, KeyPart(index.name, (), data, None, live_groups))


def _places(groups: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return the index of each of ``numbers`` in ``groups`` (ascending), or -1."""
    if not len(groups):
        return np.full(len(numbers), -1, np.int64)
    at = np.minimum(np.searchsorted(groups, numbers), len(groups) - 1)
    return np.where(groups[at] == numbers, at, -1).astype(np.int64)

"""Merging key parts when the metadata are compacted: few and large ones cost a look-up less than
many small ones.
"""

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
"""From a key part to its bytes; raises Corrupt if they are gone."""


def can_be_read(key_part: KeyPart, index: KeyIndex, payload: Payload) -> bool:
    """Return whether the bytes of a key part are there and whole."""
    try:
        count = len(key_part.groups) if key_part.numbers is None else len(key_part.numbers)
        index.merge([memoryview(payload(key_part))], [np.arange(count)], count)
    except (ValueError, Corrupt):
        return False
    return True


def mergeable(key_parts: Sequence[KeyPart], index: KeyIndex) -> list[KeyPart]:
    """Return the smaller ones of ``key_parts``, those that the next compaction makes one.

    Size-tiered: a key part is among them while it is at most four times the sum of the smaller
    ones, so that a byte is rewritten O(log n) times over n compactions.
    """
    chosen: list[KeyPart] = []
    total = 0
    for key_part in sorted((u for u in key_parts if u.index == index.name), key=lambda u: u.size):
        if chosen and key_part.size > max(4 * total, INLINE_SUMMARY_BYTES_MAX):
            break
        chosen.append(key_part)
        total += key_part.size
    return chosen


def merged_key_parts(
    snapshot: Snapshot,
    key_parts: tuple[KeyPart, ...],
    index: KeyIndex,
    payload: Payload,
    *,
    whole: bool = False,
) -> tuple[KeyPart, ...]:
    """Return ``key_parts`` of ``snapshot`` with the smaller ones (all of them, if ``whole``) merged
    into one, dead groups forgotten.
    """
    chosen, least = mergeable(key_parts, index), 2
    if whole:
        chosen, least = [part for part in key_parts if part.index == index.name], 1
    if len(chosen) < least:
        return key_parts
    groups = [snapshot.key_part_groups(key_part) for key_part in chosen]
    known = np.unique(np.concatenate(groups))
    known = known[[n >= 0 and len(snapshot.file_groups.members(n)) > 0 for n in known.tolist()]]
    maps = [_places(known, numbers) for numbers in groups]
    data = index.merge([memoryview(payload(key_part)) for key_part in chosen], maps, len(known))
    kept = tuple(u for u in key_parts if all(u is not c for c in chosen))
    return (*kept, KeyPart(index.name, (), data, None, known))


def _places(known: Int64Array, numbers: Int64Array) -> Int64Array:
    """Return where each of ``numbers`` stands in ``known`` (rising), -1 where it does not."""
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, at, -1).astype(np.int64)

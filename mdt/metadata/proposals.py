"""What a key index answers about a snapshot: where keys may live."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from indexes.base import Int64Array


@dataclass(frozen=True, slots=True)
class Proposals:
    """Where the key index lets keys live: pairs (``key``, ``group`` of the snapshot), int64[p] each, a pair perhaps more than once; and ``whole``,
    the rising numbers of groups in which each of them may live, int64[w].
    """

    key: Int64Array
    group: Int64Array
    whole: Int64Array

    def pairs(self, count: int) -> tuple[Int64Array, Int64Array]:
        """Return all pairs of ``count`` keys: int64[p], int64[p].  O(p + w count)."""
        everywhere = np.tile(np.arange(count), len(self.whole))
        return np.append(self.key, everywhere), np.append(self.group, np.repeat(self.whole, count))

"""Whole Parquet files in the form of the lists that Spark gets for a table, for tests without a
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdt.engines.spark.listing import DeadRows, NativeFiles


@dataclass
class WholeFiles:
    """Files with the newest columns and trusted footers. ``dead_of``: the bitmap of deleted rows of
    each file, empty for none.
    """

    uris: Sequence[str]
    sizes: Sequence[int]
    dead_of: Sequence[bytes] | None = None

    def __len__(self):
        return len(self.uris)

    def native(self):
        zeros, size = np.zeros(len(self), np.int32), np.array(self.sizes, np.int64)
        has_dead = np.array(
            [bool(bitmap) for bitmap in self.dead_of or [b""] * len(self)], np.bool_
        )
        whole = np.full(len(self), -1, np.int64)
        crcs = zeros.astype(np.uint32)
        return NativeFiles(self.uris, size, whole, size, zeros, crcs, zeros - 1, has_dead)

    def dead(self, at):
        assert self.dead_of is not None, "deleted rows of files without any are requested"
        return DeadRows.inline([self.dead_of[i] for i in at])

    def since(self, before):
        """Return None: changes of files without a history are unknown."""
        return

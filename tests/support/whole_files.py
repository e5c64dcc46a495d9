"""Whole Parquet files as the lists that Spark is given of a table, for tests without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdt.engines.spark.listing import DeadRows, NativeFiles


@dataclass
class WholeFiles:
    """Files with the newest columns, whose footers are believed; of each the bitmap of its dead
    rows, empty for none.
    """

    uris: Sequence[str]
    sizes: Sequence[int]
    dead_of: Sequence[bytes] | None = None

    def __len__(self):
        return len(self.uris)

    def native(self):
        none, size = np.zeros(len(self), np.int32), np.array(self.sizes, np.int64)
        has_dead = np.array([bool(one) for one in self.dead_of or [b""] * len(self)], np.bool_)
        whole = np.full(len(self), -1, np.int64)
        crcs = none.astype(np.uint32)
        return NativeFiles(self.uris, size, whole, size, none, crcs, none - 1, has_dead)

    def dead(self, at):
        assert self.dead_of is not None, "files without dead rows are not asked for them"
        return DeadRows.inline([self.dead_of[i] for i in at])

    def since(self, before):
        """Return None: of files without a history nobody knows what has changed."""
        return

"""Shards: the segments of one commit whose rows are summarized together, up to a million rows; a
large segment alone.

Writers cut them once, when they write (:mod:`mdt.write.summarize`).  A file says in which shard it
is, and at which position of the shard its first row stands; a skipping index has one summary a
shard.  The shard of a file never changes, so an index that is built later numbers rows as every
other one does.  A file that leaves leaves a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mdt.forking import cached_property

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """The shards of n files.

    ``number``: int64[shards], rising, ``seq << 20 | ordinal``.  ``of_file``: int64[n], not falling,
    the position in ``number`` of each file's shard: by it a snapshot counts its shards.
    """

    number: Int64s
    of_file: Int64s

    @classmethod
    def of(cls, numbers: Int64s) -> Shards:
        """Return the shards of files that stand in the shards ``numbers``, int64[n], which do not
        fall.
        """
        begins = np.diff(numbers, prepend=-1) != 0
        return cls(numbers[begins].astype(np.int64), np.cumsum(begins) - 1)

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def start(self) -> Int64s:
        """The first file of each shard, and the end -> int64[shards + 1]."""
        return np.searchsorted(self.of_file, np.arange(len(self.number) + 1))

    def members(self, shard: int) -> Int64s:
        """Return the files of a shard, rising, those that have left included."""
        return np.arange(self.start[shard], self.start[shard + 1])

    def of_files(self, files: Int64s) -> Int64s:
        """Return the shards of ``files``, rising."""
        return np.unique(self.of_file[files])

    def followed_by(self, more: Sequence[Int64s]) -> Shards:
        """Return these shards and, behind them, those of files that later commits have added;
        ``more``: as for :meth:`of`.
        """
        added = Shards.of(np.concatenate([np.empty(0, np.int64), *more]))
        if not len(added):
            return self
        of_file = np.concatenate([self.of_file, added.of_file + len(self)])
        return Shards(np.concatenate([self.number, added.number]), of_file)

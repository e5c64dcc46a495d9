"""Shards: segments of a commit that are summarized together, up to a million rows.  A large segment
has its own shard.

Writers assign files to shards when they write them (:mod:`mdt.write.summarize`).  The file metadata
has the shard and the position of the file's first row in it.  A skipping index has a summary for
each shard.  The shard of a file never changes, so indexes built later number rows in the same way.
A removed file leaves a gap.
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

    ``number`` has the shard numbers ``seq << 20 | ordinal``, ascending, int64[shards].  ``of_file``
    has the index in ``number`` of each file's shard, non-decreasing, int64[n].  Snapshots identify
    shards by this index.
    """

    number: Int64s
    of_file: Int64s

    @classmethod
    def from_numbers(cls, numbers: Int64s) -> Shards:
        """Return the shards of files with the shard numbers ``numbers``, int64[n],
        non-decreasing.
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
        """Return the files of a shard, ascending, removed files included."""
        return np.arange(self.start[shard], self.start[shard + 1])

    def of_files(self, files: Int64s) -> Int64s:
        """Return the shards of ``files``, ascending."""
        return np.unique(self.of_file[files])

    def followed_by(self, shard_numbers: Sequence[Int64s]) -> Shards:
        """Append the shards of files that later commits have added.

        ``shard_numbers`` has shard numbers as for :meth:`from_numbers`.
        """
        added = Shards.from_numbers(np.concatenate([np.empty(0, np.int64), *shard_numbers]))
        if not len(added):
            return self
        of_file = np.concatenate([self.of_file, added.of_file + len(self)])
        return Shards(np.concatenate([self.number, added.number]), of_file)

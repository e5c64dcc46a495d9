"""The read-optimized view of a snapshot, as Hudi defines it: base files alone, each with all of its
rows.

What stands in log files is not seen, deletes and updates included: a row that a log file replaced
is there as its base file has it.  It costs what reading base files costs, and is as old as the last
compaction of each file group.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from mdt.forking import cached_property
from mdt.metadata.files.file_group import BASE
from mdt.metadata.snapshot.snapshot import Snapshot

Int64s = npt.NDArray[np.int64]


class ReadOptimized(Snapshot):
    """A snapshot without log files, in which no row is dead.  Only log files end rows of a base
    file that stays.
    """

    finds_keys = False

    @classmethod
    def of(cls, snapshot: Snapshot) -> ReadOptimized:
        """Return the view of ``snapshot``."""
        named = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
        logs = np.flatnonzero(snapshot.kind != BASE)
        return cls(**{**named, "gone": np.union1d(snapshot.gone, logs)})

    def vector(self, number: int) -> BitMap | None:
        """Return None: no position is dead."""
        return None

    @cached_property
    def dead_rows(self) -> Int64s:
        """Zero for each file -> int64[numbered]."""
        return np.zeros(self.numbered, np.int64)

    @cached_property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """Which files are live and have rows -> bool[numbered]."""
        return np.asarray(self.rows > 0, np.bool_)

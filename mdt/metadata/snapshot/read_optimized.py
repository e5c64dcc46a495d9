"""Hudi's read-optimized view of a snapshot: base files only, with all of their rows.

Log files are ignored, including their deletes and updates.  A row that a log file replaced appears
as in its base file.  The view costs no more than reading base files, and each file group is as old
as its last compaction.
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
    """A snapshot without log files and dead rows.

    Only log files delete or replace rows of a live base file.
    """

    finds_keys = False

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> ReadOptimized:
        """Return the view of ``snapshot``."""
        named = {field.name: getattr(snapshot, field.name) for field in fields(snapshot)}
        logs = np.flatnonzero(snapshot.kind != BASE)
        return cls(**{**named, "removed": np.union1d(snapshot.removed, logs)})

    def vector(self, number: int) -> BitMap | None:
        """Return None, as no row is dead."""
        return None

    @cached_property
    def dead_rows(self) -> Int64s:
        """Zeros -> int64[numbered]."""
        return np.zeros(self.numbered, np.int64)

    @cached_property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """Mask of the live files with rows -> bool[numbered]."""
        return np.asarray(self.rows > 0, np.bool_)

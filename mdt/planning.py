"""What a plan is while it is made: segments and positions that are left, and what every index did."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from indexes.base import BoolArray
from indexes.predicate import Predicate
from mdt.metadata import Metadata
from mdt.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexNote:
    """What one index did for a plan.

    ``covered``: segments of which it has a summary.  ``pruned``: segments that it proved empty (where several indexes
    answered one condition together, each counts them).  ``used``: whether it was asked.  ``reason``: a code, ``detail``:
    a sentence.
    """

    index: str
    used: bool
    covered: int
    pruned: int
    reason: str
    detail: str


@dataclass(slots=True)
class Planning:
    """The state of a plan.  ``maybe``: bool[segments]; ``positions``: segment row -> the only rows that may match."""

    metadata: Metadata
    snapshot: Snapshot
    predicate: Predicate
    maybe: BoolArray
    positions: dict[int, BitMap] = field(default_factory=dict)
    notes: list[IndexNote] = field(default_factory=list)
    where: str = ""
    """Where the second round ran, as the end of a sentence; empty: here."""

    def note(self, index: str, verdict: BoolArray, covered: int, detail: str) -> None:
        """Apply a verdict, bool[segments], and record what it did."""
        pruned = int(np.count_nonzero(self.maybe & ~verdict))
        self.maybe &= verdict
        self.notes.append(IndexNote(index, True, covered, pruned, "used", detail))

    def unused(self, index: str, reason: str, detail: str) -> None:
        """Record that an index was of no use."""
        self.notes.append(IndexNote(index, False, 0, 0, reason, detail))

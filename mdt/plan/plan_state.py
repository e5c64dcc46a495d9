"""What a plan is while it is made: segments and positions that are left, and what every index
did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from indexes.base import BoolArray
from indexes.predicate import Predicate
from mdt import logs
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexNote:
    """What one index did for a plan.

    ``covered``: segments of which it has a summary.  ``pruned``: segments that it proved empty
    (where several indexes answered one condition together, each counts them).  ``used``: whether it
    was asked.  ``reason``: a code, ``detail``: a sentence.  ``row_groups``: row groups that it
    proved empty in segments of which it left others.
    """

    index: str
    used: bool
    covered: int
    pruned: int
    reason: str
    detail: str
    row_groups: int = 0


@dataclass(slots=True)
class PlanState:
    """The state of a plan.

    ``maybe``: bool[numbered]; ``positions``: file number -> the only rows that may match;
    ``row_groups``: file number -> which of its row groups may match, bool[row groups], where an
    index knows.
    """

    metadata: Metadata
    snapshot: Snapshot
    predicate: Predicate
    maybe: BoolArray
    positions: dict[int, BitMap] = field(default_factory=dict)
    row_groups: dict[int, BoolArray] = field(default_factory=dict)
    notes: list[IndexNote] = field(default_factory=list)
    where: str = ""
    """Where the second round ran, as the end of a sentence; empty: here."""

    def note(self, index: str, verdict: BoolArray, covered: int, detail: str) -> None:
        """Apply a verdict, bool[numbered], and record what it did."""
        pruned = int(np.count_nonzero(self.maybe & ~verdict))
        self.maybe &= verdict
        self.notes.append(IndexNote(index, True, covered, pruned, "used", detail))

    def unused(self, index: str, reason: str, detail: str) -> None:
        """Record that an index was of no use."""
        self.notes.append(IndexNote(index, False, 0, 0, reason, detail))

    def missing(self, index: str, detail: str) -> None:
        """Record that this process does not have an index of the table; the first time, log it."""
        self.unused(index, "not_installed", detail)
        table = self.snapshot.definition.name
        logs.warn_once(
            logs.PLAN, self.metadata.said, index, "%s: %s is not used: %s", table, index, detail
        )

    def log(self) -> None:
        """Log what every index did, and once those that are damaged."""
        table = self.snapshot.definition.name
        for note in self.notes:
            if note.reason == "damaged":
                text = (
                    "%s: the index %s is damaged; t.rebuild_index() or mdt index rebuild mends"
                    " it: %s"
                )
                logs.warn_once(
                    logs.PLAN,
                    self.metadata.said,
                    f"{note.index} damaged",
                    text,
                    table,
                    note.index,
                    note.detail,
                )
        if logs.PLAN.isEnabledFor(logs.DEBUG):
            left = int(np.count_nonzero(self.maybe))
            logs.PLAN.debug(
                "%s: plan at seq %d: %d of %d files left",
                table,
                self.snapshot.seq,
                left,
                len(self.snapshot),
            )
            for note in self.notes:
                logs.PLAN.debug(
                    "%s: %s pruned %d of %d files (%s): %s",
                    table,
                    note.index,
                    note.pruned,
                    note.covered,
                    note.reason,
                    note.detail,
                )

"""The state of a plan during planning: the remaining segments and positions, and notes on each
index.
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
    """The effect of an index on a plan.

    Attributes:
        used: True if the index was consulted.
        covered: Number of segments with a summary.
        pruned: Number of segments that it proved empty. If several indexes answered a condition
            together, each counts them.
        reason: A code.
        detail: A sentence.
        row_groups: Number of row groups that it proved empty in remaining segments.
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

    Attributes:
        maybe: The segments that may match, bool[numbered].
        positions: File number -> the only positions that may match.
        row_groups: File number -> the row groups that may match, bool[row groups], if an index
            restricts them.
    """

    metadata: Metadata
    snapshot: Snapshot
    predicate: Predicate
    maybe: BoolArray
    positions: dict[int, BitMap] = field(default_factory=dict)
    row_groups: dict[int, BoolArray] = field(default_factory=dict)
    notes: list[IndexNote] = field(default_factory=list)
    where: str = ""
    """Where the second round ran, as the end of a sentence. Empty for this process."""

    def note(self, index: str, verdict: BoolArray, covered: int, detail: str) -> None:
        """Apply a verdict, bool[numbered], and record its effect."""
        pruned = int(np.count_nonzero(self.maybe & ~verdict))
        self.maybe &= verdict
        # A predicate that is always false prunes files without statistics, too.
        self.notes.append(IndexNote(index, True, max(covered, pruned), pruned, "used", detail))

    def unused(self, index: str, reason: str, detail: str) -> None:
        """Record that an index did not help."""
        self.notes.append(IndexNote(index, False, 0, 0, reason, detail))

    def missing(self, index: str, detail: str) -> None:
        """Record that an index is not installed in this process. Log it the first time."""
        self.unused(index, "not_installed", detail)
        table = self.snapshot.definition.name
        logs.warn_once(
            logs.PLAN, self.metadata.warned, index, "%s: %s is not used: %s", table, index, detail
        )

    def log(self) -> None:
        """Log the effect of each index, and each damaged index once."""
        table = self.snapshot.definition.name
        for note in self.notes:
            if note.reason == "damaged":
                text = (
                    "%s: the index %s is damaged; t.rebuild_index() or mdt index rebuild repairs"
                    " it: %s"
                )
                logs.warn_once(
                    logs.PLAN,
                    self.metadata.warned,
                    f"{note.index} damaged",
                    text,
                    table,
                    note.index,
                    note.detail,
                )
        if logs.PLAN.isEnabledFor(logs.DEBUG):
            remaining = int(np.count_nonzero(self.maybe))
            logs.PLAN.debug(
                "%s: plan at seq %d: %d of %d files remain",
                table,
                self.snapshot.seq,
                remaining,
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

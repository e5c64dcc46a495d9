"""Operations that are a batch of a stream: written if the table has it not yet, whoever tries how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Around, Changes, Claim, WritePlan
from mdt.metadata.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Once(Around):
    """An operation as batch ``batch`` of ``stream``; nothing is to be done if that, or a later one, is in the table.

    A commit of the same stream conflicts with it, so that of two that write one batch one finds the other's.
    """

    stream: str
    batch: int

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return what the operation decides, unless the batch is there; one that changes nothing is committed, too: tried again, it still does not."""
        if snapshot.streams.has(self.stream, self.batch):
            return WritePlan(Footprint(txn), is_needed=False)
        plan = self.operation.prepare(snapshot, txn)
        return replace(plan, footprint=replace(plan.footprint, stream=self.stream), is_needed=True)

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write as the operation does, and say which batch it is."""
        changes = self.operation.write(snapshot, plan, claim)
        return replace(changes, extra={**changes.extra, "stream": {"name": self.stream, "batch": self.batch}})

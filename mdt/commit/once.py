"""Operations that are a batch of a stream: written if the table has it not yet, whoever tries how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Once(Operation[Any]):
    """``operation`` as batch ``batch`` of ``stream``; nothing is to be done if that, or a later one, is in the table.

    A commit of the same stream conflicts with it, so that of two that write one batch one finds the other's.
    """

    operation: Operation[Any]
    stream: str
    batch: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """What the history calls it."""
        return self.operation.name

    @property
    def action(self) -> str:  # type: ignore[override]
        """Hudi's word for its instant."""
        return self.operation.action

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return what the operation decides, unless the batch is there."""
        if snapshot.streams.has(self.stream, self.batch):
            return WritePlan(Footprint(txn), is_needed=False)
        plan = self.operation.prepare(snapshot, txn)
        return replace(plan, footprint=replace(plan.footprint, stream=self.stream))

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write as the operation does, and say which batch it is."""
        changes = self.operation.write(snapshot, plan, claim)
        return replace(changes, extra={**changes.extra, "stream": {"name": self.stream, "batch": self.batch}})

    def narrow(
        self, snapshot: Snapshot, plan: Any, changes: Changes, theirs: CommitRecord
    ) -> tuple[Any, Changes] | None:
        """Give way as the operation does."""
        return self.operation.narrow(snapshot, plan, changes, theirs)

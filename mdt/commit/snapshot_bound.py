"""Optimistic operations on rows that were read from an earlier snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mdt.commit import conflicts
from mdt.commit.operation import OperationWrapper, WritePlan
from mdt.errors import Conflict, Invalid
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotBoundOperation(OperationWrapper):
    """An operation that depends on the rows of the snapshot ``seq``.

    It is planned on the newest snapshot, and conflicts with all commits since ``seq`` as if it had
    begun there. After a conflict the caller must read the rows again.

    txn: The transaction of that commit, "" if it is unknown.
    """

    metadata: Metadata
    seq: int
    txn: str

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan. Raises Conflict if a commit since ``seq`` changed rows that the
        operation depends on, or if the table does not have commit ``seq``.
        """
        if not self._is_after(snapshot):
            raise self._conflict("the table has no such commit, or another one in its place")
        try:
            plan = self.operation.prepare(snapshot, txn)
        except Invalid as error:
            if snapshot.seq == self.seq:
                raise
            raise self._conflict(error.message) from error
        try:
            return self._checked(plan, snapshot)
        except BaseException:
            plan.close()
            raise

    def _checked(self, plan: WritePlan, snapshot: Snapshot) -> WritePlan:
        """Return the plan with its condition. Raises Conflict for a commit since ``seq``."""
        if snapshot.seq > self.seq and plan.counts.get("inserted") and not plan.footprint.absent:
            raise self._conflict(  # the absent keys are only known to the writing tasks
                f"{snapshot.seq - self.seq} commits since then may have inserted the same keys"
            )
        footprint = replace(plan.footprint, conditional=True)
        for seq in range(self.seq + 1, snapshot.seq + 1):
            record = self.metadata.record(seq)
            if record is None:
                raise self._conflict(f"commit {seq} has been archived")
            reason = conflicts.check(
                footprint, record, self.metadata.objects.key_map, snapshot.definition.key_hash
            )
            if reason is not None:
                raise self._conflict(reason)
        return replace(plan, footprint=footprint)

    def _is_after(self, snapshot: Snapshot) -> bool:
        """Return False if another table, or an older copy, is in the place of the one read."""
        if not self.txn or self.seq < snapshot.retention.first:
            return self.seq <= snapshot.seq
        return snapshot.transactions.get(self.txn) == self.seq

    def _conflict(self, why: str) -> Conflict:
        return Conflict(
            f"{self.name} depends on rows that were read at commit {self.seq}: {why}",
            hint="read the rows again, and repeat the operation",
        )

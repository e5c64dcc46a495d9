"""Compaction: rewrite file slices with log files or deleted rows as base files.

Plan, execution and commit are one transaction. Nothing is announced before the commit, because
version 6 readers hide the log files of a file group while its compaction is pending. File groups
that another writer changes meanwhile are left out, and the rest commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.metadata.files.file_group import BASE
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import slice_instant
from mdt.progress import Progress
from mdt.services.layout.compaction_strategies import Strategy, choose_groups, dirty
from mdt.services.layout.rewriting import RewriteRunner, in_process, left_out
from mdt.write.new_files import WriteJob
from mdt.write.slice_files import write_slices
from mdt.write.slices import Slice


@dataclass(frozen=True, slots=True)
class CompactionPlan(WritePlan):
    """A plan with the file groups to compact, by their numbers in the snapshot."""

    groups: Sequence[int] = ()

    def moved(self) -> Sequence[int]:
        """Return the file groups."""
        return self.groups


@dataclass(frozen=True, slots=True)
class Compaction(Operation[CompactionPlan]):
    """The compaction operation.

    Attributes:
        progress: Called with the number of finished file groups and of all.
        strategy, partitions, budget_bytes: See
            :func:`mdt.services.layout.compaction_strategies.choose_groups`.
        runner: Where rows are written.
        names: Ids of the file groups to compact, instead of a strategy's choice.
        everything: True to rewrite all of ``names``, including groups without log files and deleted
            rows.
    """

    metadata: Metadata
    options: Options
    progress: Progress | None = None
    strategy: str | Strategy = "log_bytes"
    partitions: Sequence[str] | None = None
    budget_bytes: int | None = None
    runner: RewriteRunner = in_process
    names: Sequence[str] | None = None
    everything: bool = False
    name: str = "compact"
    action: str = "compaction"

    def prepare(self, snapshot: Snapshot, txn: str) -> CompactionPlan:
        """Return a plan with the chosen file groups among those with log files or deleted rows."""
        groups = sorted(self._choose(snapshot))
        names = snapshot.file_groups.names(groups)
        partitions = sorted({snapshot.file_groups.partition(g) for g in groups})
        return CompactionPlan(
            Footprint(txn, frozenset(names)), partitions, is_needed=bool(groups), groups=groups
        )

    def _choose(self, snapshot: Snapshot) -> Sequence[int]:
        if self.names is None:
            return choose_groups(
                snapshot, self.strategy, partitions=self.partitions, budget_bytes=self.budget_bytes
            )
        groups = snapshot.file_groups.with_files(self.names)
        if self.everything or not groups:
            return groups
        return dirty(snapshot, groups).group.tolist()

    def write(self, snapshot: Snapshot, plan: CompactionPlan, claim: Claim) -> Changes:
        """Write a base file for each file group."""
        shared = WriteJob.for_claim(self.metadata, snapshot, self.options, claim)
        changes = self.runner(shared, compact_groups, plan.groups, self.progress)
        return replace(
            changes, extra={"compaction_plan": [_plan_entry(snapshot, g) for g in plan.groups]}
        )

    def narrow(
        self, snapshot: Snapshot, plan: CompactionPlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[CompactionPlan, Changes] | None:
        """Leave out the file groups that ``theirs`` changed.

        Returns None if nothing is left, or for another kind of conflict.
        """
        conflicting = plan.footprint.groups & theirs.changed_groups
        remaining = [f for f in changes.files if f.file_id not in conflicting]
        if not conflicting or not remaining or plan.footprint.txn in theirs.rolled_back:
            return None
        numbers = set(snapshot.file_groups.number(sorted(conflicting)).tolist())
        segments: set[int] = set()
        for group in numbers:
            segments.update(snapshot.segment_ids[snapshot.file_groups.members(group)].tolist())
        extra = {**changes.extra, "left_out": left_out(changes, remaining)}
        if "compaction_plan" in extra:
            extra["compaction_plan"] = [
                entry for entry in extra["compaction_plan"] if entry["fileId"] not in conflicting
            ]
        footprint = replace(plan.footprint, groups=plan.footprint.groups - conflicting)
        groups = [g for g in plan.groups if g not in numbers]
        removed = [s for s in changes.removed if s not in segments]
        return (
            replace(plan, footprint=footprint, groups=groups),
            replace(changes, files=remaining, removed=removed, extra=extra),
        )


def compact_groups(
    shared: WriteJob, groups: Sequence[int], part: str, progress: Progress | None
) -> Changes:
    """Write a base file for each file group of ``groups``.

    A :class:`mdt.services.layout.rewriting.Rewrite`.
    """
    slices = [Slice(shared.snapshot.file_groups.partition(group), group) for group in groups]
    return write_slices(shared, slices, lambda item: item, progress, read=groups, part=part)


def _plan_entry(snapshot: Snapshot, group: int) -> dict[str, object]:
    """Return the entry of a file group in Hudi's compaction plan."""
    members = snapshot.files.segments(snapshot.file_groups.members(group))
    return {
        "baseInstantTime": slice_instant(members),
        "deltaFilePaths": [m.name for m in members if m.kind != BASE],
        "dataFilePath": next((m.name for m in members if m.kind == BASE), None),
        "fileId": members[0].file_id,
        "partitionPath": members[0].partition,
    }

"""Clustering: rows of several file groups are put in order, along columns or a curve, and written as new file groups.

The old groups leave: Hudi's ``replacecommit``.  Rows keep their commit times, and stay what they are.  Version 6 readers take a pending
instant for another writer's, so nothing is announced before the commit, as with compaction.

The plan is made of units (:mod:`mdt.services.clustering_plan`).  A unit of which another writer changed a file group meanwhile is left
out, with all that was written of it; the rest commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.metadata import paths
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress
from mdt.services.arrangement import arrangement, carried
from mdt.services.clustering_plan import Unit, units
from mdt.write.assign import NEW
from mdt.write.files import WriteJob, Written
from mdt.write.operations import collect
from mdt.write.slices import Slice


class NothingGained(Exception):
    """No unit of a plan would be better off; nothing was written."""


@dataclass(frozen=True, slots=True)
class ClusteringPlan(WritePlan):
    """``units``: what is looked at, and written if that pays."""

    units: Sequence[Unit] = ()


@dataclass(frozen=True, slots=True)
class Clustering(Operation[ClusteringPlan]):
    """The operation.  ``by``: columns, ``curve``: one of :data:`mdt.services.curves.CURVES`, ``partitions``: paths, None for all.

    ``progress`` is called with the number of finished units and of all.
    """

    metadata: Metadata
    options: Options
    by: Sequence[str]
    curve: str
    partitions: Sequence[str] | None = None
    progress: Progress | None = None
    name: str = "cluster"
    action: str = "replacecommit"

    def prepare(self, snapshot: Snapshot, txn: str) -> ClusteringPlan:
        """Return the units whose ranges overlap."""
        found = units(snapshot, self.options, self.by, self.curve, self.partitions)
        names = frozenset(snapshot.file_groups.names([group for unit in found for group in unit.groups]))
        partitions = sorted({unit.partition for unit in found})
        return ClusteringPlan(Footprint(txn, names), partitions, is_needed=bool(found), units=found)

    def write(self, snapshot: Snapshot, plan: ClusteringPlan, claim: Claim) -> Changes:
        """Write the units that gain.  Raises NothingGained if none does."""
        shared = WriteJob.of(self.metadata, snapshot, self.options, claim)
        made: list[tuple[Unit, int]] = []
        changes = collect(shared, self._written(shared, plan, made), threads=self.options.threads("writer"))
        if not made:
            raise NothingGained
        return _told(snapshot, changes, made)

    def _written(self, shared: WriteJob, plan: ClusteringPlan, made: list[tuple[Unit, int]]) -> Iterator[Written]:
        """Yield the new files unit by unit, and add to ``made`` each unit with how many it has become."""
        task, snapshot = 0, shared.snapshot
        with ThreadPoolExecutor(self.options.threads("writer")) as pool:
            for number, unit in enumerate(plan.units, 1):
                found = arrangement(self.metadata, snapshot, self.options, unit, self.by, self.curve)
                if found.pays(len(unit.groups)):
                    made.append((unit, len(found.ends)))
                    for rows in carried(self.metadata, snapshot, unit, found, pool):
                        work = [Slice(unit.partition, NEW, carried=of_file) for of_file in rows]
                        yield from pool.map(shared.run, range(task, task + len(work)), work)
                        task += len(work)
                if self.progress is not None:
                    self.progress(number, len(plan.units))

    def narrow(
        self, snapshot: Snapshot, plan: ClusteringPlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[ClusteringPlan, Changes] | None:
        """Leave out the units of which ``theirs`` changed a group; None if nothing would be left or the conflict is another."""
        lost = plan.footprint.groups & theirs.changed_groups
        if not lost or plan.footprint.txn in theirs.rolled_back:
            return None
        told = changes.extra["clustering_plan"]
        kept = [unit for unit in told if not lost.intersection(one["fileId"] for one in unit["slices"])]
        if not kept:
            return None
        footprint = replace(plan.footprint, groups=plan.footprint.groups - lost)
        return replace(plan, footprint=footprint), _without(snapshot, changes, kept)


def _told(snapshot: Snapshot, changes: Changes, made: Sequence[tuple[Unit, int]]) -> Changes:
    """Return ``changes`` with what leaves, and the plan as Hudi has it; files come in the order of the units."""
    plan, removed, at = [], list(changes.removed), 0
    for unit, count in made:
        outputs = [file.file_id for file in changes.files[at : at + count]]
        at += count
        slices = [_slice(snapshot, group) for group in unit.groups]
        plan.append({"slices": slices, "outputs": outputs})
        for group in unit.groups:
            removed += snapshot.segment_ids[snapshot.file_groups.members(group)].tolist()
    return replace(changes, removed=removed, extra={"clustering_plan": plan, "replaced": _replaced(plan)})


def _slice(snapshot: Snapshot, group: int) -> dict[str, Any]:
    """Return what Hudi's clustering plan says of one file group."""
    members = snapshot.files.segments(snapshot.file_groups.members(group))
    return {
        "dataFilePath": next((m.path for m in members if m.kind == BASE), None),
        "deltaFilePaths": [m.path for m in members if m.kind != BASE],
        "fileId": members[0].file_id,
        "partitionPath": members[0].partition,
    }


def _replaced(plan: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return partition path -> ids of the file groups that leave."""
    found: dict[str, list[str]] = {}
    for unit in plan:
        for one in unit["slices"]:
            found.setdefault(one["partitionPath"], []).append(one["fileId"])
    return found


def _without(snapshot: Snapshot, changes: Changes, kept: Sequence[Mapping[str, Any]]) -> Changes:
    """Return the part of ``changes`` that belongs to the units ``kept``."""
    outputs = {name for unit in kept for name in unit["outputs"]}
    files = [file for file in changes.files if file.file_id in outputs]
    left_out = list(changes.extra.get("left_out", ()))
    left_out += [paths.partition_file(f.partition, f.name) for f in changes.files if f.file_id not in outputs]
    replaced = _replaced(kept)
    numbers = snapshot.file_groups.number([name for names in replaced.values() for name in names])
    gone = {int(s) for group in numbers.tolist() for s in snapshot.segment_ids[snapshot.file_groups.members(group)]}
    removed = [segment for segment in changes.removed if segment in gone]
    extra = {"clustering_plan": list(kept), "replaced": replaced, "left_out": left_out}
    return replace(changes, files=files, removed=removed, extra=extra)

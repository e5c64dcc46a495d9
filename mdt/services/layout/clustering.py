"""Clustering: rows of several file groups are put in order, along columns or a curve, and written
as new file groups.

The old groups leave: Hudi's ``replacecommit``.  Rows keep their commit times, and stay what they
are.  Version 6 readers take a pending instant for another writer's, so nothing is announced before
the commit, as with compaction.

The plan is made of units (:mod:`mdt.services.layout.clustering_plan`).  A unit of which another
writer changed a file group meanwhile is left out, with all that was written of it; the rest
commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.metadata.files.file_group import BASE
from mdt.metadata.key_indexes import has_buckets
from mdt.metadata.keys.buckets import homes
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.services.layout.arrangement import Arrangement, arrangement, carried
from mdt.services.layout.clustering_plan import Unit, units
from mdt.services.layout.repeated_keys import apart
from mdt.services.layout.rewriting import Rewrite, RewriteRunner, in_process, left_out
from mdt.write.assign import NEW
from mdt.write.new_files import WriteJob, Written
from mdt.write.slice_files import collect
from mdt.write.slices import Carried, Slice


class NothingGained(Exception):
    """No unit of a plan would be better off; nothing was written."""


@dataclass(frozen=True, slots=True)
class ClusteringPlan(WritePlan):
    """``units``: what is looked at, and written if that pays."""

    units: Sequence[Unit] = ()

    def moved(self) -> Sequence[int]:
        """Return the file groups of all units."""
        return [group for unit in self.units for group in unit.groups]


@dataclass(frozen=True, slots=True)
class Clustering(Operation[ClusteringPlan]):
    """The operation.  ``by``: columns, ``curve``: one of :data:`mdt.services.layout.curves.CURVES`,
    ``partitions``: paths, None for all.

    ``progress`` is called with the number of finished units and of all.  ``runner``: where rows are
    written.
    """

    metadata: Metadata
    options: Options
    by: Sequence[str]
    curve: str
    partitions: Sequence[str] | None = None
    progress: Progress | None = None
    runner: RewriteRunner = in_process
    name: str = "cluster"
    action: str = "replacecommit"

    def prepare(self, snapshot: Snapshot, txn: str) -> ClusteringPlan:
        """Return the units."""
        found = self._units(snapshot)
        groups = [group for unit in found for group in unit.groups]
        footprint = Footprint(txn, frozenset(snapshot.file_groups.names(groups)))
        partitions = sorted({unit.partition for unit in found})
        return ClusteringPlan(footprint, partitions, is_needed=bool(found), units=found)

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return the units whose ranges overlap."""
        found = units(snapshot, self.options, self.by, self.curve, self.partitions)
        return apart(self.metadata, snapshot, found)

    def write(self, snapshot: Snapshot, plan: ClusteringPlan, claim: Claim) -> Changes:
        """Write the units that gain.  Raises NothingGained if none does."""
        shared = WriteJob.of(self.metadata, snapshot, self.options, claim)
        changes = self.runner(shared, self._rewrite(), plan.units, self.progress)
        told = changes.extra.get("clustering_plan")
        if not told:
            raise NothingGained
        return replace(changes, extra={"clustering_plan": told, "replaced": _replaced(told)})

    def _rewrite(self) -> Rewrite[Unit]:
        return partial(clustered, self.by, self.curve)

    def narrow(
        self, snapshot: Snapshot, plan: ClusteringPlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[ClusteringPlan, Changes] | None:
        """Leave out the units of which ``theirs`` changed a group; None if nothing would be left or
        the conflict is another.
        """
        lost = plan.footprint.groups & theirs.changed_groups
        if not lost or plan.footprint.txn in theirs.rolled_back:
            return None
        told = changes.extra["clustering_plan"]
        kept = [
            unit for unit in told if not lost.intersection(one["fileId"] for one in unit["slices"])
        ]
        if not kept:
            return None
        footprint = replace(plan.footprint, groups=plan.footprint.groups - lost)
        return replace(plan, footprint=footprint), _without(snapshot, changes, kept)


Made = list[tuple[Unit, int]]
"""Units that were written, each with how many files it has become."""
Arranged = Callable[[WriteJob, Unit], Arrangement | None]
"""How the rows of a unit are to stand, None if they stay."""


def clustered(
    by: Sequence[str],
    curve: str,
    shared: WriteJob,
    work: Sequence[Unit],
    part: str,
    progress: Progress | None,
) -> Changes:
    """Write those of the units ``work`` that gain, in a new order: with ``by`` and ``curve`` a
    :class:`mdt.services.layout.rewriting.Rewrite`.
    """

    def arranged(job: WriteJob, unit: Unit) -> Arrangement | None:
        found = arrangement(job.metadata, job.snapshot, job.options, unit, by, curve)
        return found if found.pays(len(unit.groups)) else None

    return rearranged(arranged, shared, work, part, progress)


def rearranged(
    arranged: Arranged, shared: WriteJob, work: Sequence[Unit], part: str, progress: Progress | None
) -> Changes:
    """Write the units ``work`` as ``arranged`` says of each, None for those that stay; return
    files, what leaves, and Hudi's plan.
    """
    made: Made = []
    written = _written(arranged, shared, work, made, progress)
    changes = collect(shared, written, threads=shared.options.threads("writer"), part=part)
    return _told(shared.snapshot, changes, made)


def _written(
    arranged: Arranged,
    shared: WriteJob,
    work: Sequence[Unit],
    made: Made,
    progress: Progress | None,
) -> Iterator[Written]:
    """Yield the new files unit by unit, and add to ``made`` each unit that is written."""
    task = 0
    with ThreadPoolExecutor(shared.options.threads("writer")) as pool:
        for number, unit in enumerate(work, 1):
            found = arranged(shared, unit)
            if found is not None:
                made.append((unit, len(found.ends)))
                for rows in carried(shared.metadata, shared.snapshot, unit, found, pool):
                    slices = [
                        Slice(unit.partition, _home(shared, unit, of), carried=of) for of in rows
                    ]
                    shared.marked.mark(enumerate(slices, task))
                    yield from pool.map(shared.run, range(task, task + len(slices)), slices)
                    task += len(slices)
            if progress is not None:
                progress(number, len(work))


def _home(shared: WriteJob, unit: Unit, rows: Carried) -> int:
    """Return what stands for the file group that ``rows`` become: a new one, or that of their
    bucket, which is the same for all of them.
    """
    if not has_buckets(shared.snapshot.definition.key_index):
        return NEW
    first = plain(rows()[0][RECORD_KEY].slice(0, 1))
    home = homes(shared.metadata, shared.snapshot, first, np.array([unit.partition], object))
    return NEW if home is None else int(home[0])


def _told(snapshot: Snapshot, changes: Changes, made: Made) -> Changes:
    """Return ``changes`` with what leaves, and the plan as Hudi has it; files come in the order of
    the units.
    """
    plan, removed, at = [], list(changes.removed), 0
    for unit, count in made:
        outputs = [file.file_id for file in changes.files[at : at + count]]
        at += count
        slices = [_slice(snapshot, group) for group in unit.groups]
        plan.append({"slices": slices, "outputs": outputs})
        for group in unit.groups:
            removed += snapshot.segment_ids[snapshot.file_groups.members(group)].tolist()
    return replace(changes, removed=removed, extra={"clustering_plan": plan})


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
    replaced = _replaced(kept)
    numbers = snapshot.file_groups.number([name for names in replaced.values() for name in names])
    gone = {
        int(s)
        for group in numbers.tolist()
        for s in snapshot.segment_ids[snapshot.file_groups.members(group)]
    }
    removed = [segment for segment in changes.removed if segment in gone]
    extra = {
        "clustering_plan": list(kept),
        "replaced": replaced,
        "left_out": left_out(changes, files),
    }
    return replace(changes, files=files, removed=removed, extra=extra)

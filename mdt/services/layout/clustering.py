"""Clustering: sort the rows of several file groups by columns or along a curve.

The rows are written to new file groups, and the old groups are replaced (Hudi's ``replacecommit``).
Rows keep their commit times. As with compaction, nothing is announced before the commit, because
version 6 readers take a pending instant for another writer's.

A plan consists of units (:mod:`mdt.services.layout.clustering_plan`). If another writer changes a
file group of a unit meanwhile, this unit and its new files are left out, and the rest commits.
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
from mdt.metadata.keys.buckets import key_placeholders
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.services.layout.arrangement import Arrangement, arrange, carried_rows
from mdt.services.layout.clustering_plan import Unit, units
from mdt.services.layout.repeated_keys import exclude_shared_keys
from mdt.services.layout.rewriting import Rewrite, RewriteRunner, in_process, left_out
from mdt.write.assign import NEW
from mdt.write.new_files import WriteJob, Written
from mdt.write.slice_files import collect
from mdt.write.slices import Carried, Slice


class NothingGained(Exception):
    """No unit of a plan would improve. Nothing was written."""


@dataclass(frozen=True, slots=True)
class ClusteringPlan(WritePlan):
    """A plan with the units to examine. A unit is rewritten only if that pays."""

    units: Sequence[Unit] = ()

    def moved(self) -> Sequence[int]:
        """Return the file groups of all units."""
        return [group for unit in self.units for group in unit.groups]


@dataclass(frozen=True, slots=True)
class Clustering(Operation[ClusteringPlan]):
    """The clustering operation.

    Attributes:
        by: Columns.
        curve: One of :data:`mdt.services.layout.curves.CURVES`.
        partitions: Paths, or None for all.
        progress: Called with the number of finished units and of all units.
        runner: Where rows are written.
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
        """Return the plan."""
        chosen = self._units(snapshot)
        groups = [group for unit in chosen for group in unit.groups]
        footprint = Footprint(txn, frozenset(snapshot.file_groups.names(groups)))
        partitions = sorted({unit.partition for unit in chosen})
        return ClusteringPlan(footprint, partitions, is_needed=bool(chosen), units=chosen)

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return the units with overlapping ranges."""
        candidates = units(snapshot, self.options, self.by, self.curve, self.partitions)
        return exclude_shared_keys(self.metadata, snapshot, candidates)

    def write(self, snapshot: Snapshot, plan: ClusteringPlan, claim: Claim) -> Changes:
        """Rewrite the units that improve. Raises NothingGained if there are none."""
        shared = WriteJob.for_claim(self.metadata, snapshot, self.options, claim)
        changes = self.runner(shared, self._rewrite(), plan.units, self.progress)
        entries = changes.extra.get("clustering_plan")
        if not entries:
            raise NothingGained
        return replace(changes, extra={"clustering_plan": entries, "replaced": _replaced(entries)})

    def _rewrite(self) -> Rewrite[Unit]:
        return partial(cluster_units, self.by, self.curve)

    def narrow(
        self, snapshot: Snapshot, plan: ClusteringPlan, changes: Changes, theirs: CommitRecord
    ) -> tuple[ClusteringPlan, Changes] | None:
        """Leave out the units with a file group that ``theirs`` changed.

        Returns None if nothing is left, or for another kind of conflict.
        """
        conflicting = plan.footprint.groups & theirs.changed_groups
        if not conflicting or plan.footprint.txn in theirs.rolled_back:
            return None
        entries = changes.extra["clustering_plan"]
        remaining = [
            unit
            for unit in entries
            if not conflicting.intersection(entry["fileId"] for entry in unit["slices"])
        ]
        if not remaining:
            return None
        footprint = replace(plan.footprint, groups=plan.footprint.groups - conflicting)
        return replace(plan, footprint=footprint), _only_units(snapshot, changes, remaining)


Rewritten = list[tuple[Unit, int]]
"""Rewritten units with their number of new files."""
Arrange = Callable[[WriteJob, Unit], Arrangement | None]
"""Function that returns the new order of a unit's rows, or None if they stay."""


def cluster_units(
    by: Sequence[str],
    curve: str,
    shared: WriteJob,
    units: Sequence[Unit],
    part: str,
    progress: Progress | None,
) -> Changes:
    """Rewrite the ``units`` that improve in a new order.

    With ``by`` and ``curve`` bound this is a :class:`mdt.services.layout.rewriting.Rewrite`.
    """

    def arrange_unit(job: WriteJob, unit: Unit) -> Arrangement | None:
        candidate = arrange(job.metadata, job.snapshot, job.options, unit, by, curve)
        return candidate if candidate.pays(len(unit.groups)) else None

    return rearrange(arrange_unit, shared, units, part, progress)


def rearrange(
    arrange_unit: Arrange,
    shared: WriteJob,
    units: Sequence[Unit],
    part: str,
    progress: Progress | None,
) -> Changes:
    """Rewrite the units that ``arrange_unit`` returns in a new order.

    Returns new files, removed files, and Hudi's plan.
    """
    rewritten: Rewritten = []
    written = _new_files(arrange_unit, shared, units, rewritten, progress)
    changes = collect(shared, written, threads=shared.options.threads("writer"), part=part)
    return _with_plan(shared.snapshot, changes, rewritten)


def _new_files(
    arrange_unit: Arrange,
    shared: WriteJob,
    units: Sequence[Unit],
    rewritten: Rewritten,
    progress: Progress | None,
) -> Iterator[Written]:
    """Yield the new files unit by unit. Adds every rewritten unit to ``rewritten``."""
    task = 0
    with ThreadPoolExecutor(shared.options.threads("writer")) as pool:
        for number, unit in enumerate(units, 1):
            new_order = arrange_unit(shared, unit)
            if new_order is not None:
                rewritten.append((unit, len(new_order.ends)))
                for rows in carried_rows(shared.metadata, shared.snapshot, unit, new_order, pool):
                    slices = [
                        Slice(
                            unit.partition, _placeholder(shared, unit, file_rows), carried=file_rows
                        )
                        for file_rows in rows
                    ]
                    shared.marked.mark(enumerate(slices, task))
                    yield from pool.map(shared.run, range(task, task + len(slices)), slices)
                    task += len(slices)
            if progress is not None:
                progress(number, len(units))


def _placeholder(shared: WriteJob, unit: Unit, rows: Carried) -> int:
    """Return the placeholder of the new file group for ``rows``: a new group, or that of their
    bucket.

    All rows of a unit have the same bucket.
    """
    if not has_buckets(shared.snapshot.definition.key_index):
        return NEW
    first = plain(rows()[0][RECORD_KEY].slice(0, 1))
    home = key_placeholders(
        shared.metadata, shared.snapshot, first, np.array([unit.partition], object)
    )
    return NEW if home is None else int(home[0])


def _with_plan(snapshot: Snapshot, changes: Changes, rewritten: Rewritten) -> Changes:
    """Add the removed files and Hudi's plan to ``changes``. Files are in the order of the units."""
    plan, removed, start = [], list(changes.removed), 0
    for unit, count in rewritten:
        outputs = [file.file_id for file in changes.files[start : start + count]]
        start += count
        slices = [_plan_entry(snapshot, group) for group in unit.groups]
        plan.append({"slices": slices, "outputs": outputs})
        for group in unit.groups:
            removed += snapshot.segment_ids[snapshot.file_groups.members(group)].tolist()
    return replace(changes, removed=removed, extra={"clustering_plan": plan})


def _plan_entry(snapshot: Snapshot, group: int) -> dict[str, Any]:
    """Return the entry of a file group in Hudi's clustering plan."""
    members = snapshot.files.segments(snapshot.file_groups.members(group))
    return {
        "dataFilePath": next((m.path for m in members if m.kind == BASE), None),
        "deltaFilePaths": [m.path for m in members if m.kind != BASE],
        "fileId": members[0].file_id,
        "partitionPath": members[0].partition,
    }


def _replaced(plan: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return partition path -> ids of the replaced file groups."""
    groups: dict[str, list[str]] = {}
    for unit in plan:
        for entry in unit["slices"]:
            groups.setdefault(entry["partitionPath"], []).append(entry["fileId"])
    return groups


def _only_units(
    snapshot: Snapshot, changes: Changes, entries: Sequence[Mapping[str, Any]]
) -> Changes:
    """Return the part of ``changes`` that belongs to the units of the plan ``entries``."""
    outputs = {name for unit in entries for name in unit["outputs"]}
    files = [file for file in changes.files if file.file_id in outputs]
    replaced = _replaced(entries)
    numbers = snapshot.file_groups.number([name for names in replaced.values() for name in names])
    segments = {
        int(s)
        for group in numbers.tolist()
        for s in snapshot.segment_ids[snapshot.file_groups.members(group)]
    }
    removed = [segment for segment in changes.removed if segment in segments]
    extra = {
        "clustering_plan": list(entries),
        "replaced": replaced,
        "left_out": left_out(changes, files),
    }
    return replace(changes, files=files, removed=removed, extra=extra)

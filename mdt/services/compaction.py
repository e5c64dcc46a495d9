"""Compaction: file slices with log files or deleted rows become new base files, planned, run and committed at once.

Version 6 readers hide the log files of a file group while its compaction is pending, so nothing is announced before
the commit.  A file group that another writer changed meanwhile is left out; the rest commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from indexes.base import KeyHashes
from mdt.commit.conflicts import Footprint
from mdt.commit.transaction import Changes, Claim
from mdt.config import Options
from mdt.metadata import paths
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.file_group import BASE
from mdt.metadata.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress, counted
from mdt.write.assign import REWRITE, Assignment
from mdt.write.files import job
from mdt.write.normalize import Batch
from mdt.write.operations import collect


@dataclass(frozen=True, slots=True)
class Slices:
    """The file groups to compact; see :class:`mdt.commit.transaction.Prepared`."""

    footprint: Footprint
    partitions: Sequence[str]
    counts: Mapping[str, int]
    groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class Compaction:
    """The operation.  ``progress`` is called with the number of finished file groups and of all."""

    metadata: Metadata
    options: Options
    progress: Progress | None = None
    name: str = "compact"
    action: str = "compaction"

    def prepare(self, snapshot: Snapshot, txn: str) -> Slices | None:
        """Return the file groups that hold log files or dead rows, None if there are none."""
        dirty = (snapshot.kind != BASE) | (snapshot.dead_rows > 0)
        groups = np.unique(snapshot.group_of[dirty]).tolist()
        if not groups:
            return None
        names = snapshot.file_groups.names(groups)
        partitions = sorted({snapshot.group_partition[g] for g in groups})
        return Slices(Footprint(txn, frozenset(names)), partitions, {}, groups)

    def write(self, snapshot: Snapshot, prepared: Slices, claim: Claim) -> Changes:
        """Write one base file for each file group."""
        shared = job(self.metadata, snapshot, self.options, claim, _no_rows(snapshot), Located.nothing())
        work = [Assignment(snapshot.group_partition[g], g, REWRITE) for g in prepared.groups]
        threads = self.options.threads("writer")
        with ThreadPoolExecutor(threads) as pool:
            done = counted(pool.map(shared.run, range(len(work)), work), len(work), self.progress)
            changes = collect(self.metadata, snapshot, claim, done, threads=threads)
        return replace(changes, extra={"compaction_plan": [_operation(snapshot, g) for g in prepared.groups]})

    def narrow(
        self, snapshot: Snapshot, prepared: Slices, changes: Changes, theirs: CommitRecord
    ) -> tuple[Slices, Changes] | None:
        """Leave out the file groups that ``theirs`` changed; None if nothing would be left or the conflict is another."""
        lost = prepared.footprint.groups.intersection(theirs.table("files")["file_id"].to_pylist())
        kept = [f for f in changes.files if f.file_id not in lost]
        if not lost or not kept or prepared.footprint.txn in theirs.rolled_back:
            return None
        numbers = {snapshot.group_number[name] for name in lost}
        gone = {int(s) for g in numbers for s in snapshot.segments[snapshot.members[g]]}
        left_out = [paths.partition_file(f.partition, f.name) for f in changes.files if f.file_id in lost]
        extra = {
            "compaction_plan": [o for o in changes.extra["compaction_plan"] if o["fileId"] not in lost],
            "left_out": [*changes.extra.get("left_out", ()), *left_out],
        }
        footprint = replace(prepared.footprint, groups=prepared.footprint.groups - lost)
        groups = [g for g in prepared.groups if g not in numbers]
        removed = [s for s in changes.removed if s not in gone]
        return (
            replace(prepared, footprint=footprint, groups=groups),
            replace(changes, files=kept, removed=removed, extra=extra),
        )


def _no_rows(snapshot: Snapshot) -> Batch:
    nothing = np.empty(0, np.int64)
    words = np.empty(0, np.uint64)
    ordering = None if snapshot.definition.ordering is None else words
    table = snapshot.definition.schema.empty_table()
    return Batch(table, *2 * (pa.array([], pa.string()),), KeyHashes(words, words), nothing, (), ordering)


def _operation(snapshot: Snapshot, group: int) -> dict[str, object]:
    """Return what Hudi's compaction plan says of one file group."""
    members = snapshot.files.segments(snapshot.members[group])
    return {
        "baseInstantTime": members[0].base_instant,
        "deltaFilePaths": [m.name for m in members if m.kind != BASE],
        "dataFilePath": next((m.name for m in members if m.kind == BASE), None),
        "fileId": members[0].file_id,
        "partitionPath": members[0].partition,
    }

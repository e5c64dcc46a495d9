"""Purge: remove every byte of deleted or replaced rows from all files of a table.

Such bytes are in old data files and log blocks, in key maps and summaries that share an object with
those of other files, in bounds of key parts and statistics, in tombstones, in records and in
checkpoints. So every file group is rewritten unless it consists of new rows of one commit. File
groups that share an object with a rewritten group are rewritten too. Then all earlier states are
cleaned, and their records archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import numbers
from indexes.base import BoolArray, Int64Array
from mdt.commit import claims, hudi_metadata
from mdt.commit.conflicts import Footprint
from mdt.commit.metadata_partitions import remove_metadata_table
from mdt.commit.operation import Changes, Claim, Operation, P, WritePlan
from mdt.commit.recovery import leftover_files, recover, sweep
from mdt.commit.transaction import CommitResult, run
from mdt.config import Options
from mdt.errors import Conflict
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import has_tombstones
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.services.history.tagging import DropTag
from mdt.services.layout.arrangement import Arrangement, members
from mdt.services.layout.clustering import Clustering, rearrange
from mdt.services.layout.clustering_plan import Unit, single_units
from mdt.services.layout.rewriting import Rewrite
from mdt.services.reclaiming import archiving
from mdt.services.reclaiming.cleaning import Clean
from mdt.write.new_files import WriteJob
from mdt.write.written_bytes import count_written, estimate


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge.

    Attributes:
        ended: (first, last) seq of the states that are no longer readable, or None.
        groups, bytes: Number of rewritten file groups, and the size of their new files.
        objects: Data files and other objects deleted.
        records: Commit records removed.

    >>> t.purge().groups
    0
    """

    ended: tuple[int, int] | None
    groups: int
    objects: int
    records: int
    bytes: int = 0

    def __str__(self) -> str:
        ended = (
            "no state"
            if self.ended is None
            else f"the states after commits {self.ended[0]} to {self.ended[1]}"
        )
        anew = f"{self.groups} file groups of {self.bytes:,} bytes rewritten"
        return f"{ended} ended; {anew}, {self.objects} objects and {self.records} records removed"


class PurgeRewrite(Clustering):
    """The operation that rewrites file groups which may contain bytes of deleted rows.

    Rows keep their order.
    """

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return a unit for each file group."""
        return single_units(snapshot, tainted(self.metadata, snapshot).tolist())

    def _rewrite(self) -> Rewrite[Unit]:
        return partial(rearrange, _keep_order)

    def narrow(self, *arguments: object) -> None:
        """Start again, because another writer's changes may have to be purged too."""
        return


@dataclass(frozen=True, slots=True)
class ForgetDeletes(Operation[WritePlan]):
    """The operation that drops all tombstones: hashes and ordering values of deleted keys."""

    action: str
    name: str = "forget_deletes"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return a plan, which is needed if there are tombstones."""
        return WritePlan(Footprint(txn), is_needed=has_tombstones(snapshot))

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the record's fields. Writes no files."""
        return Changes(extra={"forgets_deletes": True})


def _keep_order(shared: WriteJob, unit: Unit) -> Arrangement:
    files = members(shared.snapshot, unit)
    rows = int(shared.snapshot.live_rows[files].sum())
    return Arrangement(
        np.arange(rows, dtype=np.int64), np.array([rows] if rows else [], np.int64), 0.0, 0.0
    )


def tainted(metadata: Metadata, snapshot: Snapshot) -> Int64Array:
    """Return the file groups that may contain bytes of deleted rows (int64[n], ascending).

    A group is clean if it has one base file of the newest schema version with rows, all its rows
    are live and were inserted with that file, and the objects that it shares with other groups
    contain nothing else.
    """
    files = snapshot.live_numbers
    group = snapshot.file_groups.of_files(files)
    inserts, rows = snapshot.files.numpy("inserts")[files], snapshot.rows[files]
    is_pure = (snapshot.kind[files] == BASE) & (snapshot.dead_rows[files] == 0) & (inserts == rows)
    is_pure &= rows > 0  # the group of a file without rows has bounds of earlier keys
    versions = snapshot.definition.versions
    is_pure &= (
        snapshot.segment_ids[files]
        >= (versions[-1].since if versions else 0) * SEGMENTS_PER_COMMIT_MAX
    )
    is_pure &= np.bincount(group, minlength=snapshot.file_groups.count)[group] == 1
    shared = _shared_objects(snapshot)
    is_tainted: BoolArray = np.zeros(snapshot.file_groups.count, np.bool_)
    is_tainted[group[~is_pure]] = True
    bad = _objects_with_dead_bytes(metadata, shared)
    while True:
        shared_groups = numbers(shared["group"])
        tainted_paths = pc.unique(
            pc.filter(shared["path"], pa.array(is_tainted[shared_groups]))
        ).to_pylist()
        is_bad = np.asarray(pc.is_in(shared["path"], pa.array([*tainted_paths, *bad], pa.string())))
        grown = is_tainted.copy()
        grown[shared_groups[is_bad]] = True
        if np.array_equal(grown, is_tainted):
            return np.flatnonzero(is_tainted)
        is_tainted = grown


def _shared_objects(snapshot: Snapshot) -> pa.Table:
    """Return the ranges of live file groups in shared objects.

    The columns are ``group``, ``path`` and ``bytes``, with a row for each range and group.
    """
    files = snapshot.live_numbers
    group = snapshot.file_groups.of_files(files)
    maps = snapshot.files.take(["key_map_path", "key_map_length", "page_map_length"], files)
    parts = [
        _range_rows(group, maps["key_map_path"], maps["key_map_length"]),
        _range_rows(group, maps["key_map_path"], maps["page_map_length"]),
    ]
    shard = snapshot.shards.of_file[files]
    for spec in snapshot.definition.indexes:
        summaries = snapshot.summary_table(spec).take(pa.array(shard))
        first = np.zeros(len(shard), np.bool_)
        first[np.unique(shard, return_index=True)[1]] = True
        once = pc.if_else(pa.array(first), summaries["length"], 0)
        parts.append(_range_rows(group, summaries["path"], once))
    for part in snapshot.key_parts:
        if part.stored is not None:
            groups = snapshot.key_part_groups(part)
            groups = groups[groups >= 0]
            length = np.zeros(len(groups), np.int64)
            length[:1] = part.stored.length
            parts.append(
                _range_rows(
                    groups,
                    pa.array([part.stored.path] * len(groups), pa.string()),
                    pa.array(length),
                )
            )
    table = pa.concat_tables(parts)
    return table.filter(table["path"].is_valid())


def _range_rows(group: Int64Array, path: pa.Array, length: pa.Array) -> pa.Table:
    """Return rows of :func:`_shared_objects`. Ranges are padded to a multiple of 8 bytes."""
    size = numbers(length.fill_null(0))
    return pa.table(
        {
            "group": pa.array(group, pa.int64()),
            "path": path,
            "bytes": pa.array(-(-size // 8) * 8, pa.int64()),
        }
    )


def _objects_with_dead_bytes(metadata: Metadata, shared: pa.Table) -> list[str]:
    """Return objects that are larger than the ranges in use by live files, shards and key parts."""
    sizes = {info.path: info.size for info in metadata.storage.list(paths.ATTACHMENTS_DIR)}
    used = shared.group_by("path").aggregate([("bytes", "sum")]).to_pylist()
    return [row["path"] for row in used if sizes.get(row["path"], 0) > row["bytes_sum"]]


def purge(metadata: Metadata, options: Options, progress: Progress | None = None) -> PurgeReport:
    """Remove all bytes of rows that are not live; see :meth:`mdt.table.Table.purge`."""
    before = metadata.newest()
    _require_no_transactions(metadata)
    rewritten = _commit(
        metadata, options, PurgeRewrite(metadata, options, (), "sort", None, progress)
    )
    forgot = _commit(metadata, options, ForgetDeletes(before.definition.commit_action))
    for name in metadata.newest().tags.seqs:
        _commit(metadata, options, DropTag(name))
    removed = 0
    if rewritten.record is not None or forgot.record is not None or not _has_no_history(metadata):
        if hudi_metadata.is_kept(metadata.newest()):
            remove_metadata_table(metadata)  # which has bounds and keys, and is made again
        # Twice, because the log begins after the older of two checkpoints, and both must contain
        # only the newest state.
        for _ in range(2):
            last = metadata.compact(whole=True).seq
            clean = Clean(metadata, options, horizon=last, records_min=1, heeds_leases=False)
            removed += len(_commit(metadata, options, clean).plan.files)
    _finish_own_commit(metadata, options)
    _require_no_transactions(metadata)
    removed += sweep(metadata)
    records = archiving.archive(metadata)
    horizon = metadata.newest().retention.horizon
    ended = (before.retention.horizon, before.seq) if before.seq < horizon else None
    size = 0 if rewritten.record is None else count_written(rewritten.record).bytes
    return PurgeReport(ended, len(rewritten.plan.units), removed, records, size)


def plan(metadata: Metadata, options: Options) -> PurgeReport:
    """Return the approximate result of :func:`purge`. Changes nothing.

    Shared objects that are rewritten are not counted, only their files.
    """
    snapshot = metadata.newest()
    _require_no_transactions(metadata)
    planned = PurgeRewrite(metadata, options, (), "sort", None).prepare(snapshot, "")
    if not (planned.is_needed or has_tombstones(snapshot) or not _has_no_history(metadata)):
        return PurgeReport(None, 0, len(leftover_files(metadata)), 0)
    garbage = leftover_files(metadata, replace(snapshot.retention, horizon=snapshot.seq))
    files = sum(len(snapshot.file_groups.members(group)) for group in planned.moved())
    ended = (snapshot.retention.horizon, snapshot.seq)
    return PurgeReport(
        ended,
        len(planned.units),
        len(garbage) + files,
        len(snapshot.history),
        estimate(snapshot, planned).bytes,
    )


def _commit(metadata: Metadata, options: Options, operation: Operation[P]) -> CommitResult[P]:
    """Run ``operation``, and finish work that failed after its commit."""
    result = run(metadata, operation, attempts=options.commit_attempts)
    if result.warnings:
        _finish_own_commit(metadata, options)
    return result


def _finish_own_commit(metadata: Metadata, options: Options) -> None:
    """Drop the claim of our own commit if work failed after it.

    Otherwise the claim would hold back the cleaning, and look like another writer's transaction.
    """
    recover(metadata, after_seconds=options.rollback_after_seconds or 1)


def _has_no_history(metadata: Metadata) -> bool:
    """Return True if no record or checkpoint of an earlier state exists, except records of
    cleanings.
    """
    snapshot = metadata.newest()
    oldest = snapshot.retention.first
    if not oldest or snapshot.tags.seqs or set(snapshot.history["action"].to_pylist()) != {"clean"}:
        return False
    seqs = [paths.seq_of(info.path) for info in metadata.storage.list_dir(paths.LOG_DIR)]
    return min(metadata.checkpoints.listed()) >= oldest - 1 and all(
        seq is None or seq >= oldest for seq in seqs
    )


def _require_no_transactions(metadata: Metadata) -> None:
    """Raise Conflict if a transaction is running, because it may need objects to be deleted."""
    running: Sequence[str] = [claim.instant for claim in claims.read_all(metadata.storage)[0]]
    if running:
        raise Conflict(
            f"a purge cannot run while transactions are running: {', '.join(running[:3])}",
            hint="wait for them, or abort them if their writers died",
        )

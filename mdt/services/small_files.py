"""What keeps the number of live files low when commits are small: steps that a table does by itself after a write.

Log files: those of about one size become one, where there are many in a file group, so that each row is moved once for every size.  When log
files or dead rows have become a part of the group that is worth reading all of it, or a smaller part in so many commits that one rewriting
hardly counts, or the group is small anyway, it gets a base file instead.
Joining: file groups that inserts have made are joined where there are many of about the same size, in the order of their keys.

Law: when the steps have nothing to do, a file group has less than ``LOGS_FACTOR * mdt.compact.log.files`` log files, and a partition less than
JOINED_MIN file groups of each of SIZES sizes, besides those that are not small (:func:`small_bytes`).  So a partition of s bytes has at most
``(JOINED_MIN * SIZES + s / small_bytes) * (1 + log files)`` live files, however many commits made it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mdt.commit.conflicts import Footprint
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.metadata.key_indexes import has_buckets
from mdt.metadata.live_partitions import live_paths
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.services.clustering import Clustering, ClusteringPlan
from mdt.services.clustering_plan import Unit
from mdt.services.compaction import Compaction
from mdt.services.compaction_strategies import Dirty, dirty
from mdt.services.curves import SORT
from mdt.services.cutting import Cutting, parts
from mdt.services.log_compaction import LogCompaction, joined, size_of
from mdt.services.repeated_keys import apart

BUDGET_BYTES = 64 << 20
"""Bytes that one step reads at most, unless a single file group has more."""
_BUDGET_BYTES_MIN = 1 << 20
_BUDGET_SHARE = 16
"""Part of the memory of writes (``mdt.write.memory.max``) that they are at most: a step takes place in the process of a writer, and log files take some ten times their bytes."""
STEP_BYTES = 16 << 20
STEP_TIMES = 12
"""A compaction after a write reads no more than this, or so many times what the write has written if that is more: so it follows the writes, and
each pays for its part."""
REWRITTEN_BYTES_MAX = 1 << 20
"""A file group of so many bytes is rewritten as quickly as its log files are joined."""
LOG_SHARE = 5
"""A file group is compacted when log files have this part of its bytes, or dead rows this part of its rows: so each byte of a log file costs
five of a base file once, and readers read a quarter more than they must at most."""
PAID_TIMES = 4
PAID_BYTES = 100 << 10
"""It is compacted from a part on that is so many times smaller, too, when its commits have paid for that: each for so many bytes, a fifth of what it costs itself.
A commit of a few rows costs as much as half a MiB of a base file; one of many rows does not pay more, and waits for LOG_SHARE."""
LOGS_FACTOR = 6
"""Times ``mdt.compact.log.files`` of log files that a file group may have: they are of some four sizes, and those with deletes cannot be joined."""
JOINED_MIN = 8
"""File groups of a size that are joined; fewer would move rows more often, more would be more files."""
SIZES = 6
_ROW_OPERATIONS = ("upsert", "insert", "insert_unchecked")


# Log files


def compact(metadata: Metadata, snapshot: Snapshot, options: Options, *, everywhere: bool = False) -> bool:
    """Give a base file to the file groups where that pays, the worst first; return whether any was due.

    ``everywhere``: whether to look at all groups, and not only at those that the newest commit has changed.
    """
    groups = _with_many_logs(metadata, snapshot, options, everywhere)

    def due(found: Dirty) -> npt.NDArray[np.float64]:
        limit = options.compact_log_files
        is_small = found.bytes <= REWRITTEN_BYTES_MAX
        is_paid = found.commits * PAID_BYTES >= found.bytes
        times = np.where(is_paid, PAID_TIMES * LOG_SHARE, LOG_SHARE)
        pays = (found.log_bytes * times >= found.bytes) | (found.dead * times >= found.rows)
        is_due = (found.log_files >= limit) & (is_small | pays | (found.log_files >= LOGS_FACTOR * limit))
        return np.where(is_due, found.log_files, np.nan)

    found = dirty(snapshot, groups) if groups else None
    if found is None or np.isnan(due(found)).all():
        return False
    cutting = _cutting(metadata, snapshot, options, found.taken(np.flatnonzero(due(found) >= 0)))
    if cutting is not None:
        return run(metadata, cutting, attempts=options.commit_attempts).record is not None
    budget = budget_bytes(options) if everywhere else max(STEP_BYTES, STEP_TIMES * _written(metadata, snapshot))
    operation = Compaction(metadata, options, strategy=due, budget_bytes=budget)
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


def _cutting(metadata: Metadata, snapshot: Snapshot, options: Options, due: Dirty) -> Cutting | None:
    """Return the cutting of the largest file group that is to be cut, of those that are ``due``; None if none is.

    File groups of buckets stay whole: their keys belong together.
    """
    if has_buckets(snapshot.definition.key_index):
        return None
    count = parts(due)
    if snapshot.definition.keys_repeat or count.max() == 1:
        return None
    largest = int(np.argmax(np.where(count > 1, due.bytes, 0)))
    names = snapshot.file_groups.names(due.group[largest : largest + 1].tolist())
    options = replace(options, max_file_bytes=int(due.bytes[largest] // count[largest]))
    return Cutting(metadata, options, snapshot.definition.key, SORT, names=names)


def _written(metadata: Metadata, snapshot: Snapshot) -> int:
    """Return the bytes of data files that the newest commit has written."""
    record = metadata.record(snapshot.seq)
    return 0 if record is None else sum(record.table("files")["size"].to_pylist())


def compact_logs(metadata: Metadata, snapshot: Snapshot, options: Options, *, everywhere: bool = False) -> bool:
    """Join log files of about one size in the file groups that have many; return whether any were.

    ``everywhere``: as for :func:`compact`.  A step after a commit joins those of some of its file groups, with the most log files: as many
    as become due when every such commit changes as many.
    """
    least = options.compact_log_files
    groups = _with_many_logs(metadata, snapshot, options, everywhere)
    groups = [group for group in groups if joined(snapshot, group, least)]
    if not groups:
        return False
    if not everywhere:
        groups = groups[: -(-2 * len(_changed(metadata, snapshot)) // least)]
    operation = LogCompaction(metadata, options, names=snapshot.file_groups.names(groups), least=least)
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


def _with_many_logs(metadata: Metadata, snapshot: Snapshot, options: Options, everywhere: bool) -> list[int]:
    """Return the file groups with enough log files to be looked at, those with the most first."""
    if not snapshot.definition.is_mor:
        return []
    if everywhere:
        found = dirty(snapshot)
        logs = dict(zip(found.group.tolist(), found.log_files.tolist(), strict=True))
    else:
        logs = {group: snapshot.file_groups.group(group).logs for group in _changed(metadata, snapshot)}
    many = [group for group, count in logs.items() if count >= options.compact_log_files]
    return sorted(many, key=lambda group: (-logs[group], group))


def _changed(metadata: Metadata, snapshot: Snapshot) -> list[int]:
    """Return the file groups that the newest commit has changed."""
    record = metadata.record(snapshot.seq)
    if record is None:
        return []
    numbers = snapshot.file_groups.number(sorted(record.changed_groups))
    return [int(number) for number in numbers.tolist() if number >= 0]


# Joining


@dataclass(frozen=True, slots=True)
class Joining(Clustering):
    """A clustering of the file groups of about the same size, where there are many."""

    def prepare(self, snapshot: Snapshot, txn: str) -> ClusteringPlan:
        """Return the units: of each partition the groups of a size."""
        names = live_paths(snapshot) if self.partitions is None else self.partitions
        found = apart(self.metadata, snapshot, [u for name in names for u in _joined(snapshot, self.options, name)])
        groups = snapshot.file_groups.names([group for unit in found for group in unit.groups])
        partitions = sorted({unit.partition for unit in found})
        return ClusteringPlan(Footprint(txn, frozenset(groups)), partitions, is_needed=bool(found), units=found)


def join(metadata: Metadata, snapshot: Snapshot, options: Options, *, everywhere: bool = False) -> bool:
    """Join small file groups of a partition where there are many of a size; return whether any were.

    ``everywhere``: whether to look at all partitions, and not only at those where the newest commit has made file groups.
    Off where inserts never fill small files, and where they go to the file group of their bucket.
    """
    record = metadata.record(snapshot.seq)
    if not options.small_file_bytes or record is None or has_buckets(snapshot.definition.key_index):
        return False
    partitions: list[str] | None = None
    if not everywhere:
        if record.header["operation"] not in _ROW_OPERATIONS:
            return False
        partitions = sorted(set(record.table("files")["partition"].to_pylist()))
        if not any(_joined(snapshot, options, name) for name in partitions):
            return False
    operation = Joining(metadata, options, snapshot.definition.key, SORT, partitions)
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


def _joined(snapshot: Snapshot, options: Options, partition: str) -> list[Unit]:
    """Return the units to join in one partition.  O(small groups)."""
    by_size: dict[int, list[int]] = {}
    total: dict[int, int] = {}
    for small in snapshot.file_groups.small(partition, small_bytes(options)):
        size = size_of(small.bytes)
        total[size] = total.get(size, 0) + small.bytes
        if total[size] <= budget_bytes(options):
            by_size.setdefault(size, []).append(small.group)
    return [Unit(partition, tuple(groups)) for groups in by_size.values() if len(groups) >= JOINED_MIN]


def small_bytes(options: Options) -> int:
    """Return from how many bytes on a file group is not joined any more."""
    return min(budget_bytes(options) // JOINED_MIN, options.max_file_bytes // 2)


def budget_bytes(options: Options) -> int:
    """Return how many bytes one step reads at most, unless a single file group has more."""
    return min(BUDGET_BYTES, max(_BUDGET_BYTES_MIN, options.write_memory_max // _BUDGET_SHARE))

"""What keeps the number of live files low when commits are small: steps that a table does by itself after a write.

Compaction: a file group with many log files gets a base file.  It waits the longer the larger it is, so that what a step costs is shared by
the commits since the last one.  Joining: file groups that inserts have made are joined where there are many of about the same size, in the
order of their keys, so that each row is moved once for every size.

Law: when both steps have nothing to do, a file group of b bytes has less than :func:`log_files_max` log files, and a partition less than
JOINED_MIN file groups of each of SIZES sizes, besides those that are not small (:func:`small_bytes`).  So a partition of s bytes has at most
``(JOINED_MIN * SIZES + s / small_bytes) * (1 + log files) + s / LOG_FILE_BYTES`` live files, however many commits made it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mdt.commit.conflicts import Footprint
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.services.clustering import Clustering, ClusteringPlan
from mdt.services.clustering_plan import Unit
from mdt.services.compaction import Compaction
from mdt.services.compaction_strategies import Dirty
from mdt.services.curves import SORT
from mdt.services.partitions import partitioned

BUDGET_BYTES = 64 << 20
"""Bytes that one step reads at most, unless a single file group has more."""
LOG_FILE_BYTES = 4 << 20
"""Bytes of a file group that are worth a log file more: reading them costs as much as opening it."""
JOINED_MIN = 8
"""File groups of a size that are joined; fewer would move rows more often, more would be more files."""
SIZES = 6
_SMALLEST_BYTES = 1 << 13
"""Groups below have the first size; those of each further size have up to four times as many bytes."""
_ROW_OPERATIONS = ("upsert", "insert")


def log_files_max(options: Options, size: int) -> int:
    """Return how many log files make a file group of ``size`` bytes due."""
    return max(options.compact_log_files, size // LOG_FILE_BYTES)


# Compaction


def compact(metadata: Metadata, options: Options, *, everywhere: bool = False) -> bool:
    """Compact the file groups that have too many log files, the worst first; return whether any was.

    ``everywhere``: whether to look at all groups, and not only at those that the newest commit has changed.
    """
    snapshot = metadata.newest(watched=False)
    if not snapshot.definition.is_mor or not (everywhere or _is_changed_due(metadata, snapshot, options)):
        return False

    def due(found: Dirty) -> npt.NDArray[np.float64]:
        limit = np.maximum(options.compact_log_files, found.bytes // LOG_FILE_BYTES)
        return np.where(found.log_files >= limit, found.log_files, np.nan)

    operation = Compaction(metadata, options, strategy=due, budget_bytes=BUDGET_BYTES)
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


def _is_changed_due(metadata: Metadata, snapshot: Snapshot, options: Options) -> bool:
    record = metadata.record(snapshot.seq)
    if record is None:
        return False
    numbers = snapshot.file_groups.number(sorted(record.changed_groups))
    groups = [snapshot.file_groups.group(number) for number in numbers[numbers >= 0].tolist()]
    return any(group.logs >= log_files_max(options, group.bytes) for group in groups)


# Joining


@dataclass(frozen=True, slots=True)
class Joining(Clustering):
    """A clustering of the file groups of about the same size, where there are many."""

    def prepare(self, snapshot: Snapshot, txn: str) -> ClusteringPlan:
        """Return the units: of each partition the groups of a size."""
        names = list(partitioned(snapshot)[1]) if self.partitions is None else self.partitions
        found = [unit for name in names for unit in _joined(snapshot, self.options, name)]
        groups = snapshot.file_groups.names([group for unit in found for group in unit.groups])
        partitions = sorted({unit.partition for unit in found})
        return ClusteringPlan(Footprint(txn, frozenset(groups)), partitions, is_needed=bool(found), units=found)


def join(metadata: Metadata, options: Options, *, everywhere: bool = False) -> bool:
    """Join small file groups of a partition where there are many of a size; return whether any were.

    ``everywhere``: whether to look at all partitions, and not only at those where the newest commit has made file groups.
    Off where inserts never fill small files.
    """
    snapshot = metadata.newest(watched=False)
    record = metadata.record(snapshot.seq)
    if not options.small_file_bytes or record is None:
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
        size = _size(small.bytes)
        total[size] = total.get(size, 0) + small.bytes
        if total[size] <= BUDGET_BYTES:
            by_size.setdefault(size, []).append(small.group)
    return [Unit(partition, tuple(groups)) for groups in by_size.values() if len(groups) >= JOINED_MIN]


def small_bytes(options: Options) -> int:
    """Return from how many bytes on a file group is not joined any more."""
    return min(BUDGET_BYTES // JOINED_MIN, options.max_file_bytes // 2)


def _size(bytes: int) -> int:
    """Return the number of a size: 0 for the smallest groups, and one more for each four times as large."""
    return ((bytes // _SMALLEST_BYTES).bit_length() + 1) // 2

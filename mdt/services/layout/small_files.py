"""Automatic steps that keep the number of live files low when commits are small.

Log files: if a file group has many log files of about the same size, they are merged into one, so
each row is moved once per size class. The group gets a new base file instead if log files or
deleted rows are a large share of it, if many commits have paid for a rewrite of a smaller share, or
if the group is small.

Joining: if a partition has many small file groups of about the same size, they are joined in the
order of their keys.

Bound: if no work is overdue (:mod:`mdt.services.layout.budget`), a file group has fewer than
``LOGS_FACTOR * mdt.compact.log.files`` log files. A partition has fewer than ``OVERDUE *
JOINED_MIN`` small file groups (:func:`small_bytes`) of each of SIZES size classes. So a partition
of s bytes has at most ``(OVERDUE * JOINED_MIN * SIZES + s / small_bytes) * (1 + log files)`` live
files, however many commits wrote it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from indexes.base import Int64Array
from mdt.commit.operation import Operation
from mdt.config import Options
from mdt.metadata.key_indexes import has_buckets
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.file_groups import Small
from mdt.metadata.snapshot.live_partitions import live_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.budget import (
    FILE_BYTES,
    NOTHING,
    OVERDUE,
    Outcome,
    Scope,
    affordable,
    everywhere,
    run_or_plan,
    step_bytes,
)
from mdt.services.layout.clustering import Clustering
from mdt.services.layout.clustering_plan import Unit
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.compaction_strategies import Dirty, dirty
from mdt.services.layout.curves import SORT
from mdt.services.layout.log_compaction import LogCompaction, files_to_merge, size_class
from mdt.services.layout.repeated_keys import exclude_shared_keys
from mdt.services.layout.split_groups import PART_BYTES, SplitGroups, part_counts

REWRITTEN_BYTES_MAX = 1 << 20
"""Size up to which rewriting a file group is as fast as merging its log files."""
LOG_SHARE = 5
"""A file group is due for compaction if log files make up 1/LOG_SHARE of its bytes, or deleted rows
1/LOG_SHARE of its rows. So each byte of a log file causes five bytes of rewriting once, and readers
read at most a quarter more than necessary.
"""
PAID_TIMES = 4
PAID_BYTES = 100 << 10
"""A file group is due at a share PAID_TIMES smaller if its commits have paid for the rewrite, each
for PAID_BYTES, a fifth of its own cost. A commit of a few rows costs as much as half a MiB of a
base file. A commit of many rows does not pay more, and waits for LOG_SHARE.
"""
JOINED_SHARE_MIN = 8
"""Log files with at least 1/JOINED_SHARE_MIN of the bytes of their file group are not merged,
because the group is compacted soon.
"""
LOGS_FACTOR = 6
"""Compaction of a file group is overdue at this multiple of ``mdt.compact.log.files`` log files.
Log files fall into about four size classes, and log files with deletes cannot be merged.
"""
JOINED_MIN = 8
"""File groups of a size class that are joined. Fewer would move rows more often, more would leave
more files.
"""
JOINED_COUNT_MIN = 2
"""Minimum number of file groups to join if more would exceed PART_BYTES together."""
SIZES = 6


# Log files


def compact(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Compact the file groups that need it most."""
    groups = _with_many_logs(snapshot, options, scope.names)
    if not groups:
        return NOTHING
    candidates = dirty(snapshot, groups)
    need, cost = (
        compaction_need(candidates, options),
        candidates.bytes + FILE_BYTES * candidates.log_files,
    )
    chosen = affordable(need, cost, scope)
    if not chosen:
        return Outcome(is_left=bool((need >= 1).any()))
    count = _part_counts(snapshot, candidates)
    if count[chosen[0]] > 1:
        chosen = chosen[:1]
        operation: Operation[Any] = _split(
            metadata, snapshot, options, candidates, chosen[0], int(count[chosen[0]])
        )
    else:
        chosen = [position for position in chosen if count[position] == 1]
        names = snapshot.file_groups.names(candidates.group[chosen].tolist())
        operation = Compaction(metadata, options, names=names)
    is_done = run_or_plan(metadata, operation, options, scope)
    return Outcome(is_done, int((need >= 1).sum()) > len(chosen), int(cost[chosen].sum()))


def compaction_need(groups: Dirty, options: Options) -> npt.NDArray[np.float64]:
    """Return the need of compaction of n file groups (float64[n]).

    1 means that compaction pays. NaN means that there are too few log files.
    """
    limit = options.compact_log_files
    is_paid = groups.commits * PAID_BYTES >= groups.bytes
    times = np.where(is_paid, PAID_TIMES * LOG_SHARE, LOG_SHARE)
    share = (
        np.maximum(groups.log_bytes / groups.bytes.clip(1), groups.dead / groups.rows.clip(1))
        * times
    )
    if_small = np.where(groups.bytes <= REWRITTEN_BYTES_MAX, groups.log_files / limit, 0)
    many = OVERDUE * groups.log_files / (LOGS_FACTOR * limit)
    return np.where(groups.log_files >= limit, np.maximum.reduce([share, if_small, many]), np.nan)


def _part_counts(snapshot: Snapshot, groups: Dirty) -> Int64Array:
    """Return the number of groups into which each group is split, 1 for a plain compaction.

    Groups of buckets and groups that may share keys are never split.
    """
    if has_buckets(snapshot.definition.key_index) or snapshot.definition.keys_repeat:
        return np.ones(len(groups.group), np.int64)
    return part_counts(groups)


def _split(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    groups: Dirty,
    position: int,
    count: int,
) -> SplitGroups:
    names = snapshot.file_groups.names([int(groups.group[position])])
    options = replace(options, max_file_bytes=int(groups.bytes[position]) // count)
    return SplitGroups(metadata, options, snapshot.definition.key, SORT, names=names)


def compact_logs(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Merge log files of about the same size in the file groups with the most of them."""
    least = options.compact_log_files
    groups = _with_many_logs(snapshot, options, scope.names)
    logs = [files_to_merge(snapshot, group, least) for group in groups]
    bytes = [snapshot.file_groups.group(group).bytes for group in groups]
    size = snapshot.files.numpy("size") if groups else np.empty(0, np.int64)
    log_bytes = [int(size[files].sum()) for files in logs]
    cost = [total + FILE_BYTES * len(files) for total, files in zip(log_bytes, logs, strict=True)]
    need = np.array([len(files) / max(least, 2) for files in logs])
    need[np.array(log_bytes) * JOINED_SHARE_MIN >= np.array(bytes)] = 0
    chosen = affordable(need, cost, scope)
    if not chosen:
        return Outcome(is_left=bool((need >= 1).any()))
    names = snapshot.file_groups.names([groups[position] for position in chosen])
    operation = LogCompaction(metadata, options, names=names, least=least)
    is_done = run_or_plan(metadata, operation, options, scope)
    return Outcome(
        is_done, int((need >= 1).sum()) > len(chosen), sum(cost[position] for position in chosen)
    )


def with_many_logs(snapshot: Snapshot, options: Options, names: AbstractSet[str]) -> set[str]:
    """Return the ``names`` of file groups with at least ``mdt.compact.log.files`` log files."""
    return set(snapshot.file_groups.names(_with_many_logs(snapshot, options, names)))


def _with_many_logs(
    snapshot: Snapshot, options: Options, names: AbstractSet[str] | None
) -> list[int]:
    """Return the numbers of file groups with at least ``mdt.compact.log.files`` log files.

    ``names`` restricts the search. None searches all groups.
    """
    if not snapshot.definition.is_mor:
        return []
    if names is None:
        candidates = dirty(snapshot)
        return candidates.group[candidates.log_files >= options.compact_log_files].tolist()
    numbers = snapshot.file_groups.number(sorted(names))
    groups = numbers[numbers >= 0].tolist()
    return [
        group
        for group in groups
        if snapshot.file_groups.group(group).logs >= options.compact_log_files
    ]


# Joining


@dataclass(frozen=True, slots=True)
class JoinGroups(Clustering):
    """A clustering that joins file groups of about the same size.

    ``scope`` None means the whole table.
    """

    scope: Scope | None = None

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return the groups of a size class of each partition."""
        units, _, _ = joinable(snapshot, self.options, self.scope or everywhere(self.options))
        return exclude_shared_keys(self.metadata, snapshot, units)


def join(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Join small file groups of a partition if there are many of a size class.

    Disabled if inserts never fill small files, and in tables with a bucket index.
    """
    if not options.small_file_bytes or has_buckets(snapshot.definition.key_index):
        return NOTHING
    units, cost, is_left = joinable(snapshot, options, scope)
    if not units:
        return Outcome(is_left=is_left)
    operation = JoinGroups(metadata, options, snapshot.definition.key, SORT, scope=scope)
    is_done = run_or_plan(metadata, operation, options, scope)
    return Outcome(is_done, is_left, cost)


def joinable(snapshot: Snapshot, options: Options, scope: Scope) -> tuple[list[Unit], int, bool]:
    """Return (units to join in a step, their cost in bytes, True if more are due).

    O(small groups).
    """
    partitions = live_paths(snapshot) if scope.partitions is None else sorted(scope.partitions)
    candidates = [
        candidate for name in partitions for candidate in _small_units(snapshot, options, name)
    ]
    need, cost = np.array([need for _, need, _ in candidates]), [cost for _, _, cost in candidates]
    chosen = affordable(need, cost, scope)
    return (
        [candidates[position][0] for position in chosen],
        sum(cost[position] for position in chosen),
        int((need >= 1).sum()) > len(chosen),
    )


def _small_units(
    snapshot: Snapshot, options: Options, partition: str
) -> list[tuple[Unit, float, int]]:
    """Return a unit of the smallest groups of each size class in a partition.

    Each item is (unit, need, cost in bytes).
    """
    by_size: dict[int, list[Small]] = {}
    for small in snapshot.file_groups.small(partition, small_bytes(options)):
        by_size.setdefault(size_class(small.bytes), []).append(small)
    units = []
    for groups in by_size.values():
        total = np.cumsum([small.bytes + FILE_BYTES for small in groups])
        count = max(
            JOINED_COUNT_MIN,
            int(np.searchsorted(total, min(PART_BYTES, step_bytes(options)), side="right")),
        )
        unit = Unit(partition, tuple(small.group for small in groups[:count]))
        units.append((unit, len(groups) / JOINED_MIN, int(total[:count][-1])))
    return units


def small_bytes(options: Options) -> int:
    """Return the size limit of small file groups, which may be joined."""
    return min(step_bytes(options) // JOINED_MIN, options.max_file_bytes // 2)

"""What keeps the number of live files low when commits are small: steps that a table does by itself
after a write.

Log files: those of about one size become one, where there are many in a file group, so that each
row is moved once for every size.  When log files or dead rows have become a part of the group that
is worth reading all of it, or a smaller part in so many commits that one rewriting hardly counts,
or the group is small anyway, it gets a base file instead. Joining: file groups that inserts have
made are joined where there are many of about the same size, in the order of their keys.

Law: when no work is overdue (:mod:`mdt.services.layout.budget`), a file group has less than
``LOGS_FACTOR * mdt.compact.log.files`` log files, and a partition less than ``OVERDUE *
JOINED_MIN`` file groups of each of SIZES sizes, besides those that are not small
(:func:`small_bytes`).  So a partition of s bytes has
at most ``(OVERDUE * JOINED_MIN * SIZES + s / small_bytes) * (1 + log files)`` live files,
however many commits made it.
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
    carried_out,
    everywhere,
    step_bytes,
)
from mdt.services.layout.clustering import Clustering
from mdt.services.layout.clustering_plan import Unit
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.compaction_strategies import Dirty, dirty
from mdt.services.layout.curves import SORT
from mdt.services.layout.log_compaction import LogCompaction, joined, size_of
from mdt.services.layout.repeated_keys import apart
from mdt.services.layout.split_groups import PART_BYTES, Cutting, parts

REWRITTEN_BYTES_MAX = 1 << 20
"""A file group of so many bytes is rewritten as quickly as its log files are joined."""
LOG_SHARE = 5
"""A file group is due for compaction when log files have this part of its bytes, or dead rows this
part of its rows: so each byte of a log file costs five of a base file once, and readers read a
quarter more than they must.
"""
PAID_TIMES = 4
PAID_BYTES = 100 << 10
"""It is due from a part on that is so many times smaller, too, when its commits have paid for that:
each for so many bytes, a fifth of what it costs itself. A commit of a few rows costs as much as
half a MiB of a base file; one of many rows does not pay more, and waits for LOG_SHARE.
"""
JOINED_SHARE_MIN = 8
"""Log files that have this part of the bytes of their file group are not joined: it is compacted
soon.
"""
LOGS_FACTOR = 6
"""Times ``mdt.compact.log.files`` of log files with which the compaction of a file group is
overdue: they are of some four sizes, and those with deletes cannot be joined.
"""
JOINED_MIN = 8
"""File groups of a size that are joined; fewer would move rows more often, more would be more
files.
"""
JOINED_SOME = 2
"""File groups of a size that are joined, at least, where more would be larger than PART_BYTES
together.
"""
SIZES = 6


# Log files


def compact(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Give base files to the file groups that need them most."""
    groups = _with_many_logs(snapshot, options, scope.names)
    if not groups:
        return NOTHING
    found = dirty(snapshot, groups)
    need, cost = compaction_need(found, options), found.bytes + FILE_BYTES * found.log_files
    taken = affordable(need, cost, scope)
    if not taken:
        return Outcome(is_left=bool((need >= 1).any()))
    count = _parts(snapshot, found)
    if count[taken[0]] > 1:
        taken = taken[:1]
        operation: Operation[Any] = _cutting(
            metadata, snapshot, options, found, taken[0], int(count[taken[0]])
        )
    else:
        taken = [at for at in taken if count[at] == 1]
        names = snapshot.file_groups.names(found.group[taken].tolist())
        operation = Compaction(metadata, options, names=names)
    is_done = carried_out(metadata, operation, options, scope)
    return Outcome(is_done, int((need >= 1).sum()) > len(taken), int(cost[taken].sum()))


def compaction_need(found: Dirty, options: Options) -> npt.NDArray[np.float64]:
    """Return how much each of n file groups needs a base file: 1 when that pays, NaN where there
    are few log files -> float64[n].
    """
    limit = options.compact_log_files
    is_paid = found.commits * PAID_BYTES >= found.bytes
    times = np.where(is_paid, PAID_TIMES * LOG_SHARE, LOG_SHARE)
    share = (
        np.maximum(found.log_bytes / found.bytes.clip(1), found.dead / found.rows.clip(1)) * times
    )
    if_small = np.where(found.bytes <= REWRITTEN_BYTES_MAX, found.log_files / limit, 0)
    many = OVERDUE * found.log_files / (LOGS_FACTOR * limit)
    return np.where(found.log_files >= limit, np.maximum.reduce([share, if_small, many]), np.nan)


def _parts(snapshot: Snapshot, found: Dirty) -> Int64Array:
    """Return into how many file groups each one is cut instead of compacted, 1 if it is not.

    File groups of buckets, and those that may share keys, stay whole.
    """
    if has_buckets(snapshot.definition.key_index) or snapshot.definition.keys_repeat:
        return np.ones(len(found.group), np.int64)
    return parts(found)


def _cutting(
    metadata: Metadata, snapshot: Snapshot, options: Options, found: Dirty, at: int, count: int
) -> Cutting:
    names = snapshot.file_groups.names([int(found.group[at])])
    options = replace(options, max_file_bytes=int(found.bytes[at]) // count)
    return Cutting(metadata, options, snapshot.definition.key, SORT, names=names)


def compact_logs(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Join log files of about one size in the file groups that have most of them."""
    least = options.compact_log_files
    groups = _with_many_logs(snapshot, options, scope.names)
    logs = [joined(snapshot, group, least) for group in groups]
    bytes = [snapshot.file_groups.group(group).bytes for group in groups]
    size = snapshot.files.numpy("size") if groups else np.empty(0, np.int64)
    log_bytes = [int(size[files].sum()) for files in logs]
    cost = [total + FILE_BYTES * len(files) for total, files in zip(log_bytes, logs, strict=True)]
    need = np.array([len(files) / max(least, 2) for files in logs])
    need[np.array(log_bytes) * JOINED_SHARE_MIN >= np.array(bytes)] = 0
    taken = affordable(need, cost, scope)
    if not taken:
        return Outcome(is_left=bool((need >= 1).any()))
    names = snapshot.file_groups.names([groups[at] for at in taken])
    operation = LogCompaction(metadata, options, names=names, least=least)
    is_done = carried_out(metadata, operation, options, scope)
    return Outcome(is_done, int((need >= 1).sum()) > len(taken), sum(cost[at] for at in taken))


def with_many_logs(snapshot: Snapshot, options: Options, names: AbstractSet[str]) -> set[str]:
    """Return those of the file groups ``names`` that have enough log files to be looked at."""
    return set(snapshot.file_groups.names(_with_many_logs(snapshot, options, names)))


def _with_many_logs(
    snapshot: Snapshot, options: Options, names: AbstractSet[str] | None
) -> list[int]:
    """Return the file groups, of ``names`` or of all, with enough log files to be looked at, by
    their numbers.
    """
    if not snapshot.definition.is_mor:
        return []
    if names is None:
        found = dirty(snapshot)
        return found.group[found.log_files >= options.compact_log_files].tolist()
    numbers = snapshot.file_groups.number(sorted(names))
    groups = numbers[numbers >= 0].tolist()
    return [
        group
        for group in groups
        if snapshot.file_groups.group(group).logs >= options.compact_log_files
    ]


# Joining


@dataclass(frozen=True, slots=True)
class Joining(Clustering):
    """A clustering of the file groups of about the same size, where there are many.  ``scope``: in
    which partitions, and how much; None: everywhere.
    """

    scope: Scope | None = None

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return of each partition the groups of a size."""
        found, _, _ = joinable(snapshot, self.options, self.scope or everywhere(self.options))
        return apart(self.metadata, snapshot, found)


def join(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Join small file groups of a partition where there are many of a size.

    Off where inserts never fill small files, and where they go to the file group of their bucket.
    """
    if not options.small_file_bytes or has_buckets(snapshot.definition.key_index):
        return NOTHING
    units, cost, is_left = joinable(snapshot, options, scope)
    if not units:
        return Outcome(is_left=is_left)
    operation = Joining(metadata, options, snapshot.definition.key, SORT, scope=scope)
    is_done = carried_out(metadata, operation, options, scope)
    return Outcome(is_done, is_left, cost)


def joinable(snapshot: Snapshot, options: Options, scope: Scope) -> tuple[list[Unit], int, bool]:
    """Return the units that a step joins, what that costs in bytes, and whether others are due.
    O(small groups).
    """
    partitions = live_paths(snapshot) if scope.partitions is None else sorted(scope.partitions)
    found = [one for name in partitions for one in _small_units(snapshot, options, name)]
    need, cost = np.array([need for _, need, _ in found]), [cost for _, _, cost in found]
    taken = affordable(need, cost, scope)
    return (
        [found[at][0] for at in taken],
        sum(cost[at] for at in taken),
        int((need >= 1).sum()) > len(taken),
    )


def _small_units(
    snapshot: Snapshot, options: Options, partition: str
) -> list[tuple[Unit, float, int]]:
    """Return for each size of the small file groups of one partition the smallest of them, as a
    unit, with its need and its cost in bytes.
    """
    by_size: dict[int, list[Small]] = {}
    for small in snapshot.file_groups.small(partition, small_bytes(options)):
        by_size.setdefault(size_of(small.bytes), []).append(small)
    found = []
    for groups in by_size.values():
        total = np.cumsum([small.bytes + FILE_BYTES for small in groups])
        count = max(
            JOINED_SOME,
            int(np.searchsorted(total, min(PART_BYTES, step_bytes(options)), side="right")),
        )
        unit = Unit(partition, tuple(small.group for small in groups[:count]))
        found.append((unit, len(groups) / JOINED_MIN, int(total[:count][-1])))
    return found


def small_bytes(options: Options) -> int:
    """Return from how many bytes on a file group is not joined any more."""
    return min(step_bytes(options) // JOINED_MIN, options.max_file_bytes // 2)

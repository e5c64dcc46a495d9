"""Selection and order of the file groups to compact.

A strategy is a function from :class:`Dirty` to a priority for each group. Strategies can be chosen
by name or passed as a function. A budget limits the number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexes.base import Int64Array
from mdt.errors import Invalid
from mdt.metadata.files.file_group import BASE
from mdt.metadata.snapshot.snapshot import Snapshot

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dirty:
    """n file groups with log files or deleted rows, ordered by group number. Arrays are [n].

    Attributes:
        group: Number in the snapshot.
        partition: Path.
        bytes: Size of all files.
        log_bytes, log_files: Size and number of log files.
        rows, dead: Rows in all files, and deleted rows among them.
        begun: Seq of the commit that wrote the oldest file of the group.
        commits: Log files added since the base file was written, including log files that were
            merged.
    """

    group: Int64Array
    partition: npt.NDArray[np.object_]
    bytes: Int64Array
    log_bytes: Int64Array
    log_files: Int64Array
    rows: Int64Array
    dead: Int64Array
    begun: Int64Array
    commits: Int64Array

    def take(self, order: Int64Array) -> Dirty:
        """Return a selection of the groups, in the given order."""
        return Dirty(*(getattr(self, name)[order] for name in self.__slots__))


Strategy = Callable[[Dirty], Float64Array]
"""Returns the priority of each group (float64[n]). Larger is sooner, NaN or negative excludes the
group.
"""


def _log_bytes(dirty: Dirty) -> Float64Array:
    return dirty.log_bytes.astype(np.float64)


def _log_files(dirty: Dirty) -> Float64Array:
    return dirty.log_files.astype(np.float64)


def with_logs(dirty: Dirty) -> Float64Array:
    """Return priorities that exclude file groups without log files."""
    return np.where(dirty.log_files > 0, dirty.log_bytes, np.nan).astype(np.float64)


def _dead_share(dirty: Dirty) -> Float64Array:
    return np.asarray(dirty.dead / dirty.rows.clip(1), np.float64)


def _oldest(dirty: Dirty) -> Float64Array:
    return (dirty.begun.max(initial=0) - dirty.begun).astype(np.float64)


def _newest_partitions(dirty: Dirty) -> Float64Array:
    return np.unique(dirty.partition.astype(str), return_inverse=True)[1].astype(np.float64)


STRATEGIES: Mapping[str, Strategy] = {
    "log_bytes": _log_bytes,
    "log_files": _log_files,
    "dead_share": _dead_share,
    "oldest": _oldest,
    "newest_partitions": _newest_partitions,
}
"""Built-in strategies, by what comes first: most bytes in log files, most log files, largest share
of deleted rows, longest time since the last compaction, last partition path (e.g. the newest day).
"""


def choose_groups(
    snapshot: Snapshot,
    strategy: str | Strategy = "log_bytes",
    *,
    partitions: Sequence[str] | None = None,
    budget_bytes: int | None = None,
) -> list[int]:
    """Return the file groups to compact, the most important first. O(files).

    Args:
        strategy: Name or function.
        partitions: Paths, or None for all.
        budget_bytes: Maximum bytes to read, or None for no limit. The first group may exceed it.

    Raises Invalid for an unknown strategy, or if a strategy does not return a number for each
    group.
    """
    candidates = dirty(snapshot)
    if partitions is not None:
        candidates = candidates.take(
            np.flatnonzero(np.isin(candidates.partition.astype(str), list(partitions)))
        )
    priority = _priority(strategy, candidates)
    eligible = np.flatnonzero(priority >= 0)
    candidates = candidates.take(eligible[np.argsort(-priority[eligible], kind="stable")])
    if budget_bytes is None:
        return candidates.group.tolist()
    within = np.cumsum(candidates.bytes) <= budget_bytes
    within[:1] = True
    return candidates.group[np.logical_and.accumulate(within)].tolist()


def dirty(snapshot: Snapshot, groups: Sequence[int] | None = None) -> Dirty:
    """Return the file groups with log files or deleted rows, optionally only among ``groups``.

    O(files of the groups).
    """
    files = snapshot.live_numbers
    if groups is not None:
        files = np.sort(np.concatenate([snapshot.file_groups.members(group) for group in groups]))
    group_of_file = snapshot.file_groups.of_files(files)
    is_log, dead = snapshot.kind[files] != BASE, snapshot.dead_rows[files]
    group = np.unique(group_of_file[is_log | (dead > 0)])
    is_selected = np.isin(group_of_file, group)
    files, is_log, dead = files[is_selected], is_log[is_selected], dead[is_selected]
    place = np.searchsorted(group, group_of_file[is_selected])
    size = snapshot.files.numpy("size")[files]
    begun, commits = np.full(len(group), np.iinfo(np.int64).max), np.zeros(len(group), np.int64)
    np.minimum.at(begun, place, snapshot.segment_ids[files] >> 20)
    np.maximum.at(commits, place, snapshot.files.numpy("log_version")[files])
    commits = np.maximum(commits, np.bincount(place, is_log, len(group)).astype(np.int64))

    def total(values: npt.NDArray[np.generic]) -> Int64Array:
        return np.bincount(place, values.astype(np.float64), len(group)).astype(np.int64)

    return Dirty(
        group,
        snapshot.file_groups.partitions(group),
        total(size),
        total(size * is_log),
        total(is_log),
        total(snapshot.rows[files]),
        total(dead),
        begun,
        commits,
    )


def _priority(strategy: str | Strategy, candidates: Dirty) -> Float64Array:
    rank = STRATEGIES.get(strategy) if isinstance(strategy, str) else strategy
    if not callable(rank):
        raise Invalid(
            f"unknown strategy {strategy!r}",
            hint=f"use one of {', '.join(STRATEGIES)}, or a function",
        )
    priority = np.asarray(rank(candidates))
    if priority.shape != candidates.group.shape or not np.issubdtype(priority.dtype, np.number):
        raise Invalid(
            "a strategy must return a number for each file group",
            hint=f"there are {len(candidates.group)} file groups",
        )
    return priority.astype(np.float64)

"""Selection of the file groups to cluster, in units that can be committed separately.

In each partition the plan takes groups whose ranges overlap many others, and small groups. After a
load all groups overlap. Later, new files overlap many groups that were clustered before. The new
files are then clustered among themselves, and the old groups stay. Groups that were clustered
together and have not changed overlap few others, so a second call finds little work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from indexes.base import BoolArray, Int64Array
from mdt.config import Options
from mdt.metadata.snapshot.live_partitions import partitioned
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.curves import SORT
from mdt.services.layout.ranges import Ranges, ranges

_SMALL_SHARE = 0.5
"""Groups below this share of a full file are joined with others."""
_WIDE_SHARE = 0.5
"""Groups are clustered if they overlap at least this share as many groups as the widest group."""


@dataclass(frozen=True, slots=True)
class Unit:
    """File groups of a partition that are clustered together, by their numbers in the snapshot."""

    partition: str
    groups: tuple[int, ...]


def single_units(snapshot: Snapshot, groups: Iterable[int]) -> list[Unit]:
    """Return a unit for each file group."""
    return [Unit(snapshot.file_groups.partition(group), (group,)) for group in groups]


def units(
    snapshot: Snapshot,
    options: Options,
    by: Sequence[str],
    curve: str,
    partitions: Sequence[str] | None = None,
) -> list[Unit]:
    """Return the units that a clustering by the columns ``by`` examines.

    ``partitions`` are paths, or None for all. O(file groups log file groups).
    """
    groups, places = partitioned(snapshot, partitions)
    size = _bytes(snapshot, groups)
    column_ranges = (
        {column: ranges(snapshot, groups, column) for column in by} if len(groups) else {}
    )
    chosen = []
    for partition, positions in places.items():
        selected = _select_units(
            {column: bounds.take(positions) for column, bounds in column_ranges.items()},
            size[positions],
            options,
            curve,
        )
        for part in selected:
            chosen.append(Unit(partition, tuple(groups[positions[part]].tolist())))
    return chosen


def _bytes(snapshot: Snapshot, groups: Int64Array) -> Int64Array:
    """Return the total file size of each group (int64[groups])."""
    files = snapshot.live_numbers
    group_of_file = snapshot.file_groups.of_files(files)
    is_selected = np.isin(group_of_file, groups)
    sizes = snapshot.files.numpy("size")[files[is_selected]]
    total = np.bincount(np.searchsorted(groups, group_of_file[is_selected]), sizes, len(groups))
    return total.astype(np.int64)


def _select_units(
    column_ranges: Mapping[str, Ranges], size: Int64Array, options: Options, curve: str
) -> list[Int64Array]:
    """Return the units of one partition, each as positions of its groups."""
    if len(size) == 1:
        return [np.zeros(1, np.int64)]  # the row groups may overlap
    is_small = size < _SMALL_SHARE * options.max_file_bytes
    is_small &= np.count_nonzero(is_small) > 1
    width = _overlap_counts(column_ranges, curve)
    chosen = np.flatnonzero(
        ((width > 1) & (width >= _WIDE_SHARE * width.max(initial=0))) | is_small
    )
    meets = (
        _overlap_counts(
            {column: bounds.take(chosen) for column, bounds in column_ranges.items()}, curve
        )
        > 1
    )
    chosen = chosen[meets | is_small[chosen]]
    if len(chosen) < 2:
        return []
    first = next(iter(column_ranges.values())).take(chosen)
    order = np.lexsort((first.high, first.low))
    ends = _ends(first.take(order), size[chosen[order]], options, may_cut=curve == SORT)
    return [part for part in np.split(chosen[order], ends) if len(part) > 1]


def _overlap_counts(column_ranges: Mapping[str, Ranges], curve: str) -> Int64Array:
    """Return the number of groups that each group overlaps.

    A sort uses the first column that separates groups, a curve the mean of all columns.
    """
    counts = [column.overlap_counts() for column in column_ranges.values()]
    if curve == SORT:
        return next((column for column in counts if column.min(initial=0) < len(column)), counts[0])
    return np.ceil(np.mean(counts, axis=0)).astype(np.int64)


def _ends(first: Ranges, size: Int64Array, options: Options, *, may_cut: bool) -> Int64Array:
    """Return the positions of the first groups of new units, with groups in the order of their
    ranges.

    A unit has at most the configured size. With ``may_cut`` a unit that fills a file ends at the
    next gap between ranges.
    """
    gap: BoolArray = np.zeros(len(size), np.bool_)
    if may_cut:
        gap[1:] = first.low[1:] > np.maximum.accumulate(first.high)[:-1]
    ends, total = [], 0
    for i, (is_gap, group_bytes) in enumerate(zip(gap.tolist(), size.tolist(), strict=True)):
        if total and (
            total + group_bytes > options.cluster_unit_bytes
            or (is_gap and total >= options.max_file_bytes)
        ):
            ends.append(i)
            total = 0
        total += group_bytes
    return np.array(ends, np.int64)

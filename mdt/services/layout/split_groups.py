"""Splitting of file groups that large commits rewrite again and again.

Example: commits of 10,000 rows into a file group of a million rows delete a fifth of it in twenty
commits. Every twentieth commit then takes thirty times as long, because it compacts the group.
After a split into ten groups the same bytes are rewritten in ten separate commits, but each commit
writes ten log files. So a group is split only as far as each part still gets many rows from each
commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from indexes.base import Int64Array
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.arrangement import Arrangement, arrange, members
from mdt.services.layout.clustering import Clustering, rearrange
from mdt.services.layout.clustering_plan import Unit, single_units
from mdt.services.layout.compaction_strategies import Dirty
from mdt.services.layout.curves import SORT
from mdt.services.layout.rewriting import Rewrite
from mdt.write.new_files import WriteJob

PART_BYTES = 16 << 20
"""Minimum size of a part, which takes about half a second to rewrite. Twice the size below which
file groups are joined (:func:`mdt.services.layout.small_files.small_bytes`).
"""
PART_ROWS = 2_000
"""Minimum number of rows that a part gets from each commit. Such rows cost more to write than their
log file.
"""
COMMITS_MAX = 100
"""A file group is split only if it needs compaction after fewer commits than this. Other groups are
rewritten too rarely to matter.
"""


def part_counts(groups: Dirty) -> Int64Array:
    """Return the number of parts for each of n file groups due for compaction (int64[n]).

    1 means that the group is not split.
    """
    rows = groups.rows * groups.log_bytes / (groups.bytes * groups.commits).clip(1)
    count = np.minimum(groups.bytes // PART_BYTES, (rows // PART_ROWS).astype(np.int64))
    return np.where(groups.commits < COMMITS_MAX, count.clip(1), 1)


@dataclass(frozen=True, slots=True)
class SplitGroups(Clustering):
    """A clustering that splits each of the file groups ``names`` into files of the configured size.

    Rows are in key order if the base file is, otherwise they keep their order.
    """

    names: Sequence[str] = ()

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return a unit for each file group that still exists."""
        return single_units(snapshot, snapshot.file_groups.with_files(self.names))

    def _rewrite(self) -> Rewrite[Unit]:
        return partial(rearrange, partial(_arrange, self.by))


def _arrange(by: Sequence[str], job: WriteJob, unit: Unit) -> Arrangement:
    """Return the rows of a file group in the order of the keys ``by``.

    They keep their order if the base file is not in key order.
    """
    snapshot = job.snapshot
    new_order = arrange(job.metadata, snapshot, job.options, unit, by, SORT)
    base = members(snapshot, unit)[:1]
    settled = new_order.order[new_order.order < int(snapshot.live_rows[base].sum())]
    if bool((np.diff(settled) < 0).any()):
        return replace(new_order, order=np.arange(len(new_order.order)))
    return new_order

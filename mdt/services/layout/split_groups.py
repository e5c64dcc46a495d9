"""Cutting: a file group that commits of many rows have rewritten again and again becomes several,
of which each is rewritten in less time.

A commit of ten thousand rows into a file group of a million has a fifth of it die in twenty
commits.  One commit in twenty then takes thirty times as long as the others.  Cut into ten, the
same bytes are written in ten commits; but each commit writes ten log files.  So a file group is cut
only as far as each part still gets many rows from each commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from indexes.base import Int64Array
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.arrangement import Arrangement, arrangement, members
from mdt.services.layout.clustering import Clustering, rearranged
from mdt.services.layout.clustering_plan import Unit, single_units
from mdt.services.layout.compaction_strategies import Dirty
from mdt.services.layout.curves import SORT
from mdt.services.layout.rewriting import Rewrite
from mdt.write.new_files import WriteJob

PART_BYTES = 16 << 20
"""Bytes of a part, at least: it takes about half a second to rewrite.  Twice the size up to which
file groups are joined (:func:`mdt.services.layout.small_files.small_bytes`).
"""
PART_ROWS = 2_000
"""Rows that a part gets from each commit, at least.  They then cost more to write than their log
file does.
"""
COMMITS_MAX = 100
"""A file group that is due after fewer commits than this is cut; of others, the rewriting is too
rare to matter.
"""


def parts(found: Dirty) -> Int64Array:
    """Return into how many parts each of n file groups that are due for compaction is cut, 1 if it
    is not -> int64[n].
    """
    rows = found.rows * found.log_bytes / (found.bytes * found.commits).clip(1)
    count = np.minimum(found.bytes // PART_BYTES, (rows // PART_ROWS).astype(np.int64))
    return np.where(found.commits < COMMITS_MAX, count.clip(1), 1)


@dataclass(frozen=True, slots=True)
class Cutting(Clustering):
    """A clustering of the file groups called ``names``, each by itself, into files of the size that
    the options say.

    Rows stay in the order of keys if they stood so, else in the order in which they stand.
    """

    names: Sequence[str] = ()

    def _units(self, snapshot: Snapshot) -> list[Unit]:
        """Return the file groups that are there, each a unit."""
        return single_units(snapshot, snapshot.file_groups.with_files(self.names))

    def _rewrite(self) -> Rewrite[Unit]:
        return partial(rearranged, partial(_arranged, self.by))


def _arranged(by: Sequence[str], job: WriteJob, unit: Unit) -> Arrangement:
    """Return the rows of a file group in the order of the keys ``by``; as they stand if its base
    file has another one.
    """
    snapshot = job.snapshot
    found = arrangement(job.metadata, snapshot, job.options, unit, by, SORT)
    base = members(snapshot, unit)[:1]
    settled = found.order[found.order < int((snapshot.rows - snapshot.dead_rows)[base].sum())]
    if bool((np.diff(settled) < 0).any()):
        return replace(found, order=np.arange(len(found.order)))
    return found

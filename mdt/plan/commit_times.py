"""Pruning by commit time: selects rows by the commits that wrote them.

Table services move rows without changing their ``_hoodie_commit_time``. A base file therefore
contains rows of its own commit and of earlier commits, and a log file only rows of its own commit.
This bounds the column without any statistics.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import column_stats
from indexes.arrays import mask
from indexes.column_stats import STATS_SCHEMA
from indexes.predicate import Leaf, leaves
from mdt.hudi.avro_schema import COMMIT_TIME
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log.trusted_names import IMPORT
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.plan_state import PlanState


def committed_within(history: pa.Table, since: int, until: int) -> Leaf:
    """Return the test for rows written by commits after ``since``, up to and including ``until``.

    Args:
        history: Table with the ``seq`` and ``instant`` of all commits.

    >>> history = pa.table({"seq": [1, 2, 3], "instant": ["t1", "t2", "t3"]})
    >>> committed_within(history, since=1, until=3).value
    ('t2', 't3')
    """
    instants = _within(history, since, until)["instant"]
    return Leaf(COMMIT_TIME, "in", tuple(instants.to_pylist()))


def first_import(history: pa.Table, since: int, until: int) -> int | None:
    """Return the first commit after ``since``, up to and including ``until``, that imported commits
    of other writers, or None.

    >>> history = pa.table({"seq": [1, 2, 3], "action": ["import", "commit", "import"]})
    >>> first_import(history, since=1, until=3)
    3
    """
    commits = _within(history, since, until)
    seqs = commits["seq"].filter(pc.equal(commits["action"], IMPORT))
    return None if not len(seqs) else int(seqs[0].as_py())


def _within(history: pa.Table, since: int, until: int) -> pa.Table:
    """Return the rows of commits after ``since``, up to and including ``until``."""
    return history.filter(
        pc.and_(pc.greater(history["seq"], since), pc.less_equal(history["seq"], until))
    )


def by_commit_time(state: PlanState) -> None:
    """Prune files by the range of commit times of their rows, if the predicate tests commit
    times.
    """
    if all(COMMIT_TIME not in leaf.columns for leaf in leaves(state.predicate)):
        return
    snapshot = state.snapshot
    stats = _bounds(snapshot)
    verdict = column_stats.prune_predicate(
        lambda name: (stats, pa.string()) if name == COMMIT_TIME else None,
        state.predicate,
        snapshot.numbered,
    )
    state.note(
        "commit_time",
        verdict,
        len(snapshot),
        "the rows of a file come from its own commit or from earlier commits",
    )


def _bounds(snapshot: Snapshot) -> pa.Table:
    """Return bounds of the commit times in each file as a table of STATS_SCHEMA [numbered]."""
    n = snapshot.numbered
    instant = snapshot.files.column("instant").cast(pa.binary())
    is_log = mask(snapshot.kind == LOG)
    counts = pa.array(np.zeros(n, np.int64))
    values = {
        "min": pc.if_else(is_log, instant, pa.scalar(None, pa.binary())),
        "max": instant,
        "min_exact": is_log,
        "max_exact": is_log,
        "nulls": counts,
        "nans": counts,
        "values": pa.array(snapshot.files.numpy("rows")),
        "bytes": counts,
    }
    return pa.table([values[field.name] for field in STATS_SCHEMA], schema=STATS_SCHEMA)

"""Index look-ups in tasks, for queries that would read very many large summaries.

The driver plans as usual until column statistics and small summaries have pruned files. If the
remaining segments have more than eight thousand bitmap and text summaries (option
``mdt.spark.driver.summaries.max``), they are split among tasks. A task opens the table at the same
commit, runs the same code on its share, and returns the segments that remain. A Python worker
caches the snapshot and parsed summaries for the next query, as the driver does. Tasks write
nothing, so Spark may repeat them. If the job fails, the driver does the work.

Wall times on two processors: 8,000 summaries that are not cached take as long in tasks as in the
driver (1.7 and 2.0 s). 4,000 bitmaps take more than twice as long in tasks (0.9 and 0.4 s).
Summaries that the driver has already parsed are three times as fast in the driver. Tasks are
therefore for tables of terabytes on clusters, with more summaries than a driver can hold.

PlanState runs inside the optimizer of another query, in any JVM thread. Starting a job there is
allowed: Spark does so for broadcasts and subqueries. The job uses RDDs, so that it plans no nested
query and needs no thread pool of Catalyst. It inherits the local properties of the waiting thread,
such as job group and SQL execution. No code in a task waits for the driver.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pyroaring import BitMap

from indexes.base import Int64Array
from indexes.predicate import Predicate
from mdt.engines import tasks
from mdt.engines.engine import Engine
from mdt.engines.tasks import Source, source_of
from mdt.errors import MdtError
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.plan_state import PlanState
from mdt.plan.position_search import Answer, Indexes, PositionSearch
from mdt.plan.shard_rows import ShardRows
from mdt.scan.warm import read_heads
from mdt.session import memo

SUMMARY_BYTES = 256 << 10
"""A summary counts once per this many bytes, because a LIKE query reads most of them."""
SUMMARIES_PER_TASK = 128
"""A task costs about 20 ms, reading a summary 0.1 to 0.2 ms, and a parsed summary a fifth of
that.
"""
_TASKS_PER_PROCESSOR = 2


class PlannerWarning(UserWarning):
    """The planner failed, and a query reads every file."""


@dataclass(frozen=True, slots=True)
class Question:
    """Input that all tasks of a job share. ``indexes``: specifications."""

    source: Source
    predicate: Predicate
    indexes: tuple[str, ...]
    with_positions: bool


@dataclass(frozen=True, slots=True)
class Share:
    """Files of a task: their numbers, int64[n], and the candidate positions of files for which they
    are known.
    """

    files: Int64Array
    positions: dict[int, bytes]


class IndexTasks:
    """A :data:`mdt.plan.position_search.RemotePruner` on an engine."""

    def __init__(self, engine: Engine[Any], *, with_positions: bool = False) -> None:
        """``with_positions``: also return the positions of candidate rows. Spark's scans do not
        need them.
        """
        self._engine = engine
        self._with_positions = with_positions

    def __call__(self, state: PlanState, indexes: Indexes) -> Sequence[Answer] | None:
        """Return the answers for the remaining segments, or None if there are few or the job
        fails.
        """
        options = state.metadata.options(state.snapshot.definition)
        snapshot = state.snapshot
        files = np.flatnonzero(state.maybe)
        shards = ShardRows.from_files(snapshot, files)
        weights = np.zeros(len(shards), np.int64)
        for index in indexes:
            weights += _weights(snapshot.summary_bytes(index.spec)[shards.shards])
        if weights.sum() <= options.spark_driver_summaries_max:
            return None
        source = source_of(state.metadata, snapshot, options)
        question = Question(
            source, state.predicate, tuple(index.spec for index in indexes), self._with_positions
        )
        parts = [
            share_of(state, part) for part in split_files(shards, weights, self._engine.processors)
        ]
        try:
            answers = self._engine.map_shares(partial(answer, question), parts)
        except MdtError as error:
            warnings.warn(
                f"{len(indexes)} indexes are read in the driver, because tasks failed: {error}",
                PlannerWarning,
                stacklevel=1,
            )
            return None
        name = self._engine.name.capitalize()
        state.where = f", read in {len(parts)} {name} task{'s' * (len(parts) > 1)}"
        return answers


def _weights(sizes: Int64Array) -> Int64Array:
    """Return the weights of summaries of these sizes -> int64[n]. Size -1 means no summary."""
    return np.where(sizes >= 0, 1 + sizes // SUMMARY_BYTES, 0)


def split_files(shards: ShardRows, weights: Int64Array, cores: int) -> list[Int64Array]:
    """Split files among tasks, all files of a shard to one task -> file numbers of each task,
    int64[k].

    ``weights``: the work per shard, int64[m].
    """
    count = max(1, min(_TASKS_PER_PROCESSOR * cores, -(-int(weights.sum()) // SUMMARIES_PER_TASK)))
    before = np.cumsum(weights)
    ends = np.flatnonzero(np.diff(before * count // (before[-1] + 1))) + 1
    return np.split(shards.files, shards.start[ends])


def share_of(state: PlanState, files: Int64Array) -> Share:
    """Return the share of a task for ``files``."""
    return Share(
        files, {i: state.positions[i].serialize() for i in files.tolist() if i in state.positions}
    )


def answer(question: Question, share: Share, attempt: int = 0) -> Answer:
    """Evaluate the indexes for a share. Raises Unsupported if this worker finds another table, or
    none.
    """
    metadata, snapshot = open_cached(question.source)
    maybe = np.zeros(snapshot.numbered, np.bool_)
    maybe[share.files] = True
    positions = {i: BitMap.deserialize(data) for i, data in share.positions.items()}
    state = PlanState(metadata, snapshot, question.predicate, maybe, positions)
    return PositionSearch(state).answer(question.indexes, with_positions=question.with_positions)


def large_indexes(metadata: Metadata, snapshot: Snapshot) -> list[str]:
    """Return the indexes whose summaries a query of all files would read in tasks."""
    options = metadata.options(snapshot.definition)
    shards = np.unique(snapshot.shards.of_file[snapshot.has_rows])
    each = {
        spec: _weights(snapshot.summary_bytes(spec)[shards]).sum()
        for spec in snapshot.definition.indexes
    }
    return [spec for spec, weight in each.items() if weight > options.spark_driver_summaries_max]


def warm(
    engine: Engine[Any], metadata: Metadata, snapshot: Snapshot, specs: Sequence[str]
) -> tuple[int, int, int]:
    """Load the table and these indexes in tasks; return (summaries, bytes read, tasks).

    Python workers cache them. Spark does not choose the worker of a task, so a query may use
    workers that have cached other summaries.
    """
    source = source_of(metadata, snapshot, metadata.options(snapshot.definition))
    shards = ShardRows.from_files(snapshot, np.flatnonzero(snapshot.has_rows))
    weights = sum(
        (_weights(snapshot.summary_bytes(spec)[shards.shards]) for spec in specs),
        np.zeros(len(shards), np.int64),
    )
    parts = split_files(shards, weights, engine.processors) if specs and len(shards) else []
    counts = engine.map_shares(partial(_warm_share, source, tuple(specs)), parts)
    return sum(count for count, _ in counts), sum(size for _, size in counts), len(parts)


def _warm_share(
    source: Source, specs: Sequence[str], files: Int64Array, attempt: int = 0
) -> tuple[int, int]:
    """Load the summaries of ``files``, int64[n], in a task; return (summaries, bytes read)."""
    metadata, snapshot = open_cached(source)
    selected = np.zeros(snapshot.numbered, np.bool_)
    selected[files] = True
    counts = [read_heads(metadata, snapshot, spec, selected) for spec in specs]
    return sum(count for count, _ in counts), sum(size for _, size in counts)


@memo(4)
def open_cached(source: Source) -> tuple[Metadata, Snapshot]:
    """Return the table at a commit. The worker caches it, so that the next query does not look for
    newer commits.
    """
    return tasks.open_table(source)

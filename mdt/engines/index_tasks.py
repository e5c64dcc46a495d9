"""Large summaries of indexes are read in tasks where a query would ask many of them, each
task for its segments.

The driver plans as ever until column statistics and small summaries have spoken.  If the segments
that are left have more than eight thousand bitmap and text summaries (option
``mdt.spark.driver.summaries.max``), they are dealt out: a task opens the table at the same commit,
runs the same code on its share, and returns which segments are left.  A Python worker keeps the
snapshot and what it has parsed for the next query, as the driver does; tasks write nothing, so
Spark may repeat them.  If the job fails, the driver does the work.

What it buys, by the clock on two processors: 8,000 summaries that nobody has read yet take as long
in tasks as in the driver (1.7 and 2.0 s), 4,000 bitmaps more than twice as long (0.9 and 0.4 s),
and what the driver has parsed before it answers three times as fast itself.  So tasks are for
tables of terabytes on clusters, whose summaries no driver could hold.

PlanState happens inside the optimizer of another query, in whatever thread of the JVM that runs in.
A job may be started there: Spark does so itself for broadcasts and subqueries.  It is one of RDDs,
so that no query is planned within a query and none of the pools of Catalyst is needed; it takes the
local properties of the thread that waits for it, job group and SQL execution among them; and
nothing that runs in a task waits for the driver.
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
"""A summary counts once for each of so many bytes: one of LIKE reads most of them."""
SUMMARIES_PER_TASK = 128
"""A task takes some 20 ms of its own, a summary 0.1 to 0.2 ms where it is read, a fifth of that
where it has been parsed.
"""
_TASKS_PER_PROCESSOR = 2


class PlannerWarning(UserWarning):
    """The planner failed, and a query reads every file."""


@dataclass(frozen=True, slots=True)
class Question:
    """What all tasks of a job are told.  ``indexes``: specifications."""

    source: Source
    predicate: Predicate
    indexes: tuple[str, ...]
    with_positions: bool


@dataclass(frozen=True, slots=True)
class Share:
    """Files of one task: int64[n], their numbers, and the only rows that may match, where that is
    known.
    """

    files: Int64Array
    positions: dict[int, bytes]


class IndexTasks:
    """A :data:`mdt.plan.position_search.RemotePruner` on an engine."""

    def __init__(self, engine: Engine[Any], *, with_positions: bool = False) -> None:
        """``with_positions``: whether tasks return the rows that may match, too; Spark's scans do
        without them.
        """
        self._engine = engine
        self._with_positions = with_positions

    def __call__(self, work: PlanState, indexes: Indexes) -> Sequence[Answer] | None:
        """Answer for the segments that are left; None if they are few, or if the job fails."""
        options = work.metadata.options(work.snapshot.definition)
        snapshot = work.snapshot
        asked = np.flatnonzero(work.maybe)
        shards = ShardRows.of(snapshot, asked)
        weights = np.zeros(len(shards), np.int64)
        for one in indexes:
            weights += _weights(snapshot.summary_bytes(one.spec)[shards.shards])
        if weights.sum() <= options.spark_driver_summaries_max:
            return None
        source = source_of(work.metadata, snapshot, options)
        question = Question(
            source, work.predicate, tuple(one.spec for one in indexes), self._with_positions
        )
        parts = [share(work, part) for part in dealt(shards, weights, self._engine.processors)]
        try:
            found = self._engine.each(partial(answer, question), parts)
        except MdtError as error:
            warnings.warn(
                f"{len(indexes)} indexes are read in the driver, because tasks failed: {error}",
                PlannerWarning,
                stacklevel=1,
            )
            return None
        name = self._engine.name.capitalize()
        work.where = f", read in {len(parts)} {name} task{'s' * (len(parts) > 1)}"
        return found


def _weights(sizes: Int64Array) -> Int64Array:
    """Return what summaries of so many bytes weigh, -1: none -> int64[n]."""
    return np.where(sizes >= 0, 1 + sizes // SUMMARY_BYTES, 0)


def dealt(shards: ShardRows, weights: Int64Array, cores: int) -> list[Int64Array]:
    """Deal out files, those of a shard to one task -> for each task int64[k], their numbers.

    ``weights``: int64[m], the work of each of the m shards.
    """
    count = max(1, min(_TASKS_PER_PROCESSOR * cores, -(-int(weights.sum()) // SUMMARIES_PER_TASK)))
    before = np.cumsum(weights)
    ends = np.flatnonzero(np.diff(before * count // (before[-1] + 1))) + 1
    return np.split(shards.files, shards.start[ends])


def share(work: PlanState, files: Int64Array) -> Share:
    """Return what a task is told of ``files``."""
    return Share(
        files, {i: work.positions[i].serialize() for i in files.tolist() if i in work.positions}
    )


def answer(question: Question, share: Share, attempt: int = 0) -> Answer:
    """Return what the indexes say of a share.  Raises Unsupported if this worker sees another
    table, or none.
    """
    metadata, snapshot = opened(question.source)
    maybe = np.zeros(snapshot.numbered, np.bool_)
    maybe[share.files] = True
    positions = {i: BitMap.deserialize(data) for i, data in share.positions.items()}
    work = PlanState(metadata, snapshot, question.predicate, maybe, positions)
    return PositionSearch(work).answer(question.indexes, with_positions=question.with_positions)


def large(metadata: Metadata, snapshot: Snapshot) -> list[str]:
    """Return the indexes whose summaries queries of all files would ask for in tasks."""
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
    """Let tasks open the table and these indexes; return the number of summaries, of bytes that
    were read of them, and of tasks.

    A Python worker keeps them.  Spark says of no task in which worker it runs, so some queries meet
    workers that know other summaries.
    """
    source = source_of(metadata, snapshot, metadata.options(snapshot.definition))
    shards = ShardRows.of(snapshot, np.flatnonzero(snapshot.has_rows))
    weights = sum(
        (_weights(snapshot.summary_bytes(spec)[shards.shards]) for spec in specs),
        np.zeros(len(shards), np.int64),
    )
    parts = dealt(shards, weights, engine.processors) if specs and len(shards) else []
    found = engine.each(partial(_warmed, source, tuple(specs)), parts)
    return sum(count for count, _ in found), sum(size for _, size in found), len(parts)


def _warmed(
    source: Source, specs: Sequence[str], files: Int64Array, attempt: int = 0
) -> tuple[int, int]:
    """Open the summaries of ``files``, int64[n], in a task; return how many, and the bytes that
    were read.
    """
    metadata, snapshot = opened(source)
    asked = np.zeros(snapshot.numbered, np.bool_)
    asked[files] = True
    found = [read_heads(metadata, snapshot, spec, asked) for spec in specs]
    return sum(count for count, _ in found), sum(size for _, size in found)


@memo(4)
def opened(source: Source) -> tuple[Metadata, Snapshot]:
    """Return the table at a commit; the worker keeps it, so that the next query need not look for
    newer commits.
    """
    return tasks.opened(source)

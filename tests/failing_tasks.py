"""Tasks that fail; a module of its own, because Spark's workers import it by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from mdt.engines import tasks
from mdt.engines.spark import index_tasks
from mdt.errors import Corrupt
from mdt.plan.row_sets import Answered

_write = tasks.write


def fails_first(work: tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then lose what the first attempt would have told."""
    done = _write(work, batches, attempt)
    context = TaskContext.get()
    assert context is not None
    if done and context.attemptNumber() == 0:
        raise RuntimeError("this executor was lost")
    return done


def finds_damage(work: tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then meet an error of mdt."""
    if _write(work, batches, attempt):
        raise Corrupt("a block is damaged", path="p", offset=3, hint="restore it")
    return None


def loses_its_executor(work: tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then fail for a reason that is none of ours."""
    if _write(work, batches, attempt):
        raise RuntimeError("this executor was lost")
    return None


class KillsItsWorker(index_tasks.Answers):
    """Answers the shares of a query; the first attempt of each task takes its Python process along."""

    def __call__(self, parts: Iterable[index_tasks.Share]) -> Iterator[Answered]:
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            os._exit(1)
        yield from super().__call__(parts)


class AlwaysFails(index_tasks.Answers):
    """Loses every attempt."""

    def __call__(self, parts: Iterable[index_tasks.Share]) -> Iterator[Answered]:
        raise RuntimeError("this executor was lost")

"""Tasks that fail; a module of its own, because Spark's workers import it by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext

from mdt.engines.spark import failures, index_tasks, tasks
from mdt.errors import Corrupt
from mdt.plan.row_sets import Answered

_write = tasks.write


def fails_first(work: tasks.Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write, then lose what the first attempt would have told."""
    done = list(_write(work, batches))
    context = TaskContext.get()
    assert context is not None
    if done and context.attemptNumber() == 0:
        raise RuntimeError("this executor was lost")
    yield from done


def finds_damage(work: tasks.Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write, then meet an error of mdt."""
    done = list(_write(work, batches))
    with failures.in_task():
        if done:
            raise Corrupt("a block is damaged", path="p", offset=3, hint="restore it")
    yield from done


def loses_its_executor(work: tasks.Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write, then fail for a reason that is none of ours."""
    if list(_write(work, batches)):
        raise RuntimeError("this executor was lost")
    yield from ()


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

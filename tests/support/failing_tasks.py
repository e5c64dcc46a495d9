"""Tasks that fail; a module of its own, because Spark's workers import it by name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from mdt.engines import index_tasks, write_tasks
from mdt.errors import Corrupt
from mdt.plan.position_search import Answer

_write = write_tasks.write
_answer = index_tasks.answer


def fails_first(
    work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int
) -> bytes | None:
    """Write, then lose what the first attempt would have told."""
    done = _write(work, batches, attempt)
    context = TaskContext.get()
    assert context is not None
    if done and context.attemptNumber() == 0:
        raise RuntimeError("this executor was lost")
    return done


def finds_damage(
    work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int
) -> bytes | None:
    """Write, then meet an error of mdt."""
    if _write(work, batches, attempt):
        raise Corrupt("a block is damaged", path="p", offset=3, hint="restore it")
    return None


def loses_its_executor(
    work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int
) -> bytes | None:
    """Write, then fail for a reason that is none of ours."""
    if _write(work, batches, attempt):
        raise RuntimeError("this executor was lost")
    return None


def kills_its_worker(
    question: index_tasks.Question, share: index_tasks.Share, attempt: int
) -> Answer:
    """Answer a share of a query; the first attempt of each task takes its Python process along."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        os._exit(1)
    return _answer(question, share, attempt)


def always_fails(question: index_tasks.Question, share: index_tasks.Share, attempt: int) -> Answer:
    """Lose every attempt."""
    raise RuntimeError("this executor was lost")

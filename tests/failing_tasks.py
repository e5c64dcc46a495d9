"""Tasks that fail; a module of its own, because Spark's workers import it by name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from mdt.engines import straight, write_tasks
from mdt.engines.spark import index_tasks
from mdt.errors import Corrupt, CorruptInput
from mdt.plan.position_search import Answer

_write = write_tasks.write
_write_straight = straight.write
_answer = index_tasks.answer


def fails_first(work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then lose what the first attempt would have told."""
    done = _write(work, batches, attempt)
    context = TaskContext.get()
    assert context is not None
    if done and context.attemptNumber() == 0:
        raise RuntimeError("this executor was lost")
    return done


def finds_damage(work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then meet an error of mdt."""
    if _write(work, batches, attempt):
        raise Corrupt("a block is damaged", path="p", offset=3, hint="restore it")
    return None


def loses_its_executor(work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then fail for a reason that is none of ours."""
    if _write(work, batches, attempt):
        raise RuntimeError("this executor was lost")
    return None


def dies_first(work: straight.StraightLoad, share: straight.Share, attempt: int) -> bytes:
    """Write the file of a share; the first attempt of each task takes its Python process along then."""
    done = _write_straight(work, share, attempt)
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        os._exit(1)
    return done


def finds_damage_straight(work: straight.StraightLoad, share: straight.Share, attempt: int) -> bytes:
    """Write the file of a share, then find that its files are not what they say."""
    _write_straight(work, share, attempt)
    raise CorruptInput("a Parquet file cannot be read", path="p")


def kills_its_worker(question: index_tasks.Question, share: index_tasks.Share, attempt: int) -> Answer:
    """Answer a share of a query; the first attempt of each task takes its Python process along."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        os._exit(1)
    return _answer(question, share, attempt)


def always_fails(question: index_tasks.Question, share: index_tasks.Share, attempt: int) -> Answer:
    """Lose every attempt."""
    raise RuntimeError("this executor was lost")

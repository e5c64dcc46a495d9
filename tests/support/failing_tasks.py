"""Tasks that fail. A separate module, because Spark's workers import it by name."""

import os

from pyspark import TaskContext

from mdt.engines import index_tasks, write_tasks
from mdt.errors import Corrupt

_write = write_tasks.write
_answer = index_tasks.answer


def fails_first(work, batches, attempt):
    """Write, then lose the result of the first attempt."""
    result = _write(work, batches, attempt)
    context = TaskContext.get()
    assert context is not None
    if result and context.attemptNumber() == 0:
        raise RuntimeError("this executor was lost")
    return result


def finds_damage(work, batches, attempt):
    """Write, then raise an error of mdt."""
    if _write(work, batches, attempt):
        raise Corrupt("a block is damaged", path="p", offset=3, hint="restore it")


def loses_its_executor(work, batches, attempt):
    """Write, then fail for a reason outside mdt."""
    if _write(work, batches, attempt):
        raise RuntimeError("this executor was lost")


def kills_its_worker(question, share, attempt):
    """Answer a share of a query. The first attempt of each task kills its Python process."""
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        os._exit(1)
    return _answer(question, share, attempt)


def always_fails(question, share, attempt):
    """Fail every attempt."""
    raise RuntimeError("this executor was lost")

"""Tables whose rows are written, and whose indexes are built, by the processes of another
engine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spilled import SpilledTable

import mdt
from mdt.engines import merge_on_engine, tasks, write_tasks
from mdt.engines import write as writes
from mdt.engines.conditional_tasks import EngineConditional
from mdt.engines.indexing import IndexRunner
from mdt.engines.rewriting import EngineRewrite
from mdt.errors import Corrupt
from mdt.progress import Progress
from mdt.schema.input import to_table
from mdt.services.indexing import index_builder
from mdt.services.indexing.index_builder import BuildResult
from mdt.services.layout.rewriting import RewriteRunner
from mdt.stores.storage import LocalStorage
from mdt.table.merging import Runner, Whole
from mdt.testing.local_engine import LocalEngine
from mdt.testing.process_pool import process_engine
from mdt.write.blending import Kept

_write, _rewrite = write_tasks.write, tasks.rewrite


def _done(*given: Any) -> None:
    """Do what the task was to do: write rows, or rewrite files."""
    work = _write if isinstance(given[0], write_tasks.Work) else _rewrite
    work(*given)


def finds_damage(*given: Any) -> Any:
    """Write, then meet an error of mdt."""
    _done(*given)
    raise Corrupt("a block is damaged", path="p", offset=3)


def dies(*given: Any) -> Any:
    """Write, then die without a word."""
    _done(*given)
    os._exit(1)


def copies(start: Path) -> Callable[[], LocalStorage]:
    """Return what gives the table in the folder ``start`` again and again, each time in a new
    folder beside it.
    """
    numbers = count()
    return lambda: LocalStorage(
        shutil.copytree(start, start.with_name(f"copy-{next(numbers)}")), durable=False
    )


@cache
def processes() -> LocalEngine:
    """Return the engine that all tests of this process share."""
    return process_engine()


@cache
def thread() -> LocalEngine:
    """Return an engine of one thread, whose tasks are given the open table: what it does repeats
    exactly, also in memory.
    """
    return LocalEngine(ThreadPoolExecutor(1), 1, is_here=True)


class ThreadTable(mdt.Table):
    """A table whose rows tasks on one thread write, delete and merge: what they do repeats exactly,
    also in memory.
    """

    def _engine(self) -> LocalEngine:
        return thread()

    def _in_tasks(self, data: Any, name: str, *more: Any) -> mdt.WriteResult:
        self._before_rows()
        rows, engine = to_table(data, self.schema), self._engine()
        operation = writes.write(
            engine, self.metadata, self.options, [rows], rows.schema, name, *more
        )
        return mdt.WriteResult.of(self._commit_rows(operation), engine=engine.name)

    def _write_rows(
        self,
        data: Any,
        name: str,
        progress: Progress | None,
        kept: Kept | None = None,
        ends: Sequence[str] | None = None,
    ) -> mdt.WriteResult:
        return self._in_tasks(data, name, progress, kept, ends)

    def _delete_rows(self, keys: Any, progress: Progress | None) -> mdt.WriteResult:
        return self._in_tasks(keys, "delete", progress)

    def _to_merge(
        self, source: Any, *, looks: bool = False
    ) -> tuple[pa.Table, Runner | None, Whole | None]:
        rows = to_table(source, self.schema)
        merge = partial(
            merge_on_engine.merge, self._engine(), self.metadata, self.options, [rows], rows.schema
        )
        return rows.schema.empty_table(), merge, None


class PooledTable(ThreadTable):
    """A table that a user of an engine of processes would have."""

    def _engine(self) -> LocalEngine:
        return processes()

    def _choosing_on(self, spark: Any) -> Callable[..., EngineConditional]:
        return partial(EngineConditional, engine=self._engine())

    def _rewriting_on(self, spark: Any) -> RewriteRunner:
        return EngineRewrite(self._engine())

    def _build(self, specs: Sequence[str], progress: Progress | None, spark: Any) -> BuildResult:
        return index_builder.build(
            self.metadata, self.options, specs, progress, IndexRunner(self._engine())
        )


EVERY_KIND = pytest.mark.parametrize("kind", [mdt.Table, ThreadTable, SpilledTable])
"""Rows that the calling thread has, that tasks have, and that tasks have in scratch files."""

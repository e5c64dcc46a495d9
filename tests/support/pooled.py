"""Tables whose rows are written, and whose indexes are built, by the processes of another
engine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import mdt
from mdt.engines import merge_on_engine, write_tasks
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

_write = write_tasks.write


def finds_damage(
    work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int
) -> bytes | None:
    """Write, then meet an error of mdt."""
    _write(work, batches, attempt)
    raise Corrupt("a block is damaged", path="p", offset=3)


def dies(work: write_tasks.Work, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write, then die without a word."""
    _write(work, batches, attempt)
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


def merged_by(
    engine: LocalEngine, table: mdt.Table, source: Any
) -> tuple[pa.Table, Runner | None, Whole | None]:
    """Return what :class:`mdt.table.merging.Merging` is given to merge ``source`` in tasks."""
    rows = to_table(source, table.schema)
    given = partial(
        merge_on_engine.merge, engine, table.metadata, table.options, [rows], rows.schema
    )
    return rows.schema.empty_table(), given, None


class ThreadTable(mdt.Table):
    """A table into which tasks merge rows, on one thread."""

    def _to_merge(
        self, source: Any, *, looks: bool = False
    ) -> tuple[pa.Table, Runner | None, Whole | None]:
        return merged_by(thread(), self, source)


class PooledTable(mdt.Table):
    """A table that a user of such an engine would have."""

    def _write_rows(
        self,
        data: Any,
        name: str,
        progress: Progress | None,
        kept: Kept | None = None,
        ends: Sequence[str] | None = None,
    ) -> mdt.WriteResult:
        self._before_rows()
        rows = to_table(data, self.schema)
        operation = writes.write(
            processes(),
            self.metadata,
            self.options,
            [rows],
            rows.schema,
            name,
            progress,
            kept,
            ends,
        )
        return mdt.WriteResult.of(self._commit_rows(operation), engine=processes().name)

    def _delete_rows(self, keys: Any, progress: Progress | None) -> mdt.WriteResult:
        self._before_rows()
        rows = to_table(keys, self.schema)
        operation = writes.write(
            processes(), self.metadata, self.options, [rows], rows.schema, "delete", progress
        )
        return mdt.WriteResult.of(self._commit_rows(operation), engine=processes().name)

    def _to_merge(
        self, source: Any, *, looks: bool = False
    ) -> tuple[pa.Table, Runner | None, Whole | None]:
        return merged_by(processes(), self, source)

    def _choosing_on(self, spark: Any) -> Callable[..., EngineConditional]:
        return partial(EngineConditional, engine=processes())

    def _rewriting_on(self, spark: Any) -> RewriteRunner:
        return EngineRewrite(processes())

    def _build(self, specs: Sequence[str], progress: Progress | None, spark: Any) -> BuildResult:
        return index_builder.build(
            self.metadata, self.options, specs, progress, IndexRunner(processes())
        )

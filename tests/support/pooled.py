"""Tables whose rows are written, and whose indexes are built, by the processes of another
engine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spilled import SpilledTable

import mdt
from mdt.config import Options
from mdt.engines import choice, tasks, write_tasks
from mdt.engines.engine import Engine, EngineInput
from mdt.errors import Corrupt
from mdt.schema.definition import TableDefinition
from mdt.schema.evolve import add_missing_columns
from mdt.schema.input import to_table
from mdt.stores.storage import LocalStorage
from mdt.testing.local_engine import LocalEngine
from mdt.testing.process_pool import process_engine

_write, _rewrite = write_tasks.write, tasks.rewrite


def _run_task(*arguments: Any) -> None:
    """Run the task: write rows, or rewrite files."""
    work = _write if isinstance(arguments[0], write_tasks.BucketTask) else _rewrite
    work(*arguments)


def finds_damage(*arguments: Any) -> Any:
    """Write, then raise an error of mdt."""
    _run_task(*arguments)
    raise Corrupt("a block is damaged", path="p", offset=3)


def dies(*arguments: Any) -> Any:
    """Write, then end the process without an error."""
    _run_task(*arguments)
    os._exit(1)


def copies(start: Path) -> Callable[[], LocalStorage]:
    """Return a function that copies the table in the folder ``start`` to a new folder beside it,
    and returns the storage of the copy.
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
    """Return an engine of one thread whose tasks get the open table. Its operations repeat exactly,
    also in memory.
    """
    return LocalEngine(ThreadPoolExecutor(1), 1, is_in_process=True)


@dataclass(frozen=True)
class PooledRows:
    """Rows held by an engine of tests: a :class:`mdt.engines.engine.EngineInput`."""

    engine: LocalEngine
    table: pa.Table

    @property
    def rows(self) -> list[pa.Table]:
        return [self.table]

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def few(self, options: Options, *, looks: bool = False) -> pa.Table | None:
        return None

    def select_columns(self, names: Sequence[str]) -> PooledRows:
        return self

    def evolved_schema(self, table_schema: pa.Schema) -> pa.Schema:
        return self.schema

    def add_missing_columns(self, definition: TableDefinition) -> PooledRows:
        return replace(self, table=add_missing_columns(self.table, definition))


class Pool:
    """The session that a user of such an engine passes."""


def engine_input(data: Any, table_columns: Sequence[str]) -> PooledRows | None:
    """See :data:`mdt.engines.choice.ENGINE_MODULES`."""
    return data if isinstance(data, PooledRows) else None


def engine_of(session: Any) -> LocalEngine:
    """See :data:`mdt.engines.choice.ENGINE_MODULES`."""
    return processes()


def schema(schema: Any) -> Any:
    """See :data:`mdt.engines.choice.ENGINE_MODULES`."""
    return schema


choice.ENGINE_MODULES["pooled"] = __name__


class ThreadTable(mdt.Table):
    """A table whose rows are written, deleted and merged by tasks on one thread. Its operations
    repeat exactly, also in memory.
    """

    def _holder(self) -> LocalEngine:
        return thread()

    def _given(self, data: Any) -> EngineInput[Any] | None:
        is_pooled = isinstance(data, PooledRows)
        return super()._given(
            data if is_pooled else PooledRows(self._holder(), to_table(data, self.schema))
        )


class PooledTable(ThreadTable):
    """A table that hands all of its work to an engine of processes."""

    def _holder(self) -> LocalEngine:
        return processes()

    def _engine(self, spark: Any) -> Engine[Any] | None:
        return super()._engine(Pool())


EVERY_KIND = pytest.mark.parametrize("kind", [mdt.Table, ThreadTable, SpilledTable])
"""Rows that are held by the calling thread, by tasks, and by tasks in scratch files."""

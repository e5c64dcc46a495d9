"""An engine whose rows are Arrow tables in this process, and whose tasks run on an executor.

It is the shortest implementation of the protocol. :mod:`mdt.testing.process_pool` runs it on
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from indexes.key_hash import KeyHash
from mdt.engines import tasks
from mdt.engines.engine import BatchFunction, BucketAssignment, ResultFunction, S, T
from mdt.engines.parting import by_part, part_of, sample_evenly
from mdt.errors import Unavailable

Parts = list[pa.Table]
"""Rows of this engine: a table per part."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An :class:`mdt.engines.engine.Engine` on ``executor``, which runs ``processors`` tasks at a
    time.
    """

    executor: Executor
    processors: int
    name: str = "arrow"
    is_in_process: bool = False
    _attempts: Iterator[int] = field(default_factory=count)

    def distribute(self, table: pa.Table) -> Parts:
        """Distribute the rows of ``table``, one part per processor."""
        return _split(table, np.arange(len(table)) % self.processors, self.processors)

    def union(self, first: Parts, second: Parts) -> Parts:
        """Return the parts of both."""
        return [*first, *second]

    def group_by(self, rows: Parts, names: Sequence[str], key_hash: KeyHash | None = None) -> Parts:
        """Partition the rows by the columns ``names``, one part per processor."""
        if not names:
            return rows
        table = pa.concat_tables(rows)
        return _split(table, part_of(table, names, self.processors, key_hash), self.processors)

    def map_parts(
        self, rows: Parts, function: BatchFunction, schema: pa.Schema, key: Sequence[str] = ()
    ) -> Parts:
        """Apply ``function`` to each part."""
        return self._run(partial(_mapped, function, schema), rows)

    def release(self, rows: Parts) -> None:
        """Do nothing: the rows are freed with their last reference."""

    def count_tagged(self, rows: Parts) -> pa.Table:
        """Count the rows of each kind, partition and file group."""
        return tasks.count_rows(pa.concat_tables(rows))

    def select(
        self, rows: Parts, kind: int, names: Sequence[str], rows_max: int | None = None
    ) -> pa.Table:
        """Return columns of the rows of a kind, at most ``rows_max``."""
        return tasks.select_rows(pa.concat_tables(rows), kind, names).slice(0, rows_max)

    def sample_inserts(
        self, rows: Parts, partitions: Sequence[str], key: Sequence[str], share: float
    ) -> pa.Table:
        """Return a sample of about ``share`` of the inserts into ``partitions``."""
        return sample_evenly(tasks.insert_keys(pa.concat_tables(rows), partitions, key), share)

    def shuffle_to_buckets(self, rows: Parts, assignment: BucketAssignment) -> Parts:
        """Shuffle the rows by bucket. All rows of a bucket are in the same part."""
        schema = rows[0].schema.append(pa.field(tasks.BUCKET, pa.int32()))
        table = pa.concat_tables(
            self.map_parts(rows, partial(tasks.assign_buckets, assignment), schema)
        )
        return _split(table, table[tasks.BUCKET].to_numpy() % assignment.tasks, assignment.tasks)

    def collect_results(self, rows: Parts, function: ResultFunction) -> list[bytes]:
        """Apply ``function`` to each part and collect the results that are not None."""
        return [
            result for result in self._run(partial(_result, function), rows) if result is not None
        ]

    def map_shares(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Apply ``function`` to each share."""
        return self._run(function, shares)

    def _run(self, function: Callable[[S, int], T], shares: Iterable[S]) -> list[T]:
        """Call ``function`` for each share in a task of its own. All tasks have ended when this
        returns or raises.
        """
        started = [self.executor.submit(function, share, next(self._attempts)) for share in shares]
        try:
            failed = [error for task in started if (error := task.exception()) is not None]
            if failed:
                raise failed[0]
            return [task.result() for task in started]
        except BrokenExecutor as error:
            raise Unavailable(
                f"a worker process died: {error}", hint="nothing was committed; try again"
            ) from error


def _split(table: pa.Table, part: Int64Array, parts: int) -> Parts:
    """Split ``table`` by ``part``, the part number of each row."""
    tables = dict(by_part(table, part))
    return [tables.get(number, table.slice(0, 0)) for number in range(parts)]


def _mapped(function: BatchFunction, schema: pa.Schema, table: pa.Table, attempt: int) -> pa.Table:
    """The body of a map task, importable by name for worker processes."""
    return pa.Table.from_batches(function(iter(table.to_batches()), attempt), schema)


def _result(function: ResultFunction, table: pa.Table, attempt: int) -> bytes | None:
    """The body of a task that returns a result for its rows."""
    return function(iter(table.to_batches()), attempt)

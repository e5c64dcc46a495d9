"""An engine for rows that do not fit into memory: they are stored in scratch files, and threads of
this process take turns with parts of them.

A part is a list of blocks, each a compressed Arrow batch. Memory is bounded for rows that wait to
be written and for the rows of running tasks, unless a single part is larger. The blocks of a part
keep the order of its rows, so the last row of a key is the newest, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from threading import Condition, Lock

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from indexes.key_hash import KeyHash
from mdt.engines import tasks
from mdt.engines.engine import BatchFunction, BucketAssignment, ResultFunction, S, T
from mdt.engines.parting import by_part, part_of, sample_evenly
from mdt.progress import Progress
from mdt.stores.malloc_trim import release_memory
from mdt.stores.scratch import Scratch

PARTS = 256
"""Number of parts of rows that are grouped by key. With 1 GiB of memory a part may have 32 MiB, so
inputs of up to 8 GiB need no oversized part.
"""
SHARE = 8
"""Divisor of the memory for rows themselves. Processing them takes the rest."""
THREADS_MAX = SHARE
"""Maximum number of threads, each with an equal share of the memory for rows."""
ROW_BYTES = 64
"""Memory that a row of any width takes besides its values (key, hashes, meta columns, positions),
counted as rows' memory.
"""
_ARROW_TIMES = 3
"""Size of rows as Arrow relative to their size in a file."""
_CODEC = "lz4_raw"
PartOf = Callable[[pa.Table], Int64Array]
"""Returns the part of each of n rows -> int64[n]."""


@dataclass(frozen=True, slots=True)
class Block:
    """Location of a batch: ``start`` and ``size`` in the scratch file, ``memory`` in bytes of
    Arrow, and the number of ``rows``.
    """

    start: int
    size: int
    memory: int
    rows: int


@dataclass(frozen=True, slots=True)
class Spilled:
    """Rows on disk. ``by``: the columns that group rows into parts, or (). ``names``: the visible
    columns, None for all.

    ``beside``: part -> bytes of other rows that its task holds.
    """

    scratch: Scratch
    schema: pa.Schema
    by: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    parts: dict[int, list[Block]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    beside: Mapping[int, int] = field(default_factory=dict)

    @property
    def visible_schema(self) -> pa.Schema:
        """The visible columns."""
        return self.schema if self.names is None else pa.schema(map(self.schema.field, self.names))

    def add(self, part: int, table: pa.Table) -> None:
        """Append rows to a part."""
        for batch in table.combine_chunks().to_batches():
            plain = batch.serialize()
            data = pa.compress(plain, _CODEC)
            block = Block(self.scratch.append(data), len(data), len(plain), len(batch))
            with self.lock:
                self.parts.setdefault(part, []).append(block)

    def batches(self, parts: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts."""
        for part in parts:
            for block in self.parts[part]:
                data = pa.decompress(
                    self.scratch.read(block.start, block.size), block.memory, _CODEC
                )
                batch = pa.ipc.read_record_batch(data, self.schema)
                yield batch if self.names is None else batch.select(list(self.names))

    def table(self) -> pa.Table:
        """Return all rows as a table in memory."""
        return pa.Table.from_batches(self.batches(sorted(self.parts)), self.visible_schema)

    def memory(self, part: int) -> int:
        """Return the memory of a part's rows in bytes (:func:`weight`)."""
        return self.beside.get(part, 0) + sum(
            weight(block.memory, block.rows) for block in self.parts[part]
        )

    def runs(self, memory_max: int) -> list[tuple[list[int], int]]:
        """Return runs of adjacent parts with at most ``memory_max`` bytes, and the bytes of each
        run. A single part may be larger.
        """
        groups: list[tuple[list[int], int]] = []
        for part in sorted(self.parts):
            size = self.memory(part)
            if groups and groups[-1][1] + size <= memory_max:
                groups[-1] = ([*groups[-1][0], part], groups[-1][1] + size)
            else:
                groups.append(([part], size))
        return groups


def weight(memory: int, rows: int) -> int:
    """Return the memory that ``rows`` rows of ``memory`` bytes of Arrow count for."""
    return memory + ROW_BYTES * rows


class Spiller:
    """Appends rows to the parts of ``rows`` chosen by ``part_of``, and buffers about ``memory_max``
    bytes. Not thread-safe.
    """

    def __init__(self, rows: Spilled, part_of: PartOf, memory_max: int) -> None:
        self._rows = rows
        self._part_of = part_of
        self._memory_max = memory_max
        self._waiting: list[pa.Table] = []
        self._memory = 0

    def add(self, table: pa.Table) -> None:
        """Add rows after all earlier rows."""
        self._waiting.append(table)
        self._memory += weight(table.nbytes, len(table))
        if self._memory > self._memory_max:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting, self._memory = [], 0
        by_number = by_part(table, self._part_of(table))
        del table  # free the rows in their old order
        for number, rows in by_number:
            self._rows.add(number, rows)


class _MemoryGate:
    """Admits tasks while together they need at most ``memory_max`` bytes. A single task may need
    more.
    """

    def __init__(self, memory_max: int) -> None:
        self._memory_max = memory_max
        self._taken = 0
        self._changed = Condition()

    def enter(self, memory: int) -> None:
        """Wait until the memory is available."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._taken or self._taken + memory <= self._memory_max
            )
            self._taken += memory

    def leave(self, memory: int) -> None:
        """Release memory."""
        with self._changed:
            self._taken -= memory
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class SpillingEngine:
    """An :class:`mdt.engines.engine.Engine` whose rows are in scratch files in ``directory``.

    ``memory_max``: memory in bytes for rows and their processing. ``progress``: called with the
    number of parts written so far and in total.
    """

    memory_max: int
    directory: str
    processors: int
    progress: Progress | None = None
    name: str = "arrow"
    is_in_process: bool = True
    _attempts: Iterator[int] = field(default_factory=count)

    @property
    def _rows_memory(self) -> int:
        return max(1, self.memory_max // SHARE)

    def empty(self, schema: pa.Schema, by: Sequence[str] = ()) -> Spilled:
        """Return an empty set of rows."""
        return Spilled(Scratch(self.directory), schema, tuple(by))

    def spiller(self, rows: Spilled, part_of: PartOf) -> Spiller:
        """Return a writer that distributes rows to parts."""
        # Sorting needs three copies: the input, a single table, and the sorted rows.
        return Spiller(rows, part_of, self._rows_memory // 3)

    def distribute(self, table: pa.Table) -> Spilled:
        """Return the rows of ``table`` in the same part per processor."""
        spilled = self.empty(table.schema)
        for part in range(min(len(table), self.processors)):
            spilled.add(part, table.take(pa.array(np.arange(part, len(table), self.processors))))
        return spilled

    def union(self, first: Spilled, second: Spilled) -> Spilled:
        """Return the rows of both inputs. Blocks of ``second`` are copied into the scratch file of
        ``first``.
        """
        union = replace(first, by=(), parts=dict(first.parts), lock=Lock())
        offset = max(first.parts, default=-1) + 1
        for part in sorted(second.parts):
            copies = [
                replace(b, start=union.scratch.append(second.scratch.read(b.start, b.size)))
                for b in second.parts[part]
            ]
            union.parts[offset + part] = copies
        return union

    def group_by(
        self, rows: Spilled, names: Sequence[str], key_hash: KeyHash | None = None
    ) -> Spilled:
        """Return the rows with equal values of the columns ``names`` in the same part."""
        if not names or rows.by == tuple(names):
            return rows
        spilled = self.empty(rows.schema, names)
        self._redistribute(rows, spilled, partial(part_by, tuple(names)))
        return spilled

    def map_parts(
        self, rows: Spilled, function: BatchFunction, schema: pa.Schema, key: Sequence[str] = ()
    ) -> Spilled:
        """Return the rows that ``function`` makes of each part."""
        spilled = self.empty(schema)

        def map_run(parts: list[int], attempt: int) -> None:
            for batch in function(rows.batches(parts), attempt):
                spilled.add(parts[0], pa.Table.from_batches([batch], schema))

        self._run(map_run, rows.runs(self._rows_memory // self.processors))
        return spilled

    def release(self, rows: Spilled) -> None:
        """Delete the scratch file of ``rows``."""
        rows.scratch.close()

    def count_tagged(self, rows: Spilled) -> pa.Table:
        """Count the rows of each kind, partition and file group."""
        tables = [tasks.COUNTS.empty_table()]
        for batch in self._all_batches(rows):
            tables.append(tasks.count_rows(pa.Table.from_batches([batch])))
        by = tasks.COUNTED.names
        sums = pa.concat_tables(tables).group_by(by).aggregate([("rows", "sum"), ("total", "sum")])
        return sums.select([*by, "rows_sum", "total_sum"]).rename_columns(tasks.COUNTS.names)

    def select(
        self, rows: Spilled, kind: int, names: Sequence[str], rows_max: int | None = None
    ) -> pa.Table:
        """Return columns of the rows of a kind, at most ``rows_max`` rows."""
        tables = [pa.schema([rows.schema.field(name) for name in names]).empty_table()]
        for batch in self._all_batches(rows):
            tables.append(pa.Table.from_batches([tasks.select_rows(batch, kind, names)]))
            if rows_max is not None and sum(map(len, tables)) >= rows_max:
                break
        return pa.concat_tables(tables).slice(0, rows_max)

    def sample_inserts(
        self, rows: Spilled, partitions: Sequence[str], key: Sequence[str], share: float
    ) -> pa.Table:
        """Return about the fraction ``share`` of the inserts into ``partitions``."""
        parts = (
            tasks.insert_keys(pa.Table.from_batches([batch]), partitions, key)
            for batch in self._all_batches(rows)
        )
        return pa.concat_tables(
            [tasks.SAMPLED.empty_table(), *(sample_evenly(part, share) for part in parts)]
        )

    def shuffle_to_buckets(self, rows: Spilled, assignment: BucketAssignment) -> Spilled:
        """Return the rows of buckets, a part per bucket."""
        columns = pa.schema([field for field in rows.schema if field.name not in tasks.TAG_ONLY])
        spilled = self.empty(columns.append(pa.field(tasks.BUCKET, pa.int32())))
        spiller = self.spiller(
            spilled, lambda table: table[tasks.BUCKET].to_numpy().astype(np.int64)
        )
        for batch in self._all_batches(rows):
            for assigned in tasks.assign_buckets(assignment, iter([batch])):
                spiller.add(pa.Table.from_batches([assigned]).drop_columns(list(tasks.TAG_ONLY)))
        spiller.flush()
        stored = {
            bucket: weight(_ARROW_TIMES * size, rows)
            for bucket, (size, rows) in assignment.carried.items()
        }
        return replace(spilled, beside=stored)

    def collect_results(self, rows: Spilled, function: ResultFunction) -> list[bytes]:
        """Return the results of ``function`` over all parts, without None."""
        runs = rows.runs(self._rows_memory // self.processors)
        values = self._run(
            lambda parts, attempt: function(rows.batches(parts), attempt), runs, self.progress
        )
        return [value for value in values if value is not None]

    def map_shares(self, function: Callable[[S, int], T], shares: Sequence[S]) -> list[T]:
        """Return the result of ``function`` for each share."""

        def task(share: S, attempt: int) -> T:
            try:
                return function(share, attempt)
            finally:
                release_memory()

        results: list[T] = []
        with ThreadPoolExecutor(self.processors) as pool:
            for result in pool.map(task, shares, self._attempts):
                results.append(result)
                if self.progress is not None:
                    self.progress(len(results), len(shares))
        return results

    def _all_batches(self, rows: Spilled) -> Iterator[pa.RecordBatch]:
        return rows.batches(sorted(rows.parts))

    def _redistribute(self, rows: Spilled, to: Spilled, part_of: PartOf) -> None:
        spiller = self.spiller(to, part_of)
        for batch in self._all_batches(rows):
            spiller.add(pa.Table.from_batches([batch]))
        spiller.flush()

    def _run(
        self,
        function: Callable[[list[int], int], T],
        runs: Sequence[tuple[list[int], int]],
        progress: Progress | None = None,
    ) -> list[T]:
        """Call ``function`` for each run of parts, in a task per run. All tasks have ended when
        this returns or raises.
        """
        room, total = _MemoryGate(self._rows_memory), sum(len(parts) for parts, _ in runs)
        finished: list[int] = []

        def task(parts: list[int], memory: int, attempt: int) -> T:
            try:
                return function(parts, attempt)
            finally:
                release_memory()
                finished.append(len(parts))
                room.leave(memory)

        def report() -> None:
            if progress is not None and finished:
                progress(sum(finished), total)

        started: list[Future[T]] = []
        with ThreadPoolExecutor(self.processors) as pool:
            for parts, memory in runs:
                room.enter(memory)
                if any(future.done() and future.exception() is not None for future in started):
                    room.leave(memory)
                    break
                report()
                started.append(pool.submit(task, parts, memory, next(self._attempts)))
        results = [future.result() for future in started]
        report()
        return results


def part_by(names: tuple[str, ...], table: pa.Table) -> Int64Array:
    """Return the part of each row by the columns ``names`` -> int64[n]."""
    return part_of(table, names, PARTS)

"""Runs a scan plan in this process: reads row groups or pages that may match, in threads and in
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import take_rows
from indexes.functions import FunctionFailed
from indexes.paths import top_levels
from indexes.predicate import Call, Predicate, bind, columns, leaves
from mdt.errors import Invalid
from mdt.hudi.avro_schema import with_meta
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.pages import RowSelection, read_pages
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import live_mask, read_columns
from mdt.plan.planner import ScanPlan, SegmentScan, row_groups_with
from mdt.progress import Progress, report_each
from mdt.scan.scan_tasks import RowGroups, Rows, TaskSplitter, batches, page_request

_LATE_ROWS = 8_192
"""With fewer rows, opening a file twice costs more than reading the untested columns of all
rows.
"""

_RUN_ROWS = 64
"""Reordered rows are returned as zero-copy slices if contiguous runs are at least this long on
average.
"""

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
FileRows = tuple[int, Int64Array]
"""A file number and positions of rows in the file, ascending and not empty."""


def read(
    metadata: Metadata,
    plan: ScanPlan,
    names: Sequence[str],
    *,
    threads: int,
    progress: Progress | None = None,
) -> Iterator[pa.Table]:
    """Yield the matching rows with columns ``names``, one table per task that found any.

    Args:
        progress: Called with the number of completed tasks and of all tasks.
    """
    reader = _Reader(metadata, plan, tuple(names))
    tasks = reader.tasks(threads)
    yield from (
        table
        for _, table in report_each(_run(reader, tasks, threads), len(tasks), progress)
        if len(table)
    )


def read_at(
    metadata: Metadata,
    snapshot: Snapshot,
    rows: Sequence[FileRows],
    names: Sequence[str],
    *,
    threads: int,
) -> tuple[pa.Table, Int64Array]:
    """Return columns ``names`` of live rows, and their places: file number << 32 | position,
    int64[n].
    """
    all_fields = with_meta(snapshot.definition.schema)
    schema = pa.schema([all_fields.field(name) for name in frozenset(names)])
    pages, scans = list[RowSelection](), list[SegmentScan]()
    segments = [snapshot.segment(number) for number, _ in rows]
    metadata.objects.read_page_maps(segment.page_map for segment in segments)
    for (number, positions), segment in zip(rows, segments, strict=True):
        request = page_request(
            metadata, snapshot.definition, number, segment, positions, segment.rows, schema
        )
        if request is None:
            scans.append(_scan(number, positions, segment))
        else:
            pages.append(request)
    reader = _Reader(metadata, ScanPlan(snapshot, None, tuple(scans), ()), tuple(names))
    tasks = [*(reader.tasks(threads) if scans else ()), *batches(pages, threads)]
    results = [(table, _places(task)) for task, table in _run(reader, tasks, threads)]
    if len(results) == 1:
        return results[0]
    tables, places = [reader.schema.empty_table()], [np.empty(0, np.int64)]
    return pa.concat_tables([*tables, *(table for table, _ in results)]), np.concatenate(
        [*places, *(place for _, place in results)]
    )


def by_file(places: Int64Array) -> Iterator[FileRows]:
    """Yield the rows at ``places`` (file number << 32 | position, ascending) by file.

    >>> [(file, rows.tolist()) for file, rows in by_file(np.array([7, 9, 1 << 32 | 4]))]
    [(0, [7, 9]), (1, [4])]
    """
    for part in np.split(places, np.flatnonzero(np.diff(places >> 32)) + 1):
        if len(part):
            yield int(part[0] >> 32), part & 0xFFFFFFFF


def read_places(
    metadata: Metadata,
    snapshot: Snapshot,
    requested: Int64Array,
    names: Sequence[str],
    *,
    threads: int,
) -> pa.Table:
    """Return columns ``names`` of the rows at the places ``requested`` in this order.

    A place is file number << 32 | position, and may occur twice.
    """
    places = requested
    if not bool((np.diff(requested) > 0).all()):
        places = np.unique(requested)
    table, places_read = read_at(metadata, snapshot, list(by_file(places)), names, threads=threads)
    if np.array_equal(places_read, requested):
        return table
    order = np.argsort(places_read, kind="stable")  # it consists of a few sorted runs
    return _take_runs(table, order[np.searchsorted(places_read, requested, sorter=order)])


def _take_runs(table: pa.Table, rows: Int64Array) -> pa.Table:
    """Return ``rows`` of a table in this order, as slices if they form long runs."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) * _RUN_ROWS > len(rows):
        return take_rows(table, rows)
    sizes = np.diff(starts, append=len(rows))
    runs = zip(rows[starts].tolist(), sizes.tolist(), strict=True)
    return pa.concat_tables([table.slice(*run) for run in runs])


def _scan(number: int, positions: Int64Array, segment: Segment) -> SegmentScan:
    """Return the scan of the row groups that contain ``positions`` of a file."""
    bitmap = BitMap(positions.tolist())
    hit = row_groups_with(bitmap, np.array(segment.row_groups, np.int64))
    if hit is None:
        return SegmentScan(number, None, bitmap)
    return SegmentScan(number, tuple(np.flatnonzero(hit).tolist()), bitmap)


def _places(task: RowGroups | Rows) -> Int64Array:
    """Return the places of the rows of a task, as in :func:`read_at`."""
    if isinstance(task, Rows):
        return np.concatenate(
            [request.positions | (request.file << 32) for request in task.selections]
        )
    assert task.scan.positions is not None, "positions are set"
    positions = np.asarray(task.scan.positions.to_array()).astype(np.int64)
    starts = np.array([first for first, _ in task.starts])
    ends = np.array([first + rows for first, rows in task.starts])
    group = np.searchsorted(starts, positions, side="right") - 1
    inside = (group >= 0) & (positions < ends[group])
    return positions[inside] | (task.scan.file << 32)


def _run(
    reader: _Reader, tasks: Sequence[RowGroups | Rows], threads: int
) -> Iterator[tuple[RowGroups | Rows, pa.Table]]:
    """Yield each task with its result, in order, with a limited number of tasks in progress."""
    if len(tasks) < 2 or threads == 1:
        yield from ((task, reader.run(task)) for task in tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        running: deque[tuple[RowGroups | Rows, Future[pa.Table]]] = deque()
        try:
            for task in tasks:
                running.append((task, pool.submit(reader.run, task)))
                if len(running) > 2 * threads:
                    task_done, table = running.popleft()
                    yield task_done, table.result()
            while running:
                task_done, table = running.popleft()
                yield task_done, table.result()
        finally:
            for _, future in running:
                future.cancel()


class _Reader:
    """Runs tasks of a plan. Thread-safe."""

    def __init__(self, metadata: Metadata, plan: ScanPlan, names: tuple[str, ...]) -> None:
        self._storage = metadata.storage
        self._footers = metadata.objects.footers
        self._plan = plan
        self._names = list(names)
        schema = with_meta(plan.snapshot.definition.schema)
        if plan.predicate is None:
            self._schema = self._rest = pa.schema(
                [schema.field(name) for name in dict.fromkeys(names)]
            )
            self._tested, self._test = pa.schema([]), None
        else:
            tested = top_levels(schema, columns(plan.predicate))
            needed = tested | set(names)
            self._schema = pa.schema([f for f in schema if f.name in needed])
            self._tested = pa.schema([f for f in self._schema if f.name in tested])
            self._rest = pa.schema([f for f in self._schema if f.name not in tested])
            self._test = _row_test(plan.predicate, self._tested)
        self._splitter = TaskSplitter(metadata, plan, self._schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns to return."""
        return pa.schema([self._schema.field(name) for name in self._names])

    def tasks(self, threads: int) -> list[RowGroups | Rows]:
        """Return the tasks."""
        return self._splitter.split(threads)

    def run(self, task: RowGroups | Rows) -> pa.Table:
        """Return the matching rows of a task."""
        if isinstance(task, Rows):
            return self._filter_rows(self._pages(task.selections, self._schema))
        if self._is_late(task):
            return self._late(task)
        return self._filter_rows(self._groups(task, self._schema, self._mask(task)))

    def _filter_rows(self, table: pa.Table) -> pa.Table:
        if self._test is not None and len(table):
            table = table.filter(self._test(table.select(self._tested.names)))
        return table.select(self._names)

    def _groups(
        self, task: RowGroups, schema: pa.Schema, mask: BoolArray | None = None
    ) -> pa.Table:
        snapshot = self._plan.snapshot
        return read_columns(
            self._storage,
            snapshot.definition,
            snapshot.segment(task.scan.file),
            schema,
            row_groups=task.row_groups,
            mask=mask,
            use_threads=False,
            footers=self._footers,
        )

    def _pages(self, selections: Sequence[RowSelection], schema: pa.Schema) -> pa.Table:
        """Return columns of single rows, read by pages."""
        form = selections[0].form
        if form is None:
            return read_pages(self._storage, selections, schema)
        return form.convert(read_pages(self._storage, selections, form.stored))

    def _is_late(self, task: RowGroups) -> bool:
        """Return True to read the untested columns of passing rows only, which pays for many
        rows.
        """
        return bool(
            self._test is not None
            and len(self._tested)
            and len(self._rest)
            and task.rows >= _LATE_ROWS
        )

    def _late(self, task: RowGroups) -> pa.Table:
        """Return the matching rows: reads the tested columns of all rows, then other columns of the
        matches.
        """
        assert self._test is not None
        live = self._mask(task)
        tested = self._groups(task, self._tested, live)
        matching = self._test(tested)
        mask = matching.to_numpy()
        if live is not None:  # expand from live rows to all rows of the task
            places = np.flatnonzero(live)[mask]
            mask = np.zeros(len(live), np.bool_)
            mask[places] = True
        passed = np.flatnonzero(mask)
        if not len(passed):
            return self._schema.empty_table().select(self._names)
        request = self._splitter.select(task, passed, self._rest)
        if request is None:
            other_columns = self._groups(task, self._rest, mask)
        else:
            other_columns = self._pages([request], self._rest)
        result_columns = [*tested.filter(matching).columns, *other_columns.columns]
        return pa.table(result_columns, schema=pa.schema([*self._tested, *self._rest])).select(
            self._names
        )

    def _mask(self, task: RowGroups) -> BoolArray | None:
        dead = self._plan.snapshot.vector(task.scan.file)
        if dead is None and task.scan.positions is None:
            return None
        parts = []
        for first, rows in task.starts:
            live = live_mask(rows, dead, first)
            part = np.ones(rows, dtype=np.bool_) if live is None else live
            if task.scan.positions is not None:
                part &= _member_mask(task.scan.positions, first, rows)
            parts.append(part)
        mask = np.concatenate(parts)
        if bool(mask.all()):
            return None
        return mask


def _row_test(predicate: Predicate, schema: pa.Schema) -> Callable[[pa.Table], Any]:
    """Return the row test for ``schema``. It raises Invalid if a predicate function fails."""
    test = bind(predicate, schema)
    if not any(isinstance(leaf, Call) for leaf in leaves(predicate)):
        return test

    def run(table: pa.Table) -> Any:
        try:
            return test(table)
        except FunctionFailed as error:
            raise Invalid(
                str(error), hint="fix the function, or remove it from the filter"
            ) from error

    return run


def _member_mask(positions: BitMap, first: int, rows: int) -> BoolArray:
    mask = np.zeros(rows, dtype=np.bool_)
    at = np.asarray(positions.to_array()).astype(np.int64) - first
    mask[at[(at >= 0) & (at < rows)]] = True
    return mask

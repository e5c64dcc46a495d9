"""Splits a scan plan into tasks: runs of row groups, and single rows of many segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import in_batches, run_starts
from mdt.errors import Corrupt
from mdt.metadata.metadata import Metadata
from mdt.parquet.page_map import PageMap
from mdt.parquet.pages import RowSelection
from mdt.parquet.segment import Segment
from mdt.plan.planner import ScanPlan, SegmentScan, rows_in
from mdt.schema.definition import TableDefinition
from mdt.schema.older_files import form_of

UNIT_ROWS = 262_144
"""A segment with more rows is split into several tasks, to bound memory and keep all threads
busy.
"""
_BATCH_ROWS_MIN = 65_536
"""Decoding fewer rows is not worth a thread."""
_BLOCK_ROWS_MIN = 512
"""Minimum number of rows assumed to be decoded per page when comparing pages with row groups. Pages
of long strings have fewer rows, but each costs more.
"""
_OPEN_ROWS = 2_048
"""Cost of opening a file and its footer, in decoded rows."""

SMALL_ROWS = 2_048
"""Segments with up to this many rows, e.g. log files, are read by page even if all rows are
needed.
"""

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowGroups:
    """A run of row groups of a segment.

    Attributes:
        row_groups: Their numbers, or None for all.
        starts: First position and row count of each.
    """

    scan: SegmentScan
    row_groups: tuple[int, ...] | None
    starts: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(rows for _, rows in self.starts)


@dataclass(frozen=True, slots=True)
class Rows:
    """Single live rows of segments that can be read together.

    See :func:`mdt.parquet.pages.read_pages`.
    """

    selections: tuple[RowSelection, ...]


class TaskSplitter:
    """Splits a plan into tasks.

    Args:
        schema: Columns to read.
    """

    def __init__(self, metadata: Metadata, plan: ScanPlan, schema: pa.Schema) -> None:
        self._metadata = metadata
        self._plan = plan
        self._schema = schema
        segments = plan.snapshot.files.segments(plan.files)
        self._files: dict[int, Segment] = dict(zip(plan.files.tolist(), segments, strict=True))

    def split(self, threads: int) -> list[RowGroups | Rows]:
        """Return the tasks for ``threads`` threads."""
        self._read_page_maps()
        runs: list[RowGroups | Rows] = []
        single: list[RowSelection] = []
        for scan in self._plan.segments:
            file = self._files[scan.file]
            request = self._selection(scan, file)
            if request is None:
                runs += _runs(scan, file.row_groups)
            elif len(request.positions):
                single.append(request)
        return [*runs, *batches(single, threads)]

    def _read_page_maps(self) -> None:
        """Load all page maps for :meth:`_selection` at once."""
        files = ((scan, self._files[scan.file]) for scan in self._plan.segments)
        page_maps = (file.page_map for scan, file in files if self._may_be_by_pages(scan, file))
        self._metadata.objects.read_page_maps(page_maps)

    def _may_be_by_pages(self, scan: SegmentScan, file: Segment) -> bool:
        return len(self._schema) > 0 and (scan.positions is not None or file.rows <= SMALL_ROWS)

    def _selection(self, scan: SegmentScan, file: Segment) -> RowSelection | None:
        """Return the rows of a segment to read by page, or None if row groups are faster."""
        if not self._may_be_by_pages(scan, file):
            return None
        dead, positions = self._plan.snapshot.vector(scan.file), scan.positions
        if positions and scan.row_groups is None and positions.max() < file.rows:
            return self._page_request(
                scan.file, live_positions(positions, dead), file.rows, self._schema
            )
        rows = rows_in(file.row_groups, scan.row_groups)
        positions = rows if positions is None else rows & positions
        return self._page_request(
            scan.file, live_positions(positions, dead), len(rows), self._schema
        )

    def select(
        self, task: RowGroups, numbers: Int64Array, schema: pa.Schema
    ) -> RowSelection | None:
        """Return the rows ``numbers`` (ascending) of ``task`` to read by page, or None if row
        groups are faster.
        """
        first, rows = np.array(task.starts, dtype=np.int64).T
        before = run_starts(rows)
        row_group = np.searchsorted(before, numbers, side="right") - 1
        positions = numbers + (first - before)[row_group]
        return self._page_request(task.scan.file, positions, task.rows, schema)

    def _page_request(
        self, number: int, positions: Int64Array, rows: int, schema: pa.Schema
    ) -> RowSelection | None:
        definition, file = self._plan.snapshot.definition, self._files[number]
        return page_request(self._metadata, definition, number, file, positions, rows, schema)


def page_request(
    metadata: Metadata,
    definition: TableDefinition,
    number: int,
    file: Segment,
    positions: Int64Array,
    rows: int,
    schema: pa.Schema,
) -> RowSelection | None:
    """Return a request to read the columns ``schema`` of ``positions`` of file ``number`` by page.

    Returns None if that is impossible, or slower than reading ``rows`` rows by row groups. Page
    maps of older versions lack nested columns.
    """
    page_map, form = _page_map(metadata, file), form_of(definition, file.id, schema)
    stored = (schema if form is None else form.stored).names
    if page_map is None or not stored or not page_map.names.issuperset(stored):
        return None
    if not _are_few(positions, rows, page_map):
        return None
    offset, length = file.block_offset, file.block_length
    file_bytes = metadata.objects.data_files.get(file.path, file.size) if len(positions) else None
    parquet = None if file_bytes is None else file_bytes.slice(offset, length)
    return RowSelection(file.path, offset, length, parquet, page_map, positions, number, form)


def _page_map(metadata: Metadata, file: Segment) -> PageMap | None:
    """Return a segment's page map, or None if it is absent or damaged. Row groups are read without
    it.
    """
    try:
        page_map = None if file.page_map is None else metadata.objects.page_map(file.page_map)
    except Corrupt:
        return None
    if page_map is None:
        return None
    if page_map.rows == file.rows:
        return page_map
    return None


def batches(requests: Sequence[RowSelection], threads: int) -> list[Rows]:
    """Return the rows to read by page as tasks, enough for ``threads`` threads."""
    together: dict[object, list[RowSelection]] = {}
    for request in requests:
        together.setdefault((request.page_map.columns, request.form), []).append(request)
    return [rows for group in together.values() for rows in _batches(group, threads)]


def live_positions(positions: BitMap, dead: BitMap | None) -> Int64Array:
    """Return the live ``positions``, ascending int64[n]."""
    return np.asarray((positions if dead is None else positions - dead).to_array(), dtype=np.int64)


def _block_rows(page_map: PageMap) -> int:
    """Return the number of rows decoded to read a single row, averaged over the columns."""
    return max(_BLOCK_ROWS_MIN, page_map.rows * len(page_map.columns) // page_map.count)


def _decoded_rows(positions: Int64Array, block: int) -> int:
    """Return the number of rows decoded to read ascending ``positions`` from pages of ``block``
    rows.
    """
    if len(positions) < 2:
        return block * len(positions)
    pages = positions // block
    return block * (int(np.count_nonzero(pages[1:] != pages[:-1])) + 1)


def _are_few(positions: Int64Array, rows: int, page_map: PageMap) -> bool:
    """Return True if reading pages for ``positions`` is cheaper than opening the file and decoding
    ``rows`` rows.
    """
    return 5 * _decoded_rows(positions, _block_rows(page_map)) <= 4 * (rows + _OPEN_ROWS)


def _batches(requests: Sequence[RowSelection], threads: int) -> Iterator[Rows]:
    """Yield ``requests`` as tasks of limited size, if possible enough for ``threads`` threads."""
    sizes = [_decoded_rows(w.positions, _block_rows(w.page_map)) for w in requests]
    limit = max(_BATCH_ROWS_MIN, min(UNIT_ROWS, -(-sum(sizes) // (2 * threads))))

    def parts() -> Iterator[tuple[RowSelection, int]]:
        for request, size in zip(requests, sizes, strict=True):
            for part in _parts(request, limit) if size > limit else (request,):
                yield part, min(size, limit)

    for batch in in_batches(parts(), lambda part: part[1], limit):
        yield Rows(tuple(request for request, _ in batch))


def _parts(request: RowSelection, rows: int) -> Iterator[RowSelection]:
    """Split the rows of a segment into tasks that decode at most ``rows`` rows or one page."""
    block = _block_rows(request.page_map)
    number = np.cumsum(np.append(0, np.diff(request.positions // block) > 0)) // max(
        1, rows // block
    )
    for part in np.split(request.positions, np.flatnonzero(np.diff(number)) + 1):
        yield replace(request, positions=part)


def _runs(scan: SegmentScan, row_group_rows: Sequence[int]) -> Iterator[RowGroups]:
    starts = np.concatenate([[0], np.cumsum(row_group_rows)]).tolist()
    row_groups = range(len(row_group_rows)) if scan.row_groups is None else scan.row_groups
    for run in in_batches(row_groups, row_group_rows.__getitem__, UNIT_ROWS):
        yield _run(scan, run, row_group_rows, starts)


def _run(
    scan: SegmentScan, run: list[int], row_group_rows: Sequence[int], starts: list[int]
) -> RowGroups:
    parts = tuple((starts[number], row_group_rows[number]) for number in run)
    if len(run) == len(row_group_rows):
        return RowGroups(scan, None, parts)
    return RowGroups(scan, tuple(run), parts)

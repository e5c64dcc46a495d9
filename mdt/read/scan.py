"""Run a scan plan in process: only the row groups that may match, in threads, streamed in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.predicate import bind, columns
from mdt.hudi.schema import with_meta
from mdt.planner import ScanPlan, SegmentScan
from mdt.segment_file import live_mask, read_rows
from mdt.storage import Storage

UNIT_ROWS = 262_144
"""Rows after which a segment is cut into several pieces of work, so that memory stays bounded and threads busy."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A run of row groups of one segment; ``first`` is the position of its first row, ``zones`` None for all."""

    scan: SegmentScan
    zones: tuple[int, ...] | None
    starts: tuple[tuple[int, int], ...]


def read(
    storage: Storage, plan: ScanPlan, names: Sequence[str], *, threads: int
) -> Iterator[pa.Table]:
    """Yield the matching rows, columns ``names``, one table for each piece of work that found any, in plan order."""
    reader = _Reader(storage, plan, tuple(names))
    units = [unit for scan in plan.segments for unit in _units(plan, scan)]
    if len(units) == 1 or threads == 1:
        yield from (table for unit in units if len(table := reader.run(unit)))
        return
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[pa.Table]] = deque()
        todo = iter(units)
        try:
            for unit in todo:
                running.append(pool.submit(reader.run, unit))
                if len(running) > 2 * threads:
                    table = running.popleft().result()
                    if len(table):
                        yield table
            while running:
                table = running.popleft().result()
                if len(table):
                    yield table
        finally:
            for future in running:
                future.cancel()


def _units(plan: ScanPlan, scan: SegmentScan) -> Iterator[_Unit]:
    zone_rows: list[int] = plan.snapshot.files["zone_rows"][scan.row].as_py()
    starts = np.concatenate([[0], np.cumsum(zone_rows)]).tolist()
    wanted = range(len(zone_rows)) if scan.zones is None else scan.zones
    run: list[int] = []
    rows = 0
    for zone in wanted:
        run.append(zone)
        rows += zone_rows[zone]
        if rows >= UNIT_ROWS:
            yield _unit(scan, run, zone_rows, starts)
            run, rows = [], 0
    if run:
        yield _unit(scan, run, zone_rows, starts)


def _unit(scan: SegmentScan, run: list[int], zone_rows: list[int], starts: list[int]) -> _Unit:
    whole = len(run) == len(zone_rows)
    return _Unit(scan, None if whole else tuple(run), tuple((starts[z], zone_rows[z]) for z in run))


class _Reader:
    """Reads pieces of work; shared by threads."""

    def __init__(self, storage: Storage, plan: ScanPlan, names: tuple[str, ...]) -> None:
        self._storage = storage
        self._plan = plan
        self._names = names
        schema = with_meta(plan.snapshot.definition.schema)
        tested = columns(plan.predicate) if plan.predicate is not None else frozenset()
        self._schema = pa.schema([f for f in schema if f.name in tested or f.name in names])
        self._test = None if plan.predicate is None else bind(plan.predicate, self._schema)

    def run(self, unit: _Unit) -> pa.Table:
        """Return the matching rows of one piece of work."""
        table = read_rows(
            self._storage, self._plan.snapshot, unit.scan.row, self._schema, zones=unit.zones, use_threads=False
        )
        mask = self._mask(unit)
        if mask is not None:
            table = table.filter(pa.array(mask))
        if self._test is not None and len(table):
            table = table.filter(self._test(table))
        return table.select(list(self._names))

    def _mask(self, unit: _Unit) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        dead = self._plan.snapshot.vector(unit.scan.row)
        if dead is None and unit.scan.positions is None:
            return None
        parts = []
        for first, rows in unit.starts:
            live = live_mask(rows, dead, first)
            part = np.ones(rows, dtype=np.bool_) if live is None else live
            if unit.scan.positions is not None:
                part &= _member_mask(unit.scan.positions, first, rows)
            parts.append(part)
        mask = np.concatenate(parts)
        return None if bool(mask.all()) else mask


def _member_mask(positions: BitMap, first: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(rows, dtype=np.bool_)
    at = np.asarray(positions.to_array()).astype(np.int64) - first
    mask[at[(at >= 0) & (at < rows)]] = True
    return mask


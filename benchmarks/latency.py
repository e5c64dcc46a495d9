"""``python -m benchmarks latency``: what single writes wait for, and for how much of it services
are the reason.

Upserts and merges of 50,000 rows (a twentieth of a small table), nine in ten of which replace one,
spread over all files of a table of natural file sizes.  Of each kind of write: median, mean, 99th
percentile and longest, of time and of CPU, and what they are by the median; the seconds that table
services took within writes and beside them (in a thread of the table, where the mode is one); and
of the slowest writes, by CPU, which commits and checkpoints of the metadata they made.  Every row
is checked at the end.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import mdt
from benchmarks.trips import Trips

KINDS = (
    "MERGE_ON_READ upsert",
    "MERGE_ON_READ merge",
    "COPY_ON_WRITE upsert",
    "COPY_ON_WRITE merge",
)
WRITES = 200
"""Of each kind."""
SERVICES = frozenset(("compact", "log_compact", "cluster", "clean"))
"""Operations, as commits name them, that are services."""


SLOWEST_SHARE = 50
"""Of so many writes one is shown with what it did, the slowest first."""


class ServiceSeconds(logging.Handler):
    """Adds up what the commits of services took, by what the loggers ``mdt.commit`` and
    ``mdt.metadata`` say: in this thread, and in others.

    ``done``: operation, milliseconds and CPU milliseconds of each commit and checkpoint since
    somebody emptied it; of the CPU what went by since the one before.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.inline = self.deferred = 0.0
        self.steps = 0
        self.done = list[tuple[str, int, int]]()
        self._caller = threading.get_ident()
        self.busy = time.process_time()

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "mdt", {})
        if "ms" not in facts:
            return
        before, self.busy = self.busy, time.process_time()
        self.done.append((facts["operation"], facts["ms"], round(1e3 * (self.busy - before))))
        if facts["operation"] not in SERVICES:
            return
        self.steps += 1
        if record.thread == self._caller:
            self.inline += facts["ms"] / 1e3
        else:
            self.deferred += facts["ms"] / 1e3


def run(
    rows: int,
    seed: int,
    writes: int,
    kinds: Sequence[str],
    options: dict[str, str],
    emit: Callable[[str], object],
) -> None:
    """Measure each kind of write; ``emit`` takes lines of JSON.  ``options``: of the table.  Raises
    WrongAnswer if a row is lost.
    """
    for kind in kinds:
        emit(json.dumps(_measured(kind, rows, seed, writes, options)))


def _measured(
    kind: str, rows: int, seed: int, writes: int, options: dict[str, str]
) -> dict[str, Any]:
    table_type, _, verb = kind.partition(" ")
    trips = Trips(rows, seed)
    with tempfile.TemporaryDirectory() as folder, _services() as services:
        mdt.create(
            folder, trips.schema, key=["id"], ordering="ts", table_type=table_type
        ).bulk_insert(trips.load())
        table = mdt.open(folder, options)
        laps, told = [], []
        for _ in range(writes):
            rows_of_write = trips.uniform()
            services.done, services.busy = [], time.process_time()
            laps.append(_lap(table, verb, rows_of_write))
            told.append(services.done)
        table.close()
        trips.check(table.scan().to_arrow())
        left = {"files": len(table.files()), "log_files": sum(table.files()["kind"].to_pylist())}
    wall, busy = zip(*laps, strict=True)
    slowest = sorted(range(writes), key=lambda at: -busy[at])[: max(1, writes // SLOWEST_SHARE)]
    return {
        "kind": kind,
        "rows": rows,
        "writes": writes,
        "batch": trips.batch_rows,
        **options,
        **_figures("", wall),
        **_figures("cpu_", busy),
        "service_seconds_inline": round(services.inline, 2),
        "service_seconds_deferred": round(services.deferred, 2),
        "service_steps": services.steps,
        **left,
        "load_average": os.getloadavg()[0],
        "slowest": [
            {
                "write": at,
                "ms": round(1e3 * wall[at]),
                "cpu_ms": round(1e3 * busy[at]),
                "did (ms, CPU ms)": told[at],
            }
            for at in slowest
        ],
    }


def _figures(prefix: str, laps: Sequence[float]) -> dict[str, float]:
    """Return figures of laps in milliseconds."""
    middle = statistics.median(laps)
    found = {
        "median_ms": 1e3 * middle,
        "mean_ms": 1e3 * statistics.mean(laps),
        "p99_ms": 1e3 * sorted(laps)[int(0.99 * (len(laps) - 1))],
        "max_ms": 1e3 * max(laps),
        "mean_of_median": statistics.mean(laps) / middle,
        "p99_of_median": sorted(laps)[int(0.99 * (len(laps) - 1))] / middle,
        "max_of_median": max(laps) / middle,
    }
    return {prefix + name: round(value, 2) for name, value in found.items()}


def _lap(table: mdt.Table, verb: str, rows: pa.Table) -> tuple[float, float]:
    """Write ``rows``; return what that took, time and CPU of this process in seconds."""
    busy, began = time.process_time(), time.perf_counter()
    if verb == "upsert":
        table.upsert(rows)
    else:
        table.merge(rows).when_matched().update("*").when_not_matched().insert().execute()
    return time.perf_counter() - began, time.process_time() - busy


@contextmanager
def _services() -> Iterator[ServiceSeconds]:
    logger, counted = logging.getLogger("mdt"), ServiceSeconds()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(counted)
    try:
        yield counted
    finally:
        logger.removeHandler(counted)
        logger.setLevel(before)

"""Runs every query on every variant, checks every answer against the reference's, and keeps what
was measured.

A query is first run once on each variant: for warmth, for Spark's own count of files and bytes, and
for the check of its rows.  Then the variants take turns, so that a machine that slows down slows
all of them, and medians are kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import mdt
from benchmarks.ssb import spark as engine
from benchmarks.ssb.queries import QUERIES, VIEW, Query
from benchmarks.ssb.variants import COMPRESSION, REFERENCE, VARIANTS, Loaded, Stored, load

Progress = Callable[[str], None]


class WrongAnswer(AssertionError):
    """A variant returned other rows than the reference."""


@dataclass
class Figure:
    """One query on one variant; seconds are medians.  ``cpu_seconds``: of this process and the JVM.

    ``matches``: rows that the filter selects, ``factor`` their published share.  ``files``,
    ``bytes``: read by Spark, of ``files_total``.  ``arrow_seconds``: matching rows to Arrow in
    process, planning included, and ``arrow_files`` / ``arrow_rows`` what that plan reads; None
    where Spark reads without mdt.  ``plan_seconds``: choosing the files alone.  ``speed_up``:
    seconds of a variant by seconds of this one, by name of that variant; ``cpu_speed_up`` the same
    of processor seconds, ``arrow_speed_up`` in process.
    """

    query: str
    variant: str
    rows: int
    factor: float
    seconds: float
    files: int
    files_total: int
    bytes: int
    cpu_seconds: float = 0.0
    matches: int = 0
    arrow_seconds: float | None = None
    arrow_files: int | None = None
    arrow_rows: int | None = None
    plan_seconds: float | None = None
    speed_up: dict[str, float] = field(default_factory=dict)
    cpu_speed_up: dict[str, float] = field(default_factory=dict)
    arrow_speed_up: dict[str, float] = field(default_factory=dict)


@dataclass
class Tables:
    """The loaded tables; variants that differ only in the reader share one."""

    rows: pa.Table
    folder: Path
    rows_per_file: int
    compression: str = COMPRESSION
    loaded: dict[Stored, Loaded] = field(default_factory=dict)

    def of(self, variant: str) -> Loaded:
        """Return the table of a variant, loading it first."""
        stored = VARIANTS[variant].stored
        if stored not in self.loaded:
            path = self.folder / f"table-{len(self.loaded)}"
            self.loaded[stored] = load(
                stored, self.rows, path, self.rows_per_file, self.compression
            )
        return self.loaded[stored]


@dataclass
class Run:
    """One measurement of the whole benchmark."""

    spark: SparkSession
    tables: Tables
    variants: list[str]
    repeat: int
    progress: Progress

    def figures(self) -> Iterator[Figure]:
        """Yield the figures of all queries on all variants as they are measured.  Raises
        WrongAnswer.
        """
        for name in self.variants:
            self.progress(f"load {name}")
            self._view(name)
        for query in QUERIES:
            yield from self._query(query)

    def _view(self, name: str) -> None:
        loaded = self.tables.of(name)
        plain = VARIANTS[name].plain
        frame = (
            self.spark.read.parquet(*loaded.paths)
            if plain
            else mdt.read(self.spark, loaded.table.path)
        )
        frame.createOrReplaceTempView(_view_name(name))

    def _query(self, query: Query) -> list[Figure]:
        self.progress(query.name)
        figures = {name: self._first(query, name) for name in self.variants}
        self._compare_rows(query, figures)
        times: dict[str, list[engine.Timing]] = {name: [] for name in self.variants}
        arrow: dict[str, list[float]] = {name: [] for name in self.variants}
        for _ in range(self.repeat):
            for name in self.variants:
                timing, rows = engine.timed(self.spark, query.sql(_view_name(name)))
                check(query.name, name, rows, self._expected)
                times[name].append(timing)
                arrow[name] += self._arrow(query, name)
        for name, figure in figures.items():
            figure.seconds = statistics.median(timing.wall for timing in times[name])
            figure.cpu_seconds = statistics.median(timing.cpu for timing in times[name])
            figure.arrow_seconds = statistics.median(arrow[name]) if arrow[name] else None
            figure.matches = self._matches
        _compare(figures)
        return list(figures.values())

    def _first(self, query: Query, name: str) -> Figure:
        loaded = self.tables.of(name)
        reading, rows = engine.measured(
            self.spark, query.sql(_view_name(name)), f"{query.name} {name}"
        )
        if name == self.variants[0]:
            self._expected = rows
            self._total = sum(row[-1] or 0 for row in rows)
        check(query.name, name, rows, self._expected)
        return Figure(
            query.name,
            name,
            len(self.tables.rows),
            query.factor,
            0.0,
            reading.files,
            loaded.files,
            reading.bytes,
        )

    def _compare_rows(self, query: Query, figures: dict[str, Figure]) -> None:
        """Run the filter in process, once for warmth; its sum over all groups must be Spark's."""
        counts = set()
        for name, figure in figures.items():
            if name != REFERENCE and VARIANTS[name].plain:
                continue
            table = self.tables.of(name).table
            found = table.scan(where=query.where, columns=query.columns).to_arrow()
            counts.add(len(found))
            if query.total(found) != self._total or len(counts) > 1:
                raise WrongAnswer(
                    f"{query.name} on {name}, in process: {query.total(found)} instead of"
                    f" {self._total}"
                )
            plan = table.scan(where=query.where).explain()
            figure.arrow_files, figure.arrow_rows = plan.files_read, plan.rows_read
            figure.plan_seconds = statistics.median(
                self._plan(query, table) for _ in range(self.repeat)
            )
        self._matches = counts.pop()

    def _plan(self, query: Query, table: mdt.Table) -> float:
        started = time.perf_counter()
        _ = table.scan(where=query.where).plan
        return time.perf_counter() - started

    def _arrow(self, query: Query, name: str) -> list[float]:
        """Return the seconds of one run in process; none where Spark alone reads the table."""
        if name != REFERENCE and VARIANTS[name].plain:
            return []
        table = self.tables.of(name).table
        started = time.perf_counter()
        total = query.total(table.scan(where=query.where, columns=query.columns).to_arrow())
        seconds = time.perf_counter() - started
        if total != self._total:
            raise WrongAnswer(
                f"{query.name} on {name}, in process: {total} instead of {self._total}"
            )
        return [seconds]


def check(
    query: str, variant: str, found: list[tuple[object, ...]], expected: list[tuple[object, ...]]
) -> None:
    """Raise WrongAnswer unless ``found`` holds the rows of ``expected``; equal sort keys may come
    in any order.
    """
    if sorted(found, key=str) != sorted(expected, key=str):
        raise WrongAnswer(
            f"{query} on {variant}: {len(found)} rows, or other values, instead of {len(expected)}"
            " rows"
        )


def _view_name(variant: str) -> str:
    return f"{VIEW}_{variant}"


def _compare(figures: dict[str, Figure]) -> None:
    """Set the speed-ups against the reference and against column statistics alone."""
    for other in (REFERENCE, "stats"):
        if (base := figures.get(other)) is None:
            continue
        for figure in figures.values():
            figure.speed_up[other] = base.seconds / figure.seconds
            figure.cpu_speed_up[other] = base.cpu_seconds / max(figure.cpu_seconds, engine.CPU_TICK)
            if base.arrow_seconds is not None and figure.arrow_seconds is not None:
                figure.arrow_speed_up[other] = base.arrow_seconds / figure.arrow_seconds

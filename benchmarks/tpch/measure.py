"""Runs queries on several variants of the same tables in alternating rounds, compares their rows,
and keeps medians.

A query is first run some times on each variant, for warmth: Spark writes a program for each plan,
and the JVM compiles one that runs often, so variants whose plans are alike warm each other, and one
with a plan of its own would seem slow. A query of half a second is compiled for some twenty rounds,
so warmth is counted in seconds, too. Variants take turns, every other round backwards, so that a
machine that slows down slows all of them. Every answer of every run is compared with the
reference's.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import mdt
from benchmarks.ssb import spark as engine

PLAIN, CLEAN, DIRTY, FILES = "plain", "mdt", "dirty", "files"
MEANINGS = {
    PLAIN: "Parquet files of the same rows in the same order, by spark.read.parquet",
    CLEAN: "tables of mdt as they are loaded",
    DIRTY: "tables of mdt, a hundredth of the rows written again",
    FILES: "the files of the tables of mdt, by spark.read.parquet",
}
"""By variant; the first is the reference that others are compared with."""
TOLERANCE = 1e-9
"""Of doubles, relative; all other values are equal."""

Row = tuple[Any, ...]
Progress = Callable[[str], None]


class WrongAnswer(AssertionError):
    """A variant returned other rows than the reference."""


@dataclass(frozen=True)
class Variant:
    """What queries run on: ``kind`` of MEANINGS, and Spark ``settings`` that hold while it is
    opened and while it runs.
    """

    name: str
    kind: str
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Figure:
    """One query on one variant; seconds are medians, ``cpu_seconds`` of this process and the JVM.
    ``runs``: seconds of each run.

    ``times``, ``cpu_times``: seconds of this variant by those of the reference, below 1 where this
    one is faster. ``files``: read by the scans of interest, of ``files_total``, for queries that
    count them.
    """

    query: str
    variant: str
    seconds: float
    cpu_seconds: float
    times: float = 1.0
    cpu_times: float = 1.0
    rows: int = 0
    files: int | None = None
    files_total: int | None = None
    runs: list[float] = field(default_factory=list)


@contextmanager
def told(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let settings hold in a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@dataclass
class Run:
    """The variants of one set of tables below ``folder``, in a folder a kind, opened once each;
    ``warm`` rounds, or as many as take ``warm_seconds`` if these are more, then ``repeat`` that
    count.
    """

    spark: SparkSession
    folder: Path
    tables: Sequence[str]
    variants: Sequence[Variant]
    repeat: int
    progress: Progress
    warm: int = 1
    warm_seconds: float = 0.0
    frames: dict[str, dict[str, DataFrame]] = field(default_factory=dict)

    def open(self) -> None:
        """Open every table of every variant."""
        for variant in self.variants:
            with told(self.spark, variant.settings):
                self.frames[variant.name] = {
                    name: self._open(variant.kind, name) for name in self.tables
                }

    def _open(self, kind: str, name: str) -> DataFrame:
        if kind == PLAIN:
            return self.spark.read.parquet(str(self.folder / kind / name))
        path = self.folder / (CLEAN if kind == FILES else kind) / name
        if kind == FILES:
            table = mdt.open(path)
            files = [str(path / file) for file in table.files()["name"].to_pylist()]
            return self.spark.read.parquet(*files).select(*table.schema.names)
        return mdt.read(self.spark, path)

    @contextmanager
    def on(self, variant: Variant) -> Iterator[None]:
        """Let the names of the tables mean those of a variant, under its settings."""
        with told(self.spark, variant.settings):
            for name, frame in self.frames[variant.name].items():
                frame.createOrReplaceTempView(name)
            yield

    def query(self, name: str, sql: str) -> list[Figure]:
        """Return the figures of one query on all variants. Raises WrongAnswer."""
        self.progress(name)
        expected: list[Row] | None = None
        timings: dict[str, list[engine.Timing]] = {variant.name: [] for variant in self.variants}
        for number, counts in enumerate(self._rounds()):
            for variant in self.variants if number % 2 == 0 else reversed(self.variants):
                with self.on(variant):
                    timing, rows = engine.timed(self.spark, sql)
                expected = rows if expected is None else expected
                check(name, variant.name, rows, expected)
                if counts:
                    timings[variant.name].append(timing)
        figures = [
            _figure(name, variant, timings[variant], len(expected or ())) for variant in timings
        ]
        for figure in figures:
            figure.times = figure.seconds / figures[0].seconds
            figure.cpu_times = figure.cpu_seconds / max(figures[0].cpu_seconds, engine.CPU_TICK)
        return figures

    def _rounds(self) -> Iterator[bool]:
        """Yield of each round whether it counts."""
        started, number = time.monotonic(), 0
        while number < self.warm or time.monotonic() - started < self.warm_seconds:
            yield False
            number += 1
        yield from [True] * self.repeat


def _figure(query: str, variant: str, timings: Sequence[engine.Timing], rows: int) -> Figure:
    walls = [timing.wall for timing in timings]
    cpu = statistics.median(timing.cpu for timing in timings)
    return Figure(
        query,
        variant,
        statistics.median(walls),
        cpu,
        rows=rows,
        runs=[round(wall, 4) for wall in walls],
    )


def check(query: str, variant: str, found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Raise WrongAnswer unless ``found`` holds the rows of ``expected``, in any order: doubles to
    TOLERANCE, the rest exactly.
    """
    pairs = zip(sorted(found, key=_place), sorted(expected, key=_place), strict=False)
    if len(found) != len(expected) or not all(_alike(left, right) for left, right in pairs):
        raise WrongAnswer(
            f"{query} on {variant}: {len(found)} rows, or other values, instead of {len(expected)}"
            " rows"
        )


def _place(row: Row) -> tuple[str, ...]:
    """Return what rows are sorted by: doubles that differ by a little come last, and stand in the
    same place.
    """
    exact = [repr(value) for value in row if not isinstance(value, float)]
    return (*exact, *(f"{value:.6e}" for value in row if isinstance(value, float)))


def _alike(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(map(_same, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE) or (
            math.isnan(left) and math.isnan(right)
        )
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left == right
    return type(left) is type(right) and bool(left == right)

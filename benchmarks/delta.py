"""``python -m benchmarks delta``: upserts of random keys into tables that readers of Delta and
Iceberg read.

mdt keeps the metadata of both for a merge-on-read table. delta-rs merges, pyiceberg upserts, and
Delta and Iceberg on Spark merge the same rows. At the end, delta-rs finds the rows that were written
last. An upsert that takes too long is ended.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import cpu_seconds, measured
from benchmarks.peers import open_peer
from benchmarks.spark.environments import Missing, interpreter
from benchmarks.spark.run import Work, lines
from benchmarks.trips import FILES, Trips, WrongAnswer

PEERS = ("mdt", "mdt with a Delta log", "mdt with Delta and Iceberg", "deltalake")
ENGINES = ("delta", "iceberg")
"""Engines on Spark."""
KEYS = (1_000, 50_000)
SLOW = "pyiceberg upsert"
"""A peer that upserts KEYS[0] rows, in at most SECONDS_MAX."""
SECONDS_MAX = 900
_QUERY = "select count(*) as rows, sum(fare) as fare, sum(ts) as ts from t"
_READERS = PEERS[1:]
"""Peers with a Delta log."""

Sizes = Mapping[str, int]


def run(
    rows: int, seed: int, times: int, emit: Callable[[str], object], environments: Path
) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON. Raises
    WrongAnswer.

    environments: The folder in which those of engines on Spark are made.
    """
    for figure in measured(PEERS, _measured, rows, seed, times, KEYS):
        emit(json.dumps(figure))
    for figure in [*_slow(rows, seed), *_on_spark(rows, seed, times, environments)]:
        emit(json.dumps(figure))


def _measured(
    peer: str, rows: int, seed: int, times: int, keys: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the figures of one peer."""
    trips, figures = Trips(rows, seed), []
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, FILES)
        table.load(trips.load())
        for count in keys:
            laps = []
            for _ in range(times):
                data, before = trips.of(_random_rows(trips, count)), _sizes(folder)
                wall, cpu = time.perf_counter(), cpu_seconds()
                table.upsert(data)
                seconds = time.perf_counter() - wall, cpu_seconds() - cpu
                laps.append((*seconds, *_written(before, _sizes(folder))))
            figures.append({"peer": peer, "keys": count, **_medians(laps), "times": times})
        if peer in _READERS:
            _check(folder, trips)
    return figures


def _slow(rows: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the figure of the slow peer, or what its process has spent when it is ended."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doing = pool.apply_async(_measured, (SLOW, rows, seed, 1, KEYS[:1]))
        try:
            yield from doing.get(SECONDS_MAX)
        except multiprocessing.TimeoutError:
            yield {"peer": SLOW, "keys": KEYS[0], "ended after seconds": SECONDS_MAX}
        except ImportError as error:
            yield {"peer": SLOW, "skipped": str(error)}


def _on_spark(rows: int, seed: int, times: int, environments: Path) -> Iterator[dict[str, Any]]:
    """Yield the figures of engines on Spark. The first upsert of a session is left out."""
    with tempfile.TemporaryDirectory() as folder:
        trips, work = Trips(rows, seed), Work(folder=Path(folder))
        work.load = work.stored(trips.load(), "load", FILES)
        for count in KEYS:
            for number in range(times + (count == KEYS[0])):
                batch = trips.of(_random_rows(trips, count))
                path = work.stored(batch, f"upsert-{count}-{number}", 1)
                work.upserts.append((str(count), path))
        work.queries = {"sums": [_QUERY.replace("from t", "from trips")]}
        work.warm_queries = work.queries
        for engine in ENGINES:
            peer = f"{engine} on Spark"
            try:
                python, jars = interpreter(engine, environments)
            except Missing as reason:
                yield {"peer": peer, "skipped": str(reason)}
                continue
            told = list(lines(work, engine, python, jars, upserts_only=True))
            yield from _figures(peer, told, times)
            answer = next(line["rows"][0] for line in told if "answer" in line)
            _require_rows(peer, dict(zip(("rows", "fare", "ts"), answer, strict=True)), trips)


def _figures(peer: str, told: Sequence[Mapping[str, Any]], times: int) -> Iterator[dict[str, Any]]:
    """Yield the figures in what a worker told."""
    for count in KEYS:
        of_count = [line for line in told if line.get("step") == str(count)]
        spent, written = (
            [line for line in of_count if name in line][-times:] for name in ("seconds", "written")
        )
        laps = [
            (lap["seconds"], lap["cpu_seconds"], new["written"] / 1e6, new["files"])
            for lap, new in zip(spent, written, strict=True)
        ]
        yield {"peer": peer, "keys": count, **_medians(laps), "times": times}


def _random_rows(trips: Trips, count: int) -> np.ndarray[Any, Any]:
    """Return random row numbers, which depend on those drawn before."""
    chance = np.random.default_rng([trips.seed, int(trips.ts.sum() % (1 << 62))])
    return np.sort(chance.choice(trips.rows, count, replace=False))


def _sizes(folder: str) -> Sizes:
    """Return path -> size of all files."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): path.stat().st_size for path in files}


def _written(before: Sizes, after: Sizes) -> tuple[float, int]:
    """Return the megabytes of new files, and how many of them are base files."""
    new = {path: size for path, size in after.items() if before.get(path) != size}
    names = (path for path in new if path.endswith(".parquet"))
    bases = [path for path in names if "/." not in path and "/_" not in path]
    return sum(new.values()) / 1e6, len(bases)


def _medians(laps: Sequence[tuple[float, float, float, int]]) -> dict[str, float]:
    names = ("seconds", "cpu", "MB", "files")
    columns = zip(names, zip(*laps, strict=True), strict=True)
    return {name: round(float(statistics.median(values)), 4) for name, values in columns}


def _check(folder: str, trips: Trips) -> None:
    """Raise WrongAnswer unless delta-rs finds the rows that were written last."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(folder)).execute(_QUERY).read_all()
    [got] = pa.table(found).to_pylist()
    _require_rows("delta-rs", got, trips)


def _require_rows(reader: str, got: Mapping[str, Any], trips: Trips) -> None:
    expected = len(trips.fare), int(trips.ts.sum()), float(trips.fare.sum())
    if (got["rows"], got["ts"]) != expected[:2] or not np.isclose(got["fare"], expected[2]):
        raise WrongAnswer(f"expected (rows, ts, fare) {expected}, {reader} got {got}")

"""``python -m benchmarks delta``: upserts of random keys into a table that Delta's readers read.

mdt keeps the Delta log of a merge-on-read table, and delta-rs merges. Both tables have as many
files. At the end, delta-rs reads both, and finds the rows that were written last.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import cpu_seconds, measured
from benchmarks.peers import open_peer
from benchmarks.trips import FILES, Trips, WrongAnswer

PEERS = ("mdt", "mdt with a Delta log", "deltalake")
KEYS = (1_000, 50_000)
_QUERY = "select count(*) as rows, sum(fare) as fare, sum(ts) as ts from t"
_READERS = ("mdt with a Delta log", "deltalake")
"""Peers with a Delta log."""

Sizes = Mapping[str, int]


def run(rows: int, seed: int, times: int, emit: Callable[[str], object]) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON. Raises
    WrongAnswer.
    """
    for figure in measured(PEERS, _measured, rows, seed, times):
        emit(json.dumps(figure))


def _measured(peer: str, rows: int, seed: int, times: int) -> list[dict[str, Any]]:
    """Return the figures of one peer."""
    trips, figures = Trips(rows, seed), []
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, FILES)
        table.load(trips.load())
        for count in KEYS:
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
    expected = len(trips.fare), int(trips.ts.sum()), float(trips.fare.sum())
    if (got["rows"], got["ts"]) != expected[:2] or not np.isclose(got["fare"], expected[2]):
        raise WrongAnswer(f"expected (rows, ts, fare) {expected}, delta-rs got {got}")

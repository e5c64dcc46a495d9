"""Runs a bench of one peer in a process of its own and measures it.

Wall seconds and CPU seconds (of the process with all its threads, and of children that have ended)
of each step; the answers are checked against the truth outside of the measured time.  A wrong
answer is an error, not a figure.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.peers import Peer, bytes_below, open_peer
from benchmarks.queries import KINDS, Truth
from benchmarks.trips import Trips

UPSERT_ROUNDS = 5
MANY_KEYS = 100
QUERIES = 9
LOOKUPS = 15


@dataclass(frozen=True)
class Job:
    """One bench of one peer."""

    bench: str
    peer: str
    rows: int
    seed: int
    shuffled: bool
    repeat: int
    integers: bool = False

    def trips(self) -> Trips:
        """Return the workload."""
        return Trips(self.rows, self.seed, self.shuffled, self.integers)


@dataclass
class Figure:
    """One line of the result; medians over ``times`` measurements, ``first_seconds`` is the first
    of them.

    ``ratio_to_mdt``: seconds by mdt's seconds, above 1 where mdt is faster; None without a figure
    of mdt.
    """

    bench: str
    peer: str
    workload: str
    rows: int
    shuffled: bool
    integers: bool
    seed: int
    seconds: float | None = None
    cpu_seconds: float | None = None
    first_seconds: float | None = None
    times: int = 0
    bytes: int | None = None
    ratio_to_mdt: float | None = None
    cpu_ratio_to_mdt: float | None = None
    error: str | None = None


@dataclass
class Stopwatch:
    """Collects (wall, CPU) seconds by workload."""

    laps: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def lap(self, workload: str) -> Iterator[None]:
        """Measure the block as one run of ``workload``."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        yield
        self.laps.setdefault(workload, []).append((time.perf_counter() - wall, cpu_seconds() - cpu))


def cpu_seconds() -> float:
    """Return user and system seconds of this process and of its children that have ended."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


@dataclass
class Bench:
    """What the steps of a bench share."""

    job: Job
    folder: str
    watch: Stopwatch = field(default_factory=Stopwatch)

    def loaded(self, workload: str | None) -> tuple[Peer, Trips]:
        """Return a peer that holds the load, measured as ``workload`` unless None."""
        path = tempfile.mkdtemp(dir=self.folder)
        peer, trips = open_peer(self.job.peer, path), self.job.trips()
        rows = trips.load()
        with self.watch.lap(workload or "unnamed"):
            peer.load(rows)
        self.watch.laps.pop("unnamed", None)
        self.watch.bytes[workload or "unnamed"] = bytes_below(path)
        return peer, trips

    def scan(self, workload: str, peer: Peer, trips: Trips) -> None:
        """Measure full scans."""
        for _ in range(self.job.repeat):
            with self.watch.lap(workload):
                found = peer.scan()
            trips.check(found)

    def upsert(
        self, workload: str, peer: Peer, trips: Trips, batch: Callable[[], pa.Table]
    ) -> None:
        """Measure the rounds of upserts."""
        for _ in range(UPSERT_ROUNDS):
            rows = batch()
            with self.watch.lap(workload):
                peer.upsert(rows)
        self.watch.bytes[workload] = bytes_below(peer.path)

    def lookup(self, when: str, peer: Peer, trips: Trips) -> None:
        """Measure look-ups of one key and of many, warm: other keys each time, after one look-up
        for warmth.
        """
        ways = (
            [("", peer.lookup), (" by a filter", peer.filtered)]
            if peer.filters
            else [("", peer.lookup)]
        )
        for way, look_up in ways:
            trips.check(look_up(first := trips.some_keys(1)), first)
            for workload, count in (("W5 1 key", 1), (f"W5 {MANY_KEYS} keys", MANY_KEYS)):
                for _ in range(max(LOOKUPS, self.job.repeat)):
                    keys = trips.some_keys(count)
                    with self.watch.lap(workload + way + when):
                        found = look_up(keys)
                    trips.check(found, keys)

    def queries(self, when: str, peer: Peer, truth: Truth) -> None:
        """Measure W6, warm: other literals each time, after one query for warmth."""
        for kind in KINDS:
            for number, query in enumerate(truth.queries(kind, 1 + max(QUERIES, self.job.repeat))):
                with self.watch.lap(f"W6 {kind}{when}" if number else "warm-up"):
                    found = peer.query(query)
                truth.check(query, found)
        self.watch.laps.pop("warm-up", None)


def bench_upsert(bench: Bench) -> None:
    """W1; W2 with a scan before and after it; W3 on a fresh table and a scan after it."""
    peer, trips = bench.loaded("W1 load")
    if not peer.upserts:
        return
    bench.scan("scan before W2", peer, trips)
    bench.upsert("W2 upsert", peer, trips, trips.uniform)
    bench.scan("scan after W2", peer, trips)
    peer, trips = bench.loaded(None)
    bench.upsert("W3 upsert", peer, trips, trips.newest)
    bench.scan("scan after W3", peer, trips)


def bench_lookup(bench: Bench) -> None:
    """W5 on a fresh table, and again after W2."""
    peer, trips = bench.loaded(None)
    bench.lookup("", peer, trips)
    if peer.upserts:
        for _ in range(UPSERT_ROUNDS):
            peer.upsert(trips.uniform())
        bench.lookup(" after W2", peer, trips)


def bench_scan(bench: Bench) -> None:
    """Full scans to Arrow of a fresh table."""
    peer, trips = bench.loaded(None)
    bench.scan("full scan", peer, trips)


def bench_index(bench: Bench) -> None:
    """Secondary indexes: build, W6 on a fresh table and after W2 with nothing re-optimised, W2 with
    indexes on.
    """
    path = tempfile.mkdtemp(dir=bench.folder)
    peer, trips = open_peer(bench.job.peer, path), bench.job.trips()
    if not peer.indexes:
        return
    rows = trips.load()
    truth = Truth(trips, rows)
    peer.load(rows)
    with bench.watch.lap("index build"):
        size = peer.index()
    bench.watch.bytes["index build"] = size
    bench.queries("", peer, truth)
    for _ in range(UPSERT_ROUNDS):
        batch = trips.uniform()
        with bench.watch.lap("W2 upsert with indexes"):
            peer.upsert(batch)
        truth.upsert(batch)
    bench.queries(" after W2", peer, truth)
    peer, trips = bench.loaded(None)
    bench.upsert("W2 upsert without indexes", peer, trips, trips.uniform)


BENCHES: dict[str, Callable[[Bench], None]] = {
    "upsert": bench_upsert,
    "lookup": bench_lookup,
    "scan": bench_scan,
    "index": bench_index,
}


def figures(job: Job, watch: Stopwatch) -> list[Figure]:
    """Return medians by workload, in the order of measurement."""
    result = []
    for workload, laps in watch.laps.items():
        figure = Figure(
            job.bench, job.peer, workload, job.rows, job.shuffled, job.integers, job.seed
        )
        figure.seconds = statistics.median(wall for wall, _ in laps)
        figure.cpu_seconds = statistics.median(cpu for _, cpu in laps)
        figure.first_seconds, figure.times = laps[0][0], len(laps)
        figure.bytes = watch.bytes.get(workload)
        result.append(figure)
    return result


def figures_of(job: Job, folder: str) -> list[dict[str, Any]]:
    """Run ``job`` in this process and return its figures, as dictionaries."""
    bench, failure = Bench(job, folder), []
    try:
        BENCHES[job.bench](bench)
    except Exception as error:  # noqa: BLE001 (whatever a peer raises is its result)
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        failure = [_failed(job, text)]
    return [asdict(figure) for figure in figures(job, bench.watch) + failure]


def _failed(job: Job, why: str) -> Figure:
    return Figure(
        job.bench, job.peer, "-", job.rows, job.shuffled, job.integers, job.seed, error=why
    )


def run_here(job: Job, folder: str, answer: Connection) -> None:
    """Run ``job`` in this process and send what :func:`figures_of` returns through ``answer``."""
    answer.send(figures_of(job, folder))
    answer.close()


def run(job: Job) -> list[Figure]:
    """Run ``job`` in a new process with a temporary directory; a process that dies gives a figure
    with its error.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="mdt-bench-") as folder:
        process = context.Process(target=run_here, args=(job, folder, there))
        process.start()
        there.close()
        try:
            received = here.recv()
        except EOFError:
            received = []
        process.join()
    return _received(job, received, process.exitcode)


def run_by(python: str, job: Job) -> list[Figure]:
    """Run ``job`` as :func:`run` does, by the interpreter ``python`` of another environment."""
    path = str(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="mdt-bench-") as folder:
        answer = Path(folder, "answer.json")
        call = [python, "-m", "benchmarks.harness", json.dumps(asdict(job)), folder, str(answer)]
        ended = subprocess.run(call, check=False, env={**os.environ, "PYTHONPATH": path})
        received = json.loads(answer.read_text()) if answer.exists() else []
    return _received(job, received, ended.returncode)


def _received(job: Job, received: list[dict[str, Any]], code: int | None) -> list[Figure]:
    if not received:
        return [_failed(job, f"process ended with {code}" if code else "measured nothing")]
    return [Figure(**figure) for figure in received]


def measured(
    peers: Iterable[str], measure: Callable[..., Iterable[object]], *args: object
) -> Iterator[object]:
    """Yield what ``measure(peer, *args)`` returns for each peer, in a process of its own.  Raises
    what it raises.
    """
    context = multiprocessing.get_context("spawn")
    for peer in peers:
        with context.Pool(1) as pool:
            yield from pool.apply(measure, (peer, *args))


if __name__ == "__main__":  # a process of one peer, in its own environment
    Path(sys.argv[3]).write_text(
        json.dumps(figures_of(Job(**json.loads(sys.argv[1])), sys.argv[2]))
    )

"""``python -m benchmarks changes``: what it costs to read what changed, beside a full scan of the
same table.

One commit each that changes a hundredth of the rows: inserts; updates of keys among the newest;
updates spread over all keys.  They are read with the rows before updates and without, and once more
after compaction.  Seconds and CPU, of a table just opened, medians; and the bytes that an object
store is asked for (of a peer those that its process reads).  Peer: deltalake with its change data
feed, for which it writes what it replaces once more.  Every change is counted.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import cpu_seconds, measured
from benchmarks.peers import open_peer
from benchmarks.trips import Trips, WrongAnswer

PEERS = {"mdt": "mdt", "deltalake": "deltalake with feed"}
"""As they are asked for -> as they are opened."""
SHARE = 0.01
"""Of the rows that each commit changes."""


def run(
    peers: Sequence[str], rows: int, seed: int, times: int, emit: Callable[[str], object]
) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON.  Raises
    WrongAnswer.
    """
    for figure in measured(peers, _measured, rows, seed, times):
        emit(json.dumps(figure))


def _measured(peer: str, rows: int, seed: int, times: int) -> list[dict[str, Any]]:
    """Return the figures of one peer: the scan, then each commit."""
    trips = Trips(rows, seed)
    some, random = max(1, int(rows * SHARE)), np.random.default_rng(seed)
    kinds: dict[str, tuple[Callable[[], pa.Table], int]] = {
        "inserts": (lambda: trips.of(np.arange(rows, rows + some)), some),
        "updates of the newest": (lambda: trips.of(np.arange(rows - 2 * some, rows, 2)), 2 * some),
        "updates anywhere": (lambda: trips.of(random.choice(rows, some, replace=False)), 2 * some),
    }
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(PEERS[peer], folder)
        table.load(trips.load())
        commits: dict[str, tuple[int, int]] = {}
        for kind, (batch, expected) in kinds.items():
            table.upsert(batch())
            commits[kind] = table.commit(), expected
        figures = [
            _figure(peer, "full scan", _cost(table, table.scan, len(trips.fare), times), None)
        ]
        scan = figures[0]
        figures += [
            _of_commit(peer, table, kind, *commit, times, scan) for kind, commit in commits.items()
        ]
        for kind, (commit, expected) in commits.items() if table.after_only else ():
            cost = _cost(
                table,
                lambda commit=commit: table.changes(commit, before=False),
                min(expected, some),
                times,
            )
            figures.append(_figure(peer, f"{kind}, after only", cost, scan))
        table.compact()
        for kind, commit in commits.items():
            figures.append(
                _of_commit(peer, table, f"{kind}, compacted since", *commit, times, scan)
            )
    return figures


def _of_commit(
    peer: str, table: Any, kind: str, commit: int, expected: int, times: int, scan: dict[str, Any]
) -> dict[str, Any]:
    return _figure(peer, kind, _cost(table, lambda: table.changes(commit), expected, times), scan)


def _figure(
    peer: str, what: str, cost: dict[str, float], scan: dict[str, Any] | None
) -> dict[str, Any]:
    shares = (
        {}
        if scan is None
        else {f"{name} of scan": round(cost[name] / scan[name], 4) for name in cost}
    )
    return {
        "peer": peer,
        "what": what,
        **{name: round(value, 5) for name, value in cost.items()},
        **shares,
    }


def _cost(table: Any, call: Callable[[], pa.Table], expected: int, times: int) -> dict[str, float]:
    """Return median seconds and CPU seconds of a call on a table just opened, and the bytes that it
    reads.
    """
    laps = []
    for _ in range(times):
        table.reopen()
        wall, cpu = time.perf_counter(), cpu_seconds()
        found = call()
        laps.append((time.perf_counter() - wall, cpu_seconds() - cpu))
        if len(found) != expected:
            raise WrongAnswer(f"{len(found)} rows instead of {expected}")
    with table.reads_counted():
        before = _bytes_read()
        call()
        read = _bytes_read() - before
    wall_seconds, cpus = zip(*laps, strict=True)
    return {
        "seconds": statistics.median(wall_seconds),
        "cpu": statistics.median(cpus),
        "bytes": read,
    }


def _bytes_read() -> int:
    """Return how many bytes this process has read by system calls."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])

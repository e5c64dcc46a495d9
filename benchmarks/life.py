"""``python -m benchmarks life``: a table that is written to again and again in small commits, and looks after itself.

Upserts of a few rows into a loaded table, nine in ten of which replace a row.  At some commits it is measured what a commit takes
(CPU, median and 99th percentile of the last hundred), a new process's open and first look-up, a full scan, and the disk.  Peers
compact and vacuum every hundred commits by their own means, in the measured time; mdt's services run by themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers import bytes_below, open_peer
from benchmarks.trips import Trips

PEERS = ("mdt", "deltalake", "lance")
TIDIED_EVERY = 100
"""Commits after which a peer that does not look after itself is told to."""
_LAST = 100
_MARKS = (100, 1_000, 10_000)


def run(peers: Sequence[str], rows: int, commits: int, batch: int, seed: int, emit: Callable[[str], object]) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON.  Raises RuntimeError for a wrong answer."""
    context = multiprocessing.get_context("spawn")
    for peer in peers:
        with context.Pool(1) as pool:
            for figure in pool.apply(_live, (peer, rows, commits, batch, seed)):
                emit(json.dumps(figure))


def _live(peer: str, rows: int, commits: int, batch: int, seed: int) -> list[dict[str, Any]]:
    """Return the figures of one peer: one for each mark, one for the whole."""
    trips = Trips(rows, seed, False, False)
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder)
        table.load(trips.load())
        loaded, laps, began = bytes_below(folder), list[float](), time.perf_counter()
        for commit in range(1, commits + 1):
            fresh = trips.small(batch)
            start = time.process_time()
            table.upsert(fresh)
            if commit % TIDIED_EVERY == 0:
                table.tidy()
            laps.append(time.process_time() - start)
            if commit in _MARKS or commit == commits:
                figures.append(
                    {"peer": peer, "commits": commit, **_marked(table, trips, laps[-_LAST:], folder, loaded)}
                )
        seconds = time.perf_counter() - began
        figures.append({"peer": peer, "commits": commits, "rows_per_second": round(commits * batch / seconds)})
    return figures


def _marked(table: Any, trips: Trips, laps: list[float], folder: str, loaded: int) -> dict[str, float]:
    """Return what a table takes now, times in milliseconds of CPU; checks every row."""
    keys = trips.some_keys(1)
    opened, _ = _timed(table.reopen)
    first, _ = _timed(lambda: table.lookup(keys))
    again, found = _timed(lambda: table.lookup(keys))
    trips.check(found, keys)
    scans = [_timed(table.scan) for _ in range(3)]
    trips.check(scans[-1][1])
    return {
        "commit_ms": round(1e3 * statistics.median(laps), 2),
        "commit_p99_ms": round(1e3 * sorted(laps)[int(0.99 * (len(laps) - 1))], 2),
        "open_ms": round(opened, 2),
        "first_key_ms": round(first, 2),
        "key_ms": round(again, 2),
        "scan_ms": round(statistics.median(took for took, _ in scans), 2),
        "disk_of_load": round(bytes_below(folder) / loaded, 3),
    }


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - start), result

"""``python -m benchmarks life``: a table that is written to again and again in small commits, and looks after itself.

Upserts of a few rows into a loaded table, nine in ten of which replace a row.  At some commits it is measured what a commit takes
(CPU, median, mean and 99th percentile of the last hundred), a new process's open and first look-up, a full scan, and the disk.  Files are of
the sizes that each peer makes by itself, unless their number is given.  Peers compact and vacuum every hundred commits by their own means, in
the measured time; mdt's services run by themselves, and it is also measured what its disk is to what its readable states refer to, and a
scan to one after a full compaction.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import Peer, bytes_below, open_peer
from benchmarks.trips import Trips

PEERS = ("mdt", "deltalake", "lance")
TIDIED_EVERY = 100
"""Commits after which a peer that does not look after itself is told to."""
_LAST = 100
_MARKS = (100, 1_000, 10_000)
_TIMES = 3


@dataclass(frozen=True)
class Work:
    """``rows`` of the load, ``commits`` of ``batch`` rows each, ``seed`` of all random data, ``files`` of the load, None: as the peer makes them."""

    rows: int
    commits: int
    batch: int
    seed: int
    files: int | None = None


def run(peers: Sequence[str], work: Work, emit: Callable[[str], object]) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON.  Raises RuntimeError for a wrong answer."""
    context = multiprocessing.get_context("spawn")
    for peer in peers:
        with context.Pool(1) as pool:
            for figure in pool.apply(_live, (peer, work)):
                emit(json.dumps({"peer": peer, **figure}))


def _live(peer: str, work: Work) -> list[dict[str, Any]]:
    """Return the figures of one peer: of the load, one for each mark, one for the whole."""
    trips = Trips(work.rows, work.seed, False, False)
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, work.files)
        table.load(trips.load())
        loaded, laps = bytes_below(folder), list[float]()
        figures: list[dict[str, Any]] = [{"commits": 0, "bytes": loaded, "scan_ms": _scanned(table, trips)}]
        began, busy = time.perf_counter(), time.process_time()
        for commit in range(1, work.commits + 1):
            fresh = trips.small(work.batch)
            start = time.process_time()
            table.upsert(fresh)
            if commit % TIDIED_EVERY == 0:
                table.tidy()
            laps.append(time.process_time() - start)
            if commit in _MARKS or commit == work.commits:
                figures.append({"commits": commit, **_marked(table, trips, laps[-_LAST:], folder, loaded)})
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        rows = work.commits * work.batch
        figures.append(
            {
                "commits": work.commits,
                "rows_per_second": round(rows / seconds),
                "rows_per_cpu_second": round(rows / busy),
            }
        )
        if table.referred() is not None:
            table.compact()
            figures.append({"commits": work.commits, "compacted_scan_ms": _scanned(table, trips)})
    return figures


def _marked(table: Peer, trips: Trips, laps: list[float], folder: str, loaded: int) -> dict[str, float]:
    """Return what a table takes now, times in milliseconds of CPU; checks every row."""
    keys = trips.some_keys(1)
    opened, _ = _timed(table.reopen)
    first, _ = _timed(lambda: table.lookup(keys))
    again, found = _timed(lambda: table.lookup(keys))
    trips.check(found, keys)
    disk, referred = bytes_below(folder), table.referred()
    told = {} if referred is None else {"disk_of_referred": round(disk / referred, 3)}
    return {
        "commit_ms": round(1e3 * statistics.median(laps), 2),
        "commit_mean_ms": round(1e3 * statistics.mean(laps), 2),
        "commit_p99_ms": round(1e3 * sorted(laps)[int(0.99 * (len(laps) - 1))], 2),
        "open_ms": round(opened, 2),
        "first_key_ms": round(first, 2),
        "key_ms": round(again, 2),
        "scan_ms": _scanned(table, trips),
        "disk_of_load": round(disk / loaded, 3),
        **told,
    }


def _scanned(table: Peer, trips: Trips) -> float:
    """Return the median of what full scans take, in milliseconds of CPU; checks every row."""
    scans = [_timed(table.scan) for _ in range(_TIMES)]
    trips.check(scans[-1][1])
    return round(statistics.median(took for took, _ in scans), 2)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - start), result

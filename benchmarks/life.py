"""``python -m benchmarks life``: a table that is written to again and again in small commits, and
looks after itself.

Upserts of a few rows into a loaded table, nine in ten of which replace a row.  At some commits it
is measured what a commit takes (CPU and, of the median, time; median, mean and 99th percentile of
the last hundred), a new process's open and first look-up, a full scan, and the disk.  Files are of
the sizes that each peer makes by itself, unless their number is given.  Peers compact and vacuum
every hundred commits by their own means, in the measured time; mdt's services run by themselves,
and it is also measured what its disk is to what its readable states refer to, and a scan to one
after a full compaction.  A peer that has not finished when its time is over stops there, and says
at which commit.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from benchmarks.peers import Peer, bytes_below, open_peer
from benchmarks.trips import Trips

PEERS = ("mdt", "deltalake", "lance", "ducklake")
TIDIED_EVERY = 100
"""Commits after which a peer that does not look after itself is told to."""
_LAST = 100
_MARKS = (100, 1_000, 10_000)
_TIMES = 3


@dataclass(frozen=True)
class Work:
    """``rows`` of the load, ``commits`` of ``batch`` rows each, ``seed`` of all random data,
    ``files`` of the load, None: as the peer makes them.

    ``budget``: seconds after which a peer stops.
    """

    rows: int
    commits: int
    batch: int
    seed: int
    files: int | None = None
    budget: float = float("inf")


def run(
    peers: Sequence[str],
    work: Work,
    emit: Callable[[str], object],
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON.  Raises RuntimeError
    for a wrong answer.

    ``elsewhere``: Python interpreters of peers that are installed in another environment.
    """
    for peer in peers:
        python = (elsewhere or {}).get(peer, sys.executable)
        call = [python, "-m", "benchmarks.life", peer, json.dumps(asdict(work))]
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout or ():
                emit(json.dumps({"peer": peer, "batch": work.batch, **json.loads(line)}))
        if child.returncode:
            raise RuntimeError(f"{peer} ended with status {child.returncode}")


def _live(peer: str, work: Work) -> Iterator[dict[str, Any]]:
    """Yield the figures of one peer: of the load, one for each mark, one for the whole."""
    trips = Trips(work.rows, work.seed, False, False)
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, work.files)
        table.load(trips.load())
        loaded, laps = bytes_below(folder), list[tuple[float, float]]()
        yield {"commits": 0, "bytes": loaded, "scan_ms": _scanned(table, trips)}
        for commit in range(1, work.commits + 1):
            laps.append(_lap(table, trips.small(work.batch), commit % TIDIED_EVERY == 0))
            is_over = sum(took for _, took in laps) > work.budget
            if commit in _MARKS or commit == work.commits or is_over:
                yield {"commits": commit, **_marked(table, trips, laps[-_LAST:], folder, loaded)}
            if is_over:
                break
        rows, (busy, seconds) = len(laps) * work.batch, map(sum, zip(*laps, strict=True))
        told = {"rows_per_second": round(rows / seconds), "rows_per_cpu_second": round(rows / busy)}
        yield {
            "commits": len(laps),
            **told,
            **({"stopped_after_seconds": round(seconds)} if is_over else {}),
        }
        if table.referred() is not None:
            table.compact()
            yield {"commits": len(laps), "compacted_scan_ms": _scanned(table, trips)}


def _lap(table: Peer, rows: pa.Table, is_tidied: bool) -> tuple[float, float]:
    """Upsert ``rows``; return what that took, CPU and time in seconds."""
    busy, began = time.process_time(), time.perf_counter()
    table.upsert(rows)
    if is_tidied:
        table.tidy()
    return time.process_time() - busy, time.perf_counter() - began


def _marked(
    table: Peer, trips: Trips, last: list[tuple[float, float]], folder: str, loaded: int
) -> dict[str, float]:
    """Return what a table takes now, times in milliseconds of CPU; checks every row."""
    laps = [busy for busy, _ in last]
    keys = trips.some_keys(1)
    opened, _ = _timed(table.reopen)
    first, _ = _timed(lambda: table.lookup(keys))
    again, found = _timed(lambda: table.lookup(keys))
    trips.check(found, keys)
    disk, referred = bytes_below(folder), table.referred()
    told = {} if referred is None else {"disk_of_referred": round(disk / referred, 3)}
    return {
        "commit_ms": round(1e3 * statistics.median(laps), 2),
        "commit_wall_ms": round(1e3 * statistics.median(took for _, took in last), 2),
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


if __name__ == "__main__":  # a process of one peer
    for figure in _live(sys.argv[1], Work(**json.loads(sys.argv[2]))):
        print(json.dumps(figure), flush=True)

"""``python -m benchmarks writers``: one to eight processes write into one table, each its own keys,
with few and many rows a call.

Each writer upserts for some seconds, nine in ten rows replacing one; rows of its own, or ("hot")
the same ten of all.  mdt is also measured with 16 threads of one process that share a writer
(``t.writer()``), and on a storage of which every operation takes 50 ms more.  Peers write with one
process: they resolve no conflicts of upserts.  At the end the rows are counted.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from benchmarks.peers import Peer, open_peer
from benchmarks.trips import Trips, WrongAnswer
from mdt.stores.storage import LocalStorage
from mdt.testing.slow import SlowStorage

PEERS = ("mdt", "lance", "deltalake")
ROWS_A_CALL = (1, 100, 10_000)
WRITERS = (1, 2, 4, 8)
THREADS = 16
"""Of one process that share a writer."""
LATENCY = 0.05
"""Seconds that an operation of an object store takes."""
HOT_KEYS = 10


@dataclass(frozen=True)
class Work:
    """``peer`` and ``rows`` of the load; ``writers`` upsert ``batch`` rows a call for ``seconds``.

    ``threads``: of one process that share its writer; 0: calls are commits.  ``latency``: seconds
    of each operation of the storage.  ``hot``: all writers upsert the same keys.
    """

    peer: str
    rows: int
    seed: int
    batch: int
    writers: int
    seconds: float
    threads: int = 0
    latency: float = 0.0
    hot: bool = False


def run(
    peers: Sequence[str], rows: int, seed: int, seconds: float, emit: Callable[[str], object]
) -> None:
    """Measure every kind of work; ``emit`` takes lines of JSON.  Raises WrongAnswer if a row is
    lost.
    """
    for work in _works(peers, rows, seed, seconds):
        emit(
            json.dumps(
                {name: value for name, value in asdict(work).items() if value} | _measured(work)
            )
        )


def _works(peers: Sequence[str], rows: int, seed: int, seconds: float) -> Iterator[Work]:
    for peer in peers:
        for batch in ROWS_A_CALL:
            yield Work(peer, rows, seed, batch, 1, seconds)
    if "mdt" not in peers:
        return
    for writers in WRITERS[1:]:
        yield Work("mdt", rows, seed, 100, writers, seconds)
    for writers in WRITERS[1:]:
        yield Work("mdt", rows, seed, HOT_KEYS, writers, seconds, hot=True)
    for batch in ROWS_A_CALL[:2]:
        yield Work("mdt", rows, seed, batch, 1, seconds, threads=THREADS)
        yield Work("mdt", rows, seed, batch, 1, seconds, latency=LATENCY)
        yield Work("mdt", rows, seed, batch, 1, seconds, threads=THREADS, latency=LATENCY)


def _measured(work: Work) -> dict[str, Any]:
    """Return what the writers did together."""
    trips = Trips(work.rows, work.seed)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(work.peer, folder, None)
        table.load(trips.load())
        with context.Pool(work.writers) as pool:
            done = pool.starmap(
                _write, [(work, folder, number) for number in range(work.writers)], chunksize=1
            )
        table.reopen()
        found, expected = table.scan().num_rows, work.rows + sum(one["inserted"] for one in done)
        if found != expected:
            raise WrongAnswer(f"{work}: {found} rows instead of {expected}")
    total = {name: sum(one[name] for one in done) for name in ("calls", "refused", "cpu")}
    seconds = max(one["seconds"] for one in done)
    return {
        "calls_per_second": round(total["calls"] / seconds, 1),
        "rows_per_second": round(total["calls"] * work.batch / seconds),
        "cpu_ms_per_call": round(1e3 * total["cpu"] / max(1, total["calls"]), 2),
        "refused": total["refused"],
    }


def _write(work: Work, folder: str, number: int) -> dict[str, float]:
    """Upsert for some seconds; return how often that was done, and what it took."""
    trips, upsert, close = Trips(work.rows, work.seed + 1 + number), *_upserting(work, folder)
    trips.load()  # what comes after it is newer than the load of the table
    fresh = count(work.rows + number, work.writers)
    upsert(_batch(work, trips, number, 0, fresh))  # imports, and a first look
    busy, began = time.process_time(), time.perf_counter()
    calls = refused = 0
    inserted = _fresh(work)
    while time.perf_counter() - began < work.seconds:
        parts = [_batch(work, trips, number, call, fresh) for call in range(max(1, work.threads))]
        try:
            upsert(parts[0] if len(parts) == 1 else parts)
        except mdt.Conflict:
            refused += 1
            continue
        calls += len(parts)
        inserted += _fresh(work) * len(parts)
    close()
    return {
        "calls": calls,
        "refused": refused,
        "inserted": inserted,
        "cpu": time.process_time() - busy,
        "seconds": time.perf_counter() - began,
    }


def _upserting(work: Work, folder: str) -> tuple[Callable[[Any], object], Callable[[], object]]:
    """Return how rows, or those of many threads, are upserted, and how that ends."""
    if work.peer != "mdt":
        peer: Peer = open_peer(work.peer, folder, None)
        peer.reopen()
        return peer.upsert, lambda: None
    storage = LocalStorage(folder)
    table = mdt.open(SlowStorage(storage, work.latency) if work.latency else storage)
    if not work.threads:
        return table.upsert, lambda: None
    writer, pool = table.writer(max_seconds=0), ThreadPoolExecutor(work.threads)

    def gathered(parts: Any) -> None:
        given = [parts] if isinstance(parts, pa.Table) else parts
        list(pool.map(lambda part: writer.upsert(part).result(), given))

    return gathered, writer.close


def _fresh(work: Work) -> int:
    """Return how many rows of a call have new keys."""
    return 0 if work.hot else work.batch // 10


def _batch(work: Work, trips: Trips, number: int, call: int, fresh: Iterator[int]) -> pa.Table:
    """Return rows of this writer: nine in ten replace one of its own, the others have new keys."""
    if work.hot:
        return trips.of(np.arange(HOT_KEYS))
    new = [next(fresh) for _ in range(_fresh(work))]
    own = np.arange(number + call * work.writers, work.rows, work.writers * max(1, work.threads))
    old = np.random.default_rng(new[0] if new else None).choice(
        own, work.batch - len(new), replace=False
    )
    return trips.of(np.concatenate([old, np.array(new, np.int64)]))

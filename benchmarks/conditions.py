"""``python -m benchmarks conditions``: deletes and updates by a condition: of one row, of a
hundredth of the rows in one range of the key, and of a hundredth spread over all files; and merges
of a hundredth, nine in ten of the rows there already.  Seconds and CPU, medians; every count is
checked, and at the end every row that is left.  Each peer makes as many files as it does by itself.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import cpu_seconds, measured
from benchmarks.peers import open_peer, sql_list
from benchmarks.trips import Trips, WrongAnswer

PEERS = ("mdt", "deltalake", "lance")
MERGING = ("mdt", "deltalake")
"""Those that merge by clauses; lance has its upsert."""
SHARE = 0.01


def run(
    peers: Sequence[str], rows: int, seed: int, times: int, emit: Callable[[str], object]
) -> None:
    """Measure each peer in a process of its own; ``emit`` takes lines of JSON.  Raises
    WrongAnswer.
    """
    for figure in measured(peers, _measured, rows, seed, times):
        emit(json.dumps(figure))
    for figure in measured([peer for peer in peers if peer in MERGING], _merged, rows, seed, times):
        emit(json.dumps(figure))


def _conditions(trips: Trips, n: int, times: int) -> dict[str, tuple[str, np.ndarray[Any, Any]]]:
    """Return the n-th of ``times`` * 2 conditions of each kind, as SQL and as the rows of the load
    that match; no two touch the same row.
    """
    rows = trips.rows
    some, numbers = max(1, int(rows * SHARE)), np.arange(rows)
    one = numbers == rows // 2 + n * 7
    first = n * some
    ends = trips.keys_of(np.array([first, first + some - 1])).to_pylist()
    cuts = np.quantile(trips.fare, [0.5 + SHARE * n, 0.5 + SHARE * (n + 1)])
    return {
        "one row": (f"id = {sql_list(trips.keys_of(numbers[one]).to_pylist())[1:-1]}", one),
        "1 % in a range": (
            f"id >= {sql_list([ends[0]])[1:-1]} and id <= {sql_list([ends[1]])[1:-1]}",
            (numbers >= first) & (numbers < first + some),
        ),
        "1 % everywhere": (
            f"fare >= {cuts[0]:.6f} and fare < {cuts[1]:.6f}",
            (trips.fare >= round(cuts[0], 6)) & (trips.fare < round(cuts[1], 6)),
        ),
    }


def _measured(peer: str, rows: int, seed: int, times: int) -> list[dict[str, Any]]:
    """Return the figures of one peer."""
    trips, laps = Trips(rows, seed), dict[str, list[tuple[float, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, None)
        table.load(trips.load())
        live, distance = np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
        for n in range(2 * times):
            for kind, (where, hit) in _conditions(trips, n, times).items():
                wall, cpu = time.perf_counter(), cpu_seconds()
                name = f"{'update' if n % 2 else 'delete'}, {kind}"
                changed = (
                    table.update_where("distance", "distance * 0", where)
                    if n % 2
                    else table.delete_where(where)
                )
                laps.setdefault(name, []).append((time.perf_counter() - wall, cpu_seconds() - cpu))
                expected = int((live & hit).sum())
                if changed is not None and changed != expected:
                    raise WrongAnswer(f"{name}: {changed} rows instead of {expected}, {where}")
                if n % 2:
                    distance |= live & hit
                else:
                    live &= ~hit
        _check(table.scan(), trips, live, distance)
    return _medians(peer, laps)


def _merged(peer: str, rows: int, seed: int, times: int) -> list[dict[str, Any]]:
    """Return the figures of merges of one peer."""
    trips, laps = Trips(rows, seed), dict[str, list[tuple[float, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        table = open_peer(peer, folder, None)
        table.load(trips.load())
        for n in range(2 * times):
            source = trips.small(max(10, int(rows * SHARE)))
            wall, cpu = time.perf_counter(), cpu_seconds()
            changed = table.merge(source, whole=n % 2 == 0)
            name = "merge, whole rows" if n % 2 == 0 else "merge, two columns of newer rows"
            laps.setdefault(name, []).append((time.perf_counter() - wall, cpu_seconds() - cpu))
            if changed != len(source):
                raise WrongAnswer(f"{name}: {changed} rows instead of {len(source)}")
        trips.check(table.scan())
    return _medians(peer, laps)


def _medians(peer: str, laps: Mapping[str, Sequence[tuple[float, float]]]) -> list[dict[str, Any]]:
    figures = []
    for name, found in laps.items():
        wall_seconds, cpus = zip(*found, strict=True)
        medians = {
            "seconds": round(statistics.median(wall_seconds), 4),
            "cpu": round(statistics.median(cpus), 4),
        }
        figures.append({"peer": peer, "what": name, **medians, "times": len(found)})
    return figures


def _check(
    found: pa.Table, trips: Trips, live: np.ndarray[Any, Any], zeroed: np.ndarray[Any, Any]
) -> None:
    """Raise WrongAnswer unless the rows that live are there, and those that were updated have no
    distance.
    """
    expected = live.sum(), float(trips.fare[live].sum()), (live & zeroed).sum()
    zero = pc.sum(pc.equal(found["distance"], 0.0)).as_py()
    got = found.num_rows, pc.sum(found["fare"]).as_py(), zero
    if expected != got:
        raise WrongAnswer(f"expected (rows, sum of fare, updated) {expected}, got {got}")

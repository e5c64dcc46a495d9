"""``python -m benchmarks written``: bytes that each operation writes below a merge-on-read table,
by the rows that change.

Each line says by how much the directory grew, what the result of the operation tells, and how many
base files were written anew.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from benchmarks.trips import Int64Array, Trips
from mdt.write.result import WriteResult

ROWS_CHANGED = (1, 1_000, 50_000)
Step = tuple[str, Callable[[], WriteResult]]


def run(rows: int, seed: int, emit: Callable[[str], object]) -> None:
    """Measure each operation for each number of rows on one table; ``emit`` takes lines of JSON."""
    for changed in ROWS_CHANGED:
        if changed <= rows // 10:
            for figure in _measured(rows, seed, changed):
                emit(json.dumps(figure))


def _measured(rows: int, seed: int, changed: int) -> Iterator[dict[str, Any]]:
    trips = Trips(rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        options = {"mdt.services.auto": False, "mdt.durable": False}
        table = mdt.create(folder + "/t", trips.schema, key=["id"], ordering="ts", options=options)
        table.bulk_insert(trips.load())
        before = _size(Path(folder))
        for operation, act in _steps(table, trips, changed):
            done = act()
            after = _size(Path(folder))
            yield {
                "bench": "written",
                "operation": operation,
                "rows": changed,
                "bytes": after - before,
                "told": done.bytes_written,
                "files_written": done.files_written,
                "files_rewritten": done.files_rewritten,
            }
            before = after


def _steps(table: mdt.Table, trips: Trips, changed: int) -> Iterator[Step]:
    """Yield operations; the rows of each are spread over all keys."""
    chance = np.random.default_rng(trips.seed)
    rows = trips.rows

    def some() -> Int64Array:
        return np.sort(chance.choice(rows, changed, replace=False))

    def listed(numbers: Int64Array) -> str:
        return "id in (" + ", ".join(repr(key) for key in trips.keys_of(numbers).to_pylist()) + ")"

    def older(data: pa.Table) -> pa.Table:
        at = data.schema.get_field_index("ts")
        return data.set_column(at, data.schema.field(at), pa.array(np.zeros(len(data), np.int64)))

    def merged(data: pa.Table, set: Any) -> WriteResult:
        return table.merge(data).when_matched().update(set).execute()

    yield (
        "insert",
        lambda: table.insert(trips.of(np.arange(len(trips.fare), len(trips.fare) + changed))),
    )
    yield "upsert", lambda: table.upsert(trips.of(some()))
    yield (
        "partial upsert of one column",
        lambda: table.upsert(trips.of(some()).select(["id", "fare"]), partial=True),
    )
    yield 'merge, update("*")', lambda: merged(trips.of(some()), "*")
    yield "merge, update of one column", lambda: merged(trips.of(some()), {"fare": "source.fare"})
    if changed <= 1_000:  # a condition of more literals is no use anybody has
        yield (
            "update_where of one column",
            lambda: table.update_where({"fare": "fare + 1"}, listed(some())),
        )
        yield (
            "update_where, larger ordering value",
            lambda: table.update_where({"ts": "ts + 1"}, listed(some())),
        )
    gone = some()
    yield "delete", lambda: table.delete(trips.of(gone).select(["id"]))
    yield "upsert of deleted keys", lambda: table.upsert(trips.of(gone))
    yield 'merge, update("*"), smaller ordering value', lambda: merged(older(trips.of(some())), "*")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

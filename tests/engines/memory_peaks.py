"""A process of its own that writes rows of a generator with little memory, and says what each write took at most: ``python memory_peaks.py FOLDER LIMIT ROWS``.

Prints a JSON object: write -> bytes above what the process had before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import mdt

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("f", pa.float64()), ("note", pa.string())])
_BATCH_ROWS = 20_000
_SPREAD = 7_368_787
"""What keys differ by from row to row, so that the rows of a file come from everywhere."""


def batches(start: int, stop: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield rows with the keys of numbers ``start`` to ``stop``."""
    draw = np.random.default_rng(seed)
    for at in range(start, stop, _BATCH_ROWS):
        n = min(_BATCH_ROWS, stop - at)
        values = draw.integers(0, 1 << 40, n)
        ids = np.arange(at, at + n) * _SPREAD % (1 << 40)
        yield pa.record_batch([ids, values, draw.random(n), pa.array(values % 10**9).cast(pa.string())], schema=SCHEMA)


def _status(name: str) -> int:
    """Return a figure of this process, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def peak(write: Callable[[], object]) -> int:
    """Return how many bytes of memory the process has at most during ``write``."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    write()
    return _status("VmHWM")


def main(folder: Path, limit: int, rows: int) -> dict[str, int]:
    """Return the peak of each write of some ``rows``."""
    mdt.create(folder / "small", SCHEMA, key=["id"], options={"mdt.durable": False})
    small = mdt.open(folder / "small", options={"mdt.write.memory.max": 1})
    for write in (small.bulk_insert, small.upsert, small.delete):  # what is imported, once
        write(batches(0, 10))
    mdt.create(folder / "t", SCHEMA, key=["id"], options={"mdt.durable": False})
    table = mdt.open(folder / "t", options={"mdt.write.memory.max": limit, "mdt.writer.threads": 2})
    before = _status("VmRSS")
    peaks = {
        "load": peak(lambda: table.bulk_insert(batches(0, rows))),
        "upsert": peak(lambda: table.upsert(batches(0, rows, 1))),
        "delete": peak(lambda: table.delete(batch.select(["id"]) for batch in batches(0, rows))),
    }
    return {name: most - before for name, most in peaks.items()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

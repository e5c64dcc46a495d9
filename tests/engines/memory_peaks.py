"""Script that writes rows from a generator under a memory limit and measures the peak memory of each
write: ``python memory_peaks.py FOLDER LIMIT ROWS``.

Prints a JSON object: write -> bytes above the memory that the process used before. For writes that
rewrite files ("rewrite of …") only anonymous memory counts. Memory-mapped files (the old file, the
new file and its key map) do not.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
from texts import columns

import mdt

SCHEMA = columns("id int64, a int64, f float64, note string")
_BATCH_ROWS = 20_000
_SPREAD = 7_368_787
"""Difference between the keys of consecutive rows, so that each file takes rows from all batches."""


def batches(start, stop, seed=0):
    """Yield rows whose keys are made from the numbers ``start`` to ``stop``."""
    draw = np.random.default_rng(seed)
    for at in range(start, stop, _BATCH_ROWS):
        n = min(_BATCH_ROWS, stop - at)
        values = draw.integers(0, 1 << 40, n)
        ids = np.arange(at, at + n) * _SPREAD % (1 << 40)
        yield pa.record_batch(
            [ids, values, draw.random(n), pa.array(values % 10**9).cast(pa.string())], schema=SCHEMA
        )


def _status(name):
    """Return a memory figure of this process from /proc, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def peak(write):
    """Return the peak resident memory of the process during ``write``, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    write()
    return _status("VmHWM")


def own_peak(write):
    """Return the peak anonymous memory of the process during ``write``, in bytes, sampled every few
    milliseconds.
    """
    done, highest = threading.Event(), [0]

    def sample():
        while not done.wait(0.003):
            highest[0] = max(highest[0], _status("RssAnon"))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        write()
    finally:
        done.set()
        sampler.join()
    return highest[0]


def fill(folder, rows):
    """Create tables of one file with ``rows`` rows each. Only a write with more memory makes such a
    file.
    """
    options = {
        "mdt.durable": False,
        "mdt.services.auto": False,
        "mdt.max.file.bytes": 1 << 30,
        "mdt.writer.threads": 1,
    }
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        table = mdt.create(folder / kind, SCHEMA, key=["id"], table_type=kind, options=options)
        table.bulk_insert(pa.Table.from_batches(batches(0, rows)))
        assert len(table.files()) == 1
    table.upsert(pa.Table.from_batches(batches(0, rows // 20, 2)))


def rewrites(folder, limit, rows):
    """Return the peak memory of writes that rewrite such a file."""
    command = [sys.executable, __file__, str(folder), "fill", str(rows)]
    subprocess.run(command, check=True)
    options = {"mdt.write.memory.max": limit, "mdt.services.auto": False}
    cow, mor = (
        mdt.open(folder / kind, options=options) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")
    )
    before, part = _status("RssAnon"), rows // 20
    peaks = {
        "rewrite of an upsert": own_peak(lambda: cow.upsert(batches(rows - part, rows + part, 1))),
        "rewrite of a delete": own_peak(
            lambda: cow.delete(batch.select(["id"]) for batch in batches(0, part))
        ),
        "rewrite of a delete by condition": own_peak(lambda: cow.delete_where("f < 0.01")),
        "rewrite of a compaction": own_peak(mor.compact),
    }
    assert len(mor.files()) == 1
    return {name: highest - before for name, highest in peaks.items()}


def main(folder, limit, rows):
    """Return the peak memory of each write of ``rows`` rows."""
    mdt.create(folder / "small", SCHEMA, key=["id"], options={"mdt.durable": False})
    small = mdt.open(folder / "small", options={"mdt.write.memory.max": 1})
    for write in (small.bulk_insert, small.upsert, small.delete):  # imports happen here, once
        write(batches(0, 10))
    mdt.create(folder / "t", SCHEMA, key=["id"], options={"mdt.durable": False})
    table = mdt.open(folder / "t", options={"mdt.write.memory.max": limit, "mdt.writer.threads": 2})
    before = _status("VmRSS")
    peaks = {
        "load": peak(lambda: table.bulk_insert(batches(0, rows))),
        "upsert": peak(lambda: table.upsert(batches(0, rows, 1))),
        "delete": peak(lambda: table.delete(batch.select(["id"]) for batch in batches(0, rows))),
    }
    return {name: highest - before for name, highest in peaks.items()} | rewrites(
        folder, limit, rows
    )


if __name__ == "__main__" and sys.argv[2] == "fill":
    fill(Path(sys.argv[1]), int(sys.argv[3]))
elif __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

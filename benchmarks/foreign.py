"""``python -m benchmarks foreign``: read a table of another writer, the same table adopted, and the
same with hudi-rs; open one of many files, and follow a commit to some of them.

The tables are written by mdt in version 9, and its own metadata is moved away. Log blocks are
Parquet. Each figure is that of a new process, or of the step after it in the same process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from benchmarks.trips import Trips

FILES_DEFAULT = 10_000
TOUCHED = 50
"""Files that the commit touches that a reader follows."""
UPDATED = 0.2
"""Part of the rows that log files replace."""
OPTIONS = {"mdt.services.auto": False, "mdt.durable": False}
_PRIVATE = Path(".hoodie/.mdt")
_BEGIN = """
import json, sys, time
laps = []
def lap(act):
    start = time.perf_counter(), time.process_time()
    result = act()
    laps.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return result
"""
_OPENINGS = (
    ("first opening, a plan", True, "t.scan('v = 77').plan"),
    ("first opening, all files", True, "t.snapshot()"),
    ("later opening, a plan", False, "t.scan('v = 77').plan"),
)
"""Name of the figure, whether the cache is empty, and the code after the opening."""
Lap = tuple[float, float]
"""Seconds and CPU seconds."""
_SCANS = {
    "mdt": (
        "import mdt; t = lap(lambda: mdt.open(PATH, OPTIONS)); scan = lambda: t.scan().to_arrow()"
    ),
    "hudi-rs": (
        "import pyarrow; from hudi import HudiTable; t = lap(lambda: HudiTable(PATH));"
        " scan = lambda: pyarrow.Table.from_batches(t.read())"
    ),
}
"""Reader -> code that opens a table and defines a scan."""


def run(rows: int, files: int, seed: int, repeat: int, emit: Callable[[str], object]) -> None:
    """Measure everything; ``emit`` takes lines of JSON.

    rows: Rows of the table that is scanned.
    files: Files of the table that is opened.
    """
    for figure in [*_scans(rows, seed, repeat), *_openings(files, repeat)]:
        emit(json.dumps({"bench": "foreign", **figure}))


def _scans(rows: int, seed: int, repeat: int) -> Iterator[dict[str, Any]]:
    trips = Trips(rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        options = {**OPTIONS, "mdt.table.version": 9}
        table = mdt.create(path, trips.schema, key=["id"], ordering="ts", options=options)
        table.bulk_insert(trips.load())
        chosen = np.random.default_rng(seed).choice(rows, int(UPDATED * rows), replace=False)
        table.upsert(trips.of(np.sort(chosen)))
        (path / _PRIVATE).rename(Path(folder) / "metadata")
        for reader, code in _SCANS.items():
            yield from _scanned(path, reader, "of another writer", code, repeat)
        mdt.adopt(path)
        yield from _scanned(path, "mdt", "adopted", _SCANS["mdt"], repeat)


def _scanned(
    path: Path, reader: str, table: str, code: str, repeat: int
) -> Iterator[dict[str, Any]]:
    code += "\nrows = lap(scan); assert len(rows), 'no rows'; lap(scan)"
    laps = [_laps(path, code, {}) for _ in range(repeat)]
    total = [_sum(one[:2]) for one in laps]
    for what, times in (("open and scan", total), ("scan again", [one[2] for one in laps])):
        yield {"what": what, "reader": reader, "table": table, **_medians(times)}


def _openings(files: int, repeat: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        options = {**OPTIONS, "hoodie.metadata.enable": True}
        schema = pa.schema({"id": pa.int64(), "p": pa.int64(), "v": pa.int64(), "s": pa.string()})
        table = mdt.create(path, schema, ["id"], partition_by=["p"], version=9, options=options)
        table.bulk_insert(_numbered(np.arange(3 * files)))
        with _hidden(path):
            for what, is_first, code in _OPENINGS:
                runs = [_opened(path, code, is_first=is_first) for _ in range(repeat)]
                yield {"what": what, "files": files, **_medians(runs)}
        runs = [_followed(table, path, number) for number in range(repeat)]
        yield {"what": f"a commit to {TOUCHED} files", "files": files, **_medians(runs)}


def _cache(path: Path) -> dict[str, Any]:
    return {"mdt.cache.dir": str(path.with_name("cache"))}


def _opened(path: Path, code: str, *, is_first: bool) -> Lap:
    """Return the times of an opening with ``code`` after it, in a new process."""
    if is_first:
        shutil.rmtree(path.with_name("cache-tables"), ignore_errors=True)
    return _sum(_laps(path, f"{_SCANS['mdt']}\nlap(lambda: {code})", _cache(path)))


def _followed(table: mdt.Table, path: Path, number: int) -> Lap:
    """Return the time that an open reader takes to import a commit."""
    with _hidden(path):
        reader = mdt.open(path, _cache(path))
        reader.snapshot()
    table.upsert(_numbered(np.arange(TOUCHED) * 3 + number % 3))
    with _hidden(path):
        start = time.perf_counter(), time.process_time()
        reader.snapshot()
        return time.perf_counter() - start[0], time.process_time() - start[1]


@contextmanager
def _hidden(path: Path) -> Iterator[None]:
    """Context in which the table is one of another writer."""
    elsewhere = path.with_name("metadata")
    (path / _PRIVATE).rename(elsewhere)
    yield
    elsewhere.rename(path / _PRIVATE)


def _laps(path: Path, code: str, options: dict[str, Any]) -> list[Lap]:
    """Return the seconds and CPU seconds of each lap of ``code``, in a new process."""
    script = f"PATH = {str(path)!r}; OPTIONS = {options!r}{_BEGIN}{code}\nprint(json.dumps(laps))"
    call = [sys.executable, "-c", script]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return [(lap[0], lap[1]) for lap in json.loads(done.stdout)]


def _sum(laps: list[Lap]) -> Lap:
    return sum(lap[0] for lap in laps), sum(lap[1] for lap in laps)


def _medians(laps: list[Lap]) -> dict[str, float]:
    seconds, cpu = zip(*laps, strict=True)
    return {"seconds": round(median(seconds), 3), "cpu": round(median(cpu), 3)}


def _numbered(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return three rows for each file."""
    texts = pa.array(ids % 7).cast(pa.string())
    return pa.table({"id": ids, "p": ids // 3, "v": ids, "s": texts})

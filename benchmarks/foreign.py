"""``python -m benchmarks foreign``: read a table of another writer, the same table adopted, and the
same with hudi-rs; open one of many files, adopt it, and follow a commit to some of them.

The tables are written by mdt, and its own metadata is moved away. Log blocks are Parquet. Each
figure is that of a new process, or of the step after it in the same process.

The table of many files has Hudi's metadata table with ``files`` and ``column_stats``. Its files are
written by pyarrow, 0.4 ms each, because an insert takes 4 ms. A commit record of ours names them,
and is published as any other.
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
import pyarrow.parquet as pq

import mdt
from benchmarks import planning
from benchmarks.trips import Trips
from indexes import values
from mdt.commit import hudi_metadata, publish
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import SLICES, STATS, CommitRecord

FILES_DEFAULT = 10_000
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int64(), "v": pa.int64(), "s": pa.string()})
"""Columns of the table of many files."""
TOUCHED = 50
"""Files that the commit touches that a reader follows."""
_COMMITS = 15
"""Commits to so many files each. Hudi's metadata table merges its log files after ten."""
_TABLES = ((9, 100), (9, 1_000), (6, 100))
"""Table versions, and numbers of partitions."""
_Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
UPDATED = 0.2
"""Part of the rows that log files replace."""
OPTIONS = {"mdt.services.auto": False, "mdt.durable": False}
_PRIVATE = Path(".hoodie/.mdt")
_BEGIN = """
import json, time, pyarrow, pyarrow.compute
pyarrow.scalar(0)  # the first one imports pandas
laps = []
def lap(act):
    start = time.perf_counter(), time.process_time()
    result = act()
    times = time.perf_counter() - start[0], time.process_time() - start[1]
    peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    laps.append((*times, int(peak[0]) / 1024 if peak else 0))
    return result
"""
_OPENINGS = (
    ("first opening, a plan", True, "t.scan('v = 77').plan"),
    ("first opening, all files", True, "t.snapshot()"),
    ("later opening, a plan", False, "t.scan('v = 77').plan"),
)
"""Name of the figure, whether the cache is empty, and the code after the opening."""
Lap = tuple[float, float, float]
"""Seconds, CPU seconds, and the largest memory of the process so far in megabytes."""
_SCANS = {
    "mdt": (
        "import mdt; t = lap(lambda: mdt.open(PATH, OPTIONS)); scan = lambda: t.scan().to_arrow()"
    ),
    "hudi-rs": (
        "from hudi import HudiTable; t = lap(lambda: HudiTable(PATH));"
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
    for version, partitions in _TABLES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t"
            start = time.perf_counter(), time.process_time()
            _make(path, files, partitions, version)
            made = time.perf_counter() - start[0], time.process_time() - start[1], 0.0
            about = {"files": files, "partitions": partitions, "version": version}
            yield {"what": "make the table", **_medians([made]), **about}
            for figure in _of_many(path, partitions, repeat):
                yield {**figure, **about}


def _of_many(path: Path, partitions: int, repeat: int) -> Iterator[dict[str, Any]]:
    for what, is_first, code in _OPENINGS:
        runs = [_opened(path, code, is_first=is_first) for _ in range(repeat)]
        yield {"what": what, **_medians(runs)}
    adoption = "import mdt; lap(lambda: mdt.adopt(PATH, options=OPTIONS))"
    yield {"what": "adoption", **_medians(_laps(path, adoption, OPTIONS))}
    table = mdt.open(path, OPTIONS)
    runs = [_followed(table, path, partitions, number) for number in range(repeat)]
    yield {"what": f"a commit to {TOUCHED} files", **_medians(runs)}


def _make(path: Path, files: int, partitions: int, version: int) -> None:
    """Make a table of another writer. In Hudi's metadata table, the files of its first commit are
    in base files, and those of its last commits are in log files.
    """
    options = {**OPTIONS, "hoodie.metadata.enable": True, "mdt.hudi.column.stats": True}
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["p"], version=version, options=options)
    marker = properties.partition_metadata(planning.instant_of(table.storage, 0), 1)
    for number in range(partitions):
        table.storage.replace(paths.partition_metadata(f"p={number}"), marker)
    for numbers in np.split(
        np.arange(files), range(max(files - _COMMITS * TOUCHED, 1), files, TOUCHED)
    ):
        _commit(table, numbers, partitions)
    shutil.rmtree(path / _PRIVATE)


def _commit(table: mdt.Table, numbers: _Numbers, partitions: int) -> None:
    """Commit new files, without what only readers of our own metadata use."""
    metadata, storage = table.metadata, table.storage
    before, count = metadata.newest(), len(numbers)
    seq, instant = before.seq + 1, planning.instant_of(storage, before.seq + 1)
    rows = _numbered((3 * numbers[:, None] + np.arange(3)).ravel(), partitions)
    added = planning.files_of(int(numbers[0]), count, instant, seq)
    folders = [f"p={number % partitions}" for number in numbers.tolist()]
    names = added["name"].to_pylist()
    sizes = _write(Path(storage.url), folders, names, rows, instant)
    columns = {"partition": folders, "size": sizes, "block_length": sizes}
    columns |= {"rows": [3] * count, "row_group_rows": [[3]] * count}
    for name, column in columns.items():
        field = FILES.field(name)
        added = added.set_column(FILES.names.index(name), field, [pa.array(column, field.type)])
    header = {
        "txn": storage.random_hex(16),
        "instant": instant,
        "action": "deltacommit",
        "operation": "bulk_insert",
        "begun_at": before.seq,
        "token": seq,
        "counts": {},
    }
    slices = pa.table([["null"] * count, [""] * count, [[]] * count], schema=SLICES)
    tables = {"files": added, "slices": slices, "stats": _stats(rows)}
    record = publish.with_completion(
        CommitRecord(seq, header, tables), before.definition, before.last_time, storage.now_us()
    )
    assert commit_log.append(storage, record)
    newest = metadata.newest()
    hudi_metadata.keep(metadata, record, newest)
    publish.publish(storage, record, newest.definition)


def _write(
    folder: Path, folders: list[str], names: list[str], rows: pa.Table, instant: str
) -> list[int]:
    """Write three rows into each file, and return the sizes of the files."""
    keys = rows["id"].cast(pa.string()).to_pylist()
    places = np.repeat(np.arange(len(names)), 3)
    meta = {
        "_hoodie_commit_time": pa.repeat(instant, len(rows)),
        "_hoodie_commit_seqno": keys,
        "_hoodie_record_key": keys,
        "_hoodie_partition_path": pa.array(folders).take(places),
        "_hoodie_file_name": pa.array(names).take(places),
    }
    whole = pa.table([*meta.values(), *rows.columns], [*meta, *rows.column_names])
    sizes = []
    for number, (partition, name) in enumerate(zip(folders, names, strict=True)):
        path = folder / partition / name
        pq.write_table(whole.slice(3 * number, 3), path)
        sizes.append(path.stat().st_size)
    return sizes


def _stats(rows: pa.Table) -> pa.Table:
    """Return the statistics of files of three rows -> STATS."""
    tables, count = [], len(rows) // 3
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        of_file = column.cast(pa.int64()).to_numpy().reshape(count, 3)
        ends = (pa.array(end).cast(column.type) for end in (of_file.min(1), of_file.max(1)))
        low, high = map(values.encode, ends)
        columns = [[name] * count, range(count), [-1] * count, low, high]
        columns += [[True] * count] * 2 + [[0] * count] * 2 + [[3] * count, [24] * count]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, STATS, strict=True)]
        tables.append(pa.table(arrays, schema=STATS))
    return pa.concat_tables(tables)


def _cache(path: Path) -> dict[str, Any]:
    return {"mdt.cache.dir": str(path.with_name("cache"))}


def _opened(path: Path, code: str, *, is_first: bool) -> Lap:
    """Return the times of an opening with ``code`` after it, in a new process."""
    if is_first:
        shutil.rmtree(path.with_name("cache-tables"), ignore_errors=True)
    return _sum(_laps(path, f"{_SCANS['mdt']}\nlap(lambda: {code})", _cache(path)))


def _followed(table: mdt.Table, path: Path, partitions: int, number: int) -> Lap:
    """Return the time that an open reader takes to import a commit."""
    with _hidden(path):
        reader = mdt.open(path, _cache(path))
        reader.snapshot()
    table.upsert(_numbered(np.arange(TOUCHED) * 3 + number % 3, partitions))
    with _hidden(path):
        start = time.perf_counter(), time.process_time()
        reader.snapshot()
        return time.perf_counter() - start[0], time.process_time() - start[1], 0.0


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
    environment = planning.with_bytecode()
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    return [(lap[0], lap[1], lap[2]) for lap in json.loads(done.stdout)]


def _sum(laps: list[Lap]) -> Lap:
    seconds, cpu, peak = zip(*laps, strict=True)
    return sum(seconds), sum(cpu), max(peak)


def _medians(laps: list[Lap]) -> dict[str, float]:
    seconds, cpu, peak = (median(column) for column in zip(*laps, strict=True))
    return {"seconds": round(seconds, 3), "cpu": round(cpu, 3), "megabytes": round(peak)}


def _numbered(ids: _Numbers, partitions: int) -> pa.Table:
    """Return rows, three for each file."""
    columns = {"id": ids, "p": ids // 3 % partitions, "v": ids, "s": ids % 7}
    return pa.table({name: pa.array(column) for name, column in columns.items()}).cast(SCHEMA)

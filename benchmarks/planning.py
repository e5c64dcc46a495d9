"""``python -m benchmarks planning``: open, plan and commit on tables of very many files.

The files do not exist: commit records, Delta logs and Iceberg manifests say that they do, with
statistics of five columns, and nothing reads them.  ``cold`` runs in new processes, with compiled
bytecode as an installed package has it: the time of pyarrow's imports (pandas among them, which it
imports with the first scalar where it is installed), that of the peer's, and that of open and plan
after them.  ``commit`` is a real upsert of a few rows into a real file of the table.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from indexes import values
from mdt.hudi import timeline
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import SLICES, STATS, CommitRecord
from mdt.stores.storage import Storage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.int64()),
        ("device", pa.int64()),
        ("fare", pa.float64()),
        ("note", pa.string()),
    ]
)
ROWS = 100_000
"""Rows of each file that does not exist."""
FILES_PER_COMMIT = 50_000
ICEBERG_FILES_PER_COMMIT = 40_000
"""Files of one manifest, of some 8 MB: the size that Iceberg's writers aim at
(commit.manifest.target-size-bytes).
"""
ICEBERG_FILES_MAX = 100_000
"""A plan takes a minute and more beyond."""
OPTIONS = {"mdt.durable": False}
FILES_DEFAULT = (1_000, 10_000, 100_000, 1_000_000)

_COLD_MDT = """
import time, json; a = time.perf_counter()
import pyarrow, pyarrow.compute; pyarrow.scalar(0); b = time.perf_counter()
import mdt; c = time.perf_counter()
t = mdt.open(PATH); scan = t.scan(WHERE); found = [scan.snapshot.files.value("name", s.file).as_py() for s in scan.plan.segments]
d = time.perf_counter()
"""
COLD_DELTA = """
import time, json; a = time.perf_counter()
import pyarrow, pyarrow.compute, pyarrow.dataset as ds; pyarrow.scalar(0); b = time.perf_counter()
import deltalake; c = time.perf_counter()
column, value = WHERE.split(" = ")
adds = pyarrow.table(deltalake.DeltaTable(PATH).get_add_actions(flatten=True))
found = adds.filter((ds.field("min." + column) <= int(value)) & (ds.field("max." + column) >= int(value)))["path"].to_pylist()
d = time.perf_counter()
"""
_COLD_ICEBERG = """
import time, json; a = time.perf_counter()
import pyarrow, pyarrow.compute; pyarrow.scalar(0); b = time.perf_counter()
import pyiceberg.io.pyarrow; from pyiceberg.catalog.sql import SqlCatalog; c = time.perf_counter()
table = SqlCatalog("local", uri=f"sqlite:///{PATH}/catalog.db").load_table("bench.files")
found = [task.file.file_path for task in table.scan(row_filter=WHERE).plan_files()]
d = time.perf_counter()
"""
_COLD_END = """
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([len(found), b - a, c - b, d - c, int(peak[0]) / 1024 if peak else 0]))
"""


@dataclass
class Line:
    """One line of the result: milliseconds, except ``megabytes`` (peak memory of a process) and
    ``files_found``.
    """

    peer: str
    files: int
    workload: str
    ms: float
    import_arrow_ms: float | None = None
    import_peer_ms: float | None = None
    files_found: int | None = None
    megabytes: float | None = None


def _device(n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the one value that column ``device`` has in each file: scattered, all different."""
    return np.random.default_rng(7).permutation(n).astype(np.int64)


def _keys(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return values.encode(pa.array(numbers, pa.int64()))


def _stats(first: int, n: int, device: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return the statistics of files ``first`` to ``first + n``, schema STATS, segments as
    ordinals.
    """
    at = np.arange(first, first + n) * ROWS
    ids = [[f"id_{x:012}".encode() for x in (at + end).tolist()] for end in (0, ROWS - 1)]
    fares = values.encode(pa.array([0.25, 99.75]))
    bounds = {
        "id": (pa.array(ids[0], pa.binary()), pa.array(ids[1], pa.binary())),
        "at": (_keys(at), _keys(at + ROWS - 1)),
        "device": (_keys(device[first : first + n]),) * 2,
        "fare": tuple(pa.array([fares[i].as_py()] * n, pa.binary()) for i in range(2)),
        "note": (pa.array([b"a"] * n, pa.binary()), pa.array([b"zz"] * n, pa.binary())),
    }
    tables = []
    for name, (low, high) in bounds.items():
        exact, zero = pa.array([True] * n), pa.array(np.zeros(n, np.int64))
        counts = [zero, zero, pa.array(np.full(n, ROWS)), pa.array(np.full(n, 8 * ROWS))]
        label = [pa.array([name] * n), pa.array(np.arange(n)), pa.array(np.full(n, -1, np.int32))]
        tables.append(pa.table([*label, low, high, exact, exact, *counts], schema=STATS))
    return pa.concat_tables(tables)


def files_of(first: int, n: int, instant: str, token: int) -> pa.Table:
    """Return rows of FILES for files that do not exist, full ones so that no insert goes there."""
    ids = [f"{x:08x}-0000-4000-8000-{x:012x}-0" for x in range(first, first + n)]
    names = [f"{name}_0-{token}-0_{instant}.parquet" for name in ids]
    same = {
        "partition": "",
        "base_instant": instant,
        "instant": instant,
        "kind": 0,
        "log_version": 0,
        "crc": 0,
        "size": 130 << 20,
        "rows": ROWS,
        "block_offset": 0,
        "block_length": 130 << 20,
        "inserts": 0,
        "updates": 0,
        "deletes": 0,
        "footer_length": 0,
        "footer_crc": 0,
        "first_row": 0,
    }
    own = {
        "segment": range(n),
        "shard": range(n),
        "file_id": ids,
        "name": names,
        "row_group_rows": [[ROWS // 2] * 2] * n,
    }
    columns = {f.name: own.get(f.name, [same.get(f.name)] * n) for f in FILES}
    return pa.table([pa.array(columns[f.name], f.type) for f in FILES], schema=FILES)


def append_files(storage: Storage, files: int) -> int:
    """Append commit records with ``files`` files that do not exist, and return their number."""
    device, starts = _device(files), range(0, files, FILES_PER_COMMIT)
    for seq, first in enumerate(starts, 1):
        n = min(FILES_PER_COMMIT, files - first)
        instant = instant_of(storage, seq)
        tables = {
            "files": files_of(first, n, instant, seq),
            "slices": pa.table([["null"] * n, [""] * n, [[]] * n], schema=SLICES),
            "stats": _stats(first, n, device),
        }
        append(storage, seq, instant, tables)
    return len(starts)


def instant_of(storage: Storage, seq: int) -> str:
    """Return an instant for a commit, later than those of earlier commits."""
    return timeline.instant_text(storage.now_us() + 1_000 * seq)


def append(
    storage: Storage, seq: int, instant: str, tables: Mapping[str, pa.Table]
) -> CommitRecord:
    """Append the commit record ``seq`` with these sections, and return it."""
    header = {
        "txn": storage.random_hex(16),
        "instant": instant,
        "action": "rollback",
        "operation": "synthetic",
        "begun_at": seq - 1,
        "token": seq,
        "counts": {},
    }
    record = CommitRecord(seq, header, tables)
    assert commit_log.append(storage, record)
    return record


def make(path: str, files: int) -> mdt.Table:
    """Make a table of ``files`` files that do not exist and one that does."""
    table = mdt.create(path, SCHEMA, ["id"], key_index="record", options=OPTIONS)
    append_files(table.storage, files)
    return mdt.open(path, {**OPTIONS, "mdt.metadata.compact.records": 10_000})


def _rows(first: int, n: int) -> pa.Table:
    ids = [f"real_{x:08}" for x in range(first, first + n)]
    return pa.table([ids, [0] * n, [-1] * n, [1.5] * n, ["text"] * n], schema=SCHEMA)


def _plan(table: mdt.Table, where: str) -> object:
    return table.scan(where).plan


def _ms(work: Callable[[], object], times: int) -> float:
    laps = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        laps.append(1000 * (time.perf_counter() - start))
    return statistics.median(laps)


def with_bytecode() -> dict[str, str]:
    """Return the environment of a process with compiled bytecode, as an installed package has it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": tempfile.gettempdir() + "/mdt-planning-bytecode", **kept}


def cold(peer: str, code: str, path: str, files: int, where: str, times: int) -> Line:
    """Return the times of opening and planning in new processes that run ``code``."""
    script = f"PATH = {path!r}; WHERE = {where!r}" + code + _COLD_END
    runs = []
    for _ in range(times + 1):  # the first one warms the file cache
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=with_bytecode(),
        )
        runs.append(json.loads(done.stdout))
    found, arrow, own, plan, memory = (
        statistics.median(column) for column in zip(*runs[1:], strict=True)
    )
    return Line(
        peer, files, f"cold: {where}", 1000 * plan, 1000 * arrow, 1000 * own, int(found), memory
    )


def measure(path: str, files: int, times: int) -> Iterator[Line]:
    """Yield the figures of mdt on a new table of ``files`` files at ``path``."""
    start = time.perf_counter()
    table = make(path, files)
    yield Line("mdt", files, "replay of the log alone", 1000 * (time.perf_counter() - start))
    start = time.perf_counter()
    table.metadata.compact()
    yield Line("mdt", files, "metadata compaction, the first", 1000 * (time.perf_counter() - start))
    somewhere = files // 3
    clustered, scattered = (
        f"at = {somewhere * ROWS + 5}",
        f"device = {int(_device(files)[somewhere])}",
    )
    for where in (scattered, clustered):
        yield cold("mdt", _COLD_MDT, path, files, where, times)
        yield Line("mdt", files, f"warm: {where}", _ms(partial(_plan, table, where), 5 * times))
    table.upsert(_rows(0, 100))
    yield Line(
        "mdt",
        files,
        "commit: upsert of 100 rows",
        _ms(lambda: table.upsert(_rows(50, 100)), 5 * times),
    )
    yield Line(
        "mdt",
        files,
        "commit, then a plan",
        _ms(lambda: (table.upsert(_rows(50, 100)), table.scan(clustered).plan), times),
    )
    yield Line(
        "mdt",
        files,
        "open with commits since the base, plan",
        _ms(lambda: mdt.open(path).scan(clustered).plan, times),
    )
    yield Line("mdt", files, "metadata compaction", _ms(table.metadata.compact, 1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Line("mdt", files, "memory of all this", 0.0, megabytes=peak)


def make_delta(path: str, files: int) -> None:
    """Make a Delta table of ``files`` files that do not exist, with a checkpoint."""
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    kinds = {"id": "string", "at": "long", "device": "long", "fare": "double", "note": "string"}
    DeltaTable.create(
        path, Schema([Field(name, PrimitiveType(kind)) for name, kind in kinds.items()])
    )
    device = _device(files).tolist()
    lines = []
    for i in range(files):
        low, high = i * ROWS, (i + 1) * ROWS - 1
        stats = {
            "numRecords": ROWS,
            "minValues": {
                "id": f"id_{low:012}",
                "at": low,
                "device": device[i],
                "fare": 0.25,
                "note": "a",
            },
            "maxValues": {
                "id": f"id_{high:012}",
                "at": high,
                "device": device[i],
                "fare": 99.75,
                "note": "zz",
            },
            "nullCount": dict.fromkeys(kinds, 0),
        }
        add = {
            "path": f"{i:08x}.parquet",
            "partitionValues": {},
            "size": 130 << 20,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        lines.append(json.dumps({"add": add}))
    (Path(path) / "_delta_log" / f"{1:020}.json").write_text("\n".join(lines))
    DeltaTable(path).create_checkpoint()


def measure_delta(path: str, files: int, times: int) -> Iterator[Line]:
    """Yield the figures of deltalake."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    make_delta(path, files)
    where = f"at = {files // 3 * ROWS + 5}"
    yield cold("deltalake", COLD_DELTA, path, files, where, times)
    table, value = DeltaTable(path), files // 3 * ROWS + 5
    test = (ds.field("min.at") <= value) & (ds.field("max.at") >= value)
    yield Line(
        "deltalake",
        files,
        f"warm: {where}",
        _ms(lambda: pa.table(table.get_add_actions(flatten=True)).filter(test), times),
    )


def make_iceberg(path: str, files: int) -> Any:
    """Make an Iceberg table of ``files`` files that do not exist, in a SQLite catalog at ``path``,
    and return it.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    folder = Path(path)
    folder.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{path}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.files", SCHEMA)
    device = _device(files)
    for first in range(0, files, ICEBERG_FILES_PER_COMMIT):
        with (
            table.transaction() as transaction,
            transaction.update_snapshot().fast_append() as append,
        ):
            for i in range(first, min(first + ICEBERG_FILES_PER_COMMIT, files)):
                append.append_data_file(
                    _iceberg_file(
                        table.schema(), f"{folder.as_uri()}/{i:08x}.parquet", i, int(device[i])
                    )
                )
    return table


def _iceberg_file(schema: Any, path: str, i: int, device: int) -> Any:
    """Return file number ``i`` as an Iceberg manifest has it, with the bounds of :func:`_stats`."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    first, last = i * ROWS, (i + 1) * ROWS - 1
    low = {"id": f"id_{first:012}", "at": first, "device": device, "fare": 0.25, "note": "a"}
    high = {"id": f"id_{last:012}", "at": last, "device": device, "fare": 99.75, "note": "zz"}
    ids = [field.field_id for field in schema.fields]

    def bounds(values: dict[str, Any]) -> dict[int, bytes]:
        return {
            field.field_id: to_bytes(field.field_type, values[field.name])
            for field in schema.fields
        }

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS,
        file_size_in_bytes=130 << 20,
        column_sizes=dict.fromkeys(ids, 8 * ROWS),
        value_counts=dict.fromkeys(ids, ROWS),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={ids[SCHEMA.get_field_index("fare")]: 0},
        lower_bounds=bounds(low),
        upper_bounds=bounds(high),
        split_offsets=[4],
    )


def measure_iceberg(path: str, files: int, times: int) -> Iterator[Line]:
    """Yield the figures of pyiceberg, none for tables of more than ICEBERG_FILES_MAX files."""
    if files > ICEBERG_FILES_MAX:
        return
    table = make_iceberg(path, files)
    where = f"at = {files // 3 * ROWS + 5}"
    yield cold("pyiceberg", _COLD_ICEBERG, path, files, where, times)
    yield Line(
        "pyiceberg",
        files,
        f"warm: {where}",
        _ms(lambda: list(table.scan(row_filter=where).plan_files()), times),
    )


PEERS: Mapping[str, Callable[[str, int, int], Iterator[Line]]] = {
    "deltalake": measure_delta,
    "pyiceberg": measure_iceberg,
}
"""Peer -> what measures it: path, files and repetitions -> lines."""


def run(
    files: Sequence[int], *, peers: Sequence[str], times: int, emit: Callable[[str], None]
) -> list[Line]:
    """Measure tables of each number of files and return the lines, each emitted as JSON when it is
    there.

    ``peers``: names beside mdt; those that PEERS does not have are left out.
    """
    lines = []
    benches = {"mdt": measure, **{name: PEERS[name] for name in peers if name in PEERS}}
    for n in files:
        for name, bench in benches.items():
            with tempfile.TemporaryDirectory(prefix="mdt-planning-") as folder:
                for line in bench(f"{folder}/{name}", n, times):
                    lines.append(line)
                    emit(
                        json.dumps(
                            {
                                k: round(v, 3) if isinstance(v, float) else v
                                for k, v in asdict(line).items()
                                if v is not None
                            }
                        )
                    )
    return lines

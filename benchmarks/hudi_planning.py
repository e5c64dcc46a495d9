"""``python -m benchmarks hudi``: what commits of mdt spend on Hudi's metadata table, and what Hudi on
Spark needs to plan a query with it, with that of Hudi's own writer, and without one.

Upserts, a tenth of whose keys are new, go to tables of version 9 in turns, each with one more
partition of the metadata table. A ratio is the median of those to the same upsert without one.

For plans, both writers make a copy-on-write table of version 9 from the same rows, a file for each
partition, and upsert the same rows. The tables have the partitions ``files``, ``column_stats`` and
``record_index``; Hudi's has ``partition_stats``, too.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mdt
from benchmarks.spark.environments import interpreter
from benchmarks.versions import Counted

FILES_DEFAULT = 100
_ROWS = 500
"""Rows of a file."""
_UPSERTS = 2
_UPSERTED = 100
_OPTIONS = {
    "hoodie.write.table.version": "9",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "mdt.services.auto": "false",
}
_ADDED = {
    "none": {"mdt.hudi.metadata": False},
    "files": {"mdt.hudi.metadata": True, "mdt.hudi.column.stats": False},
    "column_stats": {"mdt.hudi.column.stats": True},
    "record_index": {"mdt.hudi.record.index": True},
    "partition_stats": {"mdt.hudi.partition.stats": True},
    "secondary_index": {"mdt.hudi.secondary.index": True},
    "bloom_filters": {"mdt.hudi.bloom.filters": True, "mdt.write.footer.bloom": True},
}
"""Partition of the metadata table -> options that add it to the ones above."""
_LOADED = 300_000
_CHANGED = (100, 50_000)
_PARTITIONS = 4
_WARM = 2
"""Upserts that are not measured."""


def run(
    files: int, seed: int, repeat: int, emit: Callable[[str], object], environments: Path
) -> None:
    """Measure everything; ``emit`` takes lines of JSON. Commits come first, and need no Hudi.

    repeat: Plans, and a tenth of the commits of each table.
    files: Files of the tables.
    environments: Folder with Hudi's environment, which is made if it is not there.

    Raises Missing if that fails, and RuntimeError if an answer is wrong.
    """
    for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        for changed in _CHANGED:
            for figure in _commits(table_type, changed, 10 * repeat, seed):
                emit(json.dumps({"bench": "hudi", "type": table_type, "rows": changed, **figure}))
    python, [jar] = interpreter("hudi", environments)
    with tempfile.TemporaryDirectory() as folder:
        home, chance = Path(folder), np.random.default_rng(seed)
        batches = [_batch(np.arange(files * _ROWS), 0)]
        for ts in range(1, 1 + _UPSERTS):
            chosen = chance.choice(files * _ROWS, _UPSERTED, replace=False)
            batches.append(_batch(np.sort(chosen), ts))
        _write(home, batches)
        work = {"folder": folder, "jar": jar, "batches": len(batches), "repeat": repeat}
        work |= {"rows": files * _ROWS, "rows_of_file": _ROWS}
        script = Path(__file__).parent / "spark" / "hudi_plans.py"
        done = subprocess.run(
            [python, str(script), json.dumps(work)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"Hudi's process failed: {done.stderr[-4000:]}")
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                emit(json.dumps({"bench": "hudi", "files": files, **json.loads(line)}))


def _commits(table_type: str, changed: int, commits: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield CPU milliseconds, puts and bytes of upserts of ``changed`` rows, for each partition."""
    chance = np.random.default_rng(seed)
    options: dict[str, Any] = {"mdt.table.version": 9, "mdt.services.auto": False}
    with tempfile.TemporaryDirectory() as folder:
        tables = {}
        for name, more in _ADDED.items():
            options |= more
            tables[name] = _loaded(Counted(f"{folder}/{name}", durable=False), table_type, options)
        laps: dict[str, list[tuple[float, int, int]]] = {name: [] for name in _ADDED}
        for ts in range(1, 1 + _WARM + commits):
            updated = chance.choice(_LOADED, changed * 9 // 10, replace=False)
            new = _LOADED + ts * changed + np.arange(changed - len(updated))
            batch = _few_parts(np.concatenate([np.sort(updated), new]), ts)
            for name in chance.permutation([*tables]).tolist():
                laps[name].append(_lap(tables[name], batch))
    without = np.array(laps["none"][_WARM:])
    for name, of_table in laps.items():
        found = np.array(of_table[_WARM:])
        cpu, puts, size = np.median(found - [0, *np.median(without, 0)[1:]], 0)
        yield {
            "partition": name,
            "cpu_ms": round(cpu, 1),
            "cpu_ms_p99": round(float(np.percentile(found[:, 0], 99)), 1),
            "of none": round(float(np.median(found[:, 0] / without[:, 0])), 3),
            "puts": int(puts),
            "kB": round(size / 1e3, 1),
        }


def _loaded(storage: Counted, table_type: str, options: dict[str, Any]) -> mdt.Table:
    load = _few_parts(np.arange(_LOADED), 0)
    settings = {"partition_by": ["p"], "ordering": "ts", "scope": "table", "indexes": ["bitmap(c)"]}
    table = mdt.create(
        storage, load.schema, key=["id"], table_type=table_type, options=options, **settings
    )
    table.bulk_insert(load)
    return table


def _lap(table: mdt.Table, rows: pa.Table) -> tuple[float, int, int]:
    storage = table.storage
    assert isinstance(storage, Counted)
    puts, size, start = storage.puts, storage.put_bytes, time.process_time()
    table.upsert(rows)
    cpu = 1e3 * (time.process_time() - start)
    return cpu, storage.puts - puts, storage.put_bytes - size


def _few_parts(ids: np.ndarray, ts: int) -> pa.Table:
    """Return rows in few partitions, with a column that an upsert changes."""
    texts = {"p": ids % _PARTITIONS, "c": (7 * ids + ts) % 100}
    rows = _batch(ids, ts).drop_columns(["p"])
    for name, values in texts.items():
        rows = rows.append_column(name, pa.array(values).cast(pa.string()))
    return rows


def _batch(ids: np.ndarray, ts: int) -> pa.Table:
    keys = pa.array(np.char.add("k", np.char.zfill(ids.astype(str), 9)))
    parts = pa.array(ids // _ROWS).cast(pa.string())
    return pa.table({"id": keys, "p": parts, "v": ids, "ts": pa.repeat(pa.scalar(ts), len(ids))})


def _write(folder: Path, batches: list[pa.Table]) -> None:
    """Put the rows for Hudi's writer, and make the table of mdt."""
    table = mdt.create(
        folder / "mdt",
        batches[0].schema,
        key=["id"],
        partition_by=["p"],
        ordering="ts",
        scope="table",
        table_type="COPY_ON_WRITE",
        options=_OPTIONS,
    )
    for number, batch in enumerate(batches):
        pq.write_table(batch, folder / f"rows-{number}.parquet")
        table.upsert(batch)

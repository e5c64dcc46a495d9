"""``python -m benchmarks hudi``: what Hudi on Spark needs to plan a query, with the metadata table
that mdt keeps, with that of Hudi's own writer, and without one.

Both writers make a copy-on-write table of version 9 from the same rows, a file for each partition,
and upsert the same rows. The tables have the partitions ``files``, ``column_stats`` and
``record_index``; Hudi's has ``partition_stats``, too.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mdt
from benchmarks.spark.environments import interpreter

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


def run(
    files: int, seed: int, repeat: int, emit: Callable[[str], object], environments: Path
) -> None:
    """Measure everything; ``emit`` takes lines of JSON.

    files: Files of the tables.
    environments: Folder with Hudi's environment, which is made if it is not there.

    Raises Missing if that fails, and RuntimeError if an answer is wrong.
    """
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

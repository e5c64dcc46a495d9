"""Executors in processes of their own fetch our classes, also those that start late, and nothing of these is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mdt


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_executors_of_a_cluster_read_dirty_files_and_blocks_and_one_may_die(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("note", pa.string())])

    def rows(ids: range, plus: int = 0) -> pa.Table:
        return pa.table([list(ids), [(i + plus) % 997 for i in ids], [f"note {i + plus}" for i in ids]], schema=schema)

    options = {"mdt.durable": False, "mdt.max.file.bytes": 500_000}
    table = mdt.create(
        tmp_path / "t", schema, key=["id"], table_type="MERGE_ON_READ", indexes=["bitmap(v)"], options=options
    )
    table.bulk_insert(rows(range(100_000)))
    table.upsert(rows(range(0, 30_000, 7), 3))
    table.delete(rows(range(500)).select(["id"]))
    tests = Path(__file__).resolve().parents[2]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)]),
        "TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }  # fmt: skip
    script = Path(__file__).with_name("cluster_reads.py")
    done = subprocess.run(
        [sys.executable, str(script), table.path],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    every, some = table.scan().to_arrow(), table.scan("v in (5, 77)").to_arrow()
    expected = [
        [len(every), pc.sum(every["v"]).as_py(), pc.sum(pc.utf8_length(every["note"])).as_py()],
        [len(some), pc.sum(some["v"]).as_py(), 0],
    ]
    assert told == {"found": expected * 2, "jars": 1}
    assert not list(temporary.glob("mdt-jar-*")), "it goes with the driver's JVM"

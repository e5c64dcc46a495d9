"""Executors in processes of their own fetch our classes, also those that start late, and nothing of
these is left behind.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from texts import columns

import mdt
from mdt.limits import INLINE_VECTOR_BYTES_MAX


def run(script, folder, *arguments):
    """Run a script beside this one, its temporary files in ``folder``, and return what its last
    line says.
    """
    tests = Path(__file__).resolve().parents[2]
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests), str(tests / "support")]),
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compacted", [False, True])
def test_executors_of_a_cluster_read_dirty_files_and_blocks_and_one_may_die(tmp_path, compacted):
    schema = columns("id int64, v int64, note string")

    def rows(ids, plus=0):
        return pa.table(
            [list(ids), [(i + plus) % 997 for i in ids], [f"note {i + plus}" for i in ids]],
            schema=schema,
        )

    options = {"mdt.durable": False, "mdt.max.file.bytes": 500_000}
    table = mdt.create(
        tmp_path / "t",
        schema,
        key=["id"],
        table_type="MERGE_ON_READ",
        indexes=["bitmap(v)"],
        options=options,
    )
    table.bulk_insert(rows(range(100_000)))
    table.upsert(rows(range(0, 30_000, 7), 3))
    table.delete(rows(range(500)).select(["id"]))
    if compacted:  # then executors read deletion vectors where these stand
        stored = table.metadata.compact().checkpoint.vectors(np.arange(5))
        assert stored is not None and int(stored.length.max()) > INLINE_VECTOR_BYTES_MAX
    told = run("cluster_reads.py", tmp_path, table.path)
    every, some = table.scan().to_arrow(), table.scan("v in (5, 77)").to_arrow()
    expected = [
        [len(every), pc.sum(every["v"]).as_py(), pc.sum(pc.utf8_length(every["note"])).as_py()],
        [len(some), pc.sum(some["v"]).as_py(), 0],
    ]
    assert told == {"found": expected * 2, "jars": 1}
    assert not list((tmp_path / "temporary").glob("mdt-jar-*")), "it goes with the driver's JVM"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_job_ships_a_package_with_indexes_and_is_told_at_once_where_it_is_missing(
    tmp_path, example_package
):
    shipped = shutil.copytree(example_package, tmp_path / "environment")
    for module in (Path(__file__).resolve().parents[2] / "example_index").glob("*.py"):
        shutil.copy(module, shipped)
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", shipped)
    told = run("cluster_settings.py", tmp_path, str(shipped), archive, str(tmp_path / "t"))
    assert told == {"built": True, "found": [21, 40], "coverage": [100.0] * 3}
    assert not mdt.open(tmp_path / "t").check().problems
    told = run("cluster_settings.py", tmp_path, str(shipped), "", str(tmp_path / "u"))
    assert (
        "an executor on" in told["error"] and "lacks the package 'example-index'" in told["error"]
    )
    assert "spark.archives" in told["error"] and not told["made"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_file_is_read_by_the_same_executor_in_every_query(tmp_path):
    schema = columns("id int64, v int64")
    options = {"mdt.durable": False, "mdt.max.file.bytes": 100_000}
    table = mdt.create(tmp_path / "t", schema, key=["id"], options=options)
    table.bulk_insert(
        pa.table([list(range(200_000)), [i * 7919 % 997 for i in range(200_000)]], schema=schema)
    )
    first, second, some = run("cluster_affinity.py", tmp_path, table.path)
    assert first == second and len(first) == len(table.files()) > 6
    assert len({executor for _, executor in first}) == 2, "both have some"
    assert 0 < len(some) < len(first) and all(one in first for one in some)


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("operation", "rows"), [("load", 12_000), ("upsert", 18_000), ("delete", 6_000)]
)
def test_an_executor_may_die_in_each_phase_of_a_write(tmp_path, operation, rows):
    folder = tmp_path / "work"
    folder.mkdir()
    told = run("cluster_kills.py", tmp_path, str(folder), operation)
    assert told["rows"] == rows and told["phases"] > 1 and not told["wrong"]
    assert told["killed"] == told["phases"], "each phase lost an executor"

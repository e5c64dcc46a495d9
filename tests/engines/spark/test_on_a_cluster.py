"""Executors in separate processes fetch the classes of mdt, even if they start late, and no file is
left over.
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
    """Run a script of this folder with its temporary files in ``folder``. Return the last line of
    its output, decoded from JSON.
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
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.strip().splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compacted", [False, True])
def test_executors_read_files_with_deleted_rows_and_log_blocks_even_after_losing_one(
    tmp_path, compacted
):
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
    if compacted:  # executors then read deletion vectors from the checkpoint
        stored = table.metadata.compact().checkpoint.vectors(np.arange(5))
        assert stored is not None and int(stored.length.max()) > INLINE_VECTOR_BYTES_MAX
    report = run("cluster_reads.py", tmp_path, table.path)
    all_rows, few_rows = table.scan().to_arrow(), table.scan("v in (5, 77)").to_arrow()
    expected = [
        [
            len(all_rows),
            pc.sum(all_rows["v"]).as_py(),
            pc.sum(pc.utf8_length(all_rows["note"])).as_py(),
        ],
        [len(few_rows), pc.sum(few_rows["v"]).as_py(), 0],
    ]
    assert report == {"found": expected * 2, "jars": 1}
    assert not list((tmp_path / "temporary").glob("mdt-jar-*")), (
        "the jar is deleted when the driver's JVM ends"
    )


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_job_ships_an_index_package_and_fails_early_if_executors_lack_it(
    tmp_path, example_package
):
    shipped = shutil.copytree(example_package, tmp_path / "environment")
    for module in (Path(__file__).resolve().parents[2] / "example_index").glob("*.py"):
        shutil.copy(module, shipped)
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", shipped)
    report = run("cluster_settings.py", tmp_path, str(shipped), archive, str(tmp_path / "t"))
    assert report == {"built": True, "found": [21, 40], "coverage": [100.0] * 3}
    assert not mdt.open(tmp_path / "t").check().problems
    report = run("cluster_settings.py", tmp_path, str(shipped), "", str(tmp_path / "u"))
    assert (
        "an executor on" in report["error"]
        and "lacks the package 'example-index'" in report["error"]
    )
    assert "spark.archives" in report["error"] and not report["made"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_file_is_read_by_the_same_executor_in_every_query(tmp_path):
    schema = columns("id int64, v int64")
    options = {"mdt.durable": False, "mdt.max.file.bytes": 100_000}
    table = mdt.create(tmp_path / "t", schema, key=["id"], options=options)
    table.bulk_insert(
        pa.table([list(range(200_000)), [i * 7919 % 997 for i in range(200_000)]], schema=schema)
    )
    first, second, of_few_rows = run("cluster_affinity.py", tmp_path, table.path)
    assert first == second and len(first) == len(table.files()) > 6
    assert len({executor for _, executor in first}) == 2, "both executors read files"
    assert 0 < len(of_few_rows) < len(first) and all(reader in first for reader in of_few_rows)


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("operation", "rows"), [("load", 12_000), ("upsert", 18_000), ("delete", 6_000)]
)
def test_a_write_survives_the_loss_of_an_executor_in_each_phase(tmp_path, operation, rows):
    folder = tmp_path / "work"
    folder.mkdir()
    report = run("cluster_kills.py", tmp_path, str(folder), operation)
    assert report["rows"] == rows and report["phases"] > 1 and not report["wrong"]
    assert report["killed"] == report["phases"], "each phase lost an executor"

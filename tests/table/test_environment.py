"""Time zone, locale, hash seed and umask of a process do not change answers and file names."""

import json
import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENTS = [
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {
        "TZ": "Pacific/Apia",
        "LC_ALL": "tr_TR.UTF-8",
        "PYTHONHASHSEED": "2",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
    },
    {"TZ": "America/St_Johns", "LC_ALL": "POSIX", "LANG": "de_DE.ISO-8859-1"},
]

JOB = """
import datetime as dt, json, os, sys
import pyarrow as pa
import mdt

os.umask(int(sys.argv[2], 8))
utc = dt.timezone.utc
schema = pa.schema({"id": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "wall": pa.timestamp("us"), "city": pa.string()})
table = mdt.create(sys.argv[1], schema, key=["id", "day"], partition_by=["city"], indexes=["bitmap(day)"])
days = [dt.date(1, 1, 1), dt.date(1900, 2, 28), dt.date(2024, 3, 10), dt.date(9999, 12, 31)]
rows = [
    {"id": f"ı{n}", "day": day, "at": dt.datetime(day.year, day.month, day.day, 2, 30, tzinfo=utc), "wall": dt.datetime(day.year, day.month, day.day, 2, 30), "city": "Zürich"}
    for n, day in enumerate(days)
]
table.upsert(rows)
found = [
    table.scan("at <= timestamp '2024-03-10 02:30:00'").count(),
    table.scan("wall = timestamp '2024-03-10 02:30:00'").count(),
    table.scan("day = date '0001-01-01'").count(),
    table.get([("ı0", days[0])]).num_rows,
    [str(row) for row in table.scan(order_by="day").to_arrow().to_pylist()],
    sorted(name for name in os.listdir(sys.argv[1])),
    len(table.check().problems),
]
print(json.dumps(found))
"""


def run_job(folder, number):
    mask = ["022", "077", "002"][number]
    environment = os.environ | ENVIRONMENTS[number] | {"PYTHONPATH": str(Path(__file__).parents[2])}
    job = folder / "job.py"
    job.write_text(JOB, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, str(job), str(folder / str(number)), mask],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_answers_are_equal_in_every_environment(tmp_path):
    answers_by_environment = [run_job(tmp_path, number) for number in range(len(ENVIRONMENTS))]
    assert answers_by_environment[0][:4] == [3, 1, 1, 1]
    assert (
        answers_by_environment[1] == answers_by_environment[0]
        and answers_by_environment[2] == answers_by_environment[0]
    )

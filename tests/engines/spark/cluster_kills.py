"""Session on a cluster of two executors that writes in tasks and loses an executor in each phase,
for test_on_a_cluster.py.

Arguments: a folder and the operation. The last line of the output is JSON: the number of phases,
the number of killed executors, the tables whose rows differ from those of a run without a kill or
that fail their check, and the number of expected rows.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cluster_reads import cluster
from killing_tasks import Phases
from reader import bag

import mdt
from mdt.engines.spark import engine

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("note", pa.string())]
)
OPTIONS = {"mdt.durable": False, "mdt.max.file.bytes": 200_000, "mdt.spark.local.bytes.max": 0}


def rows(ids, plus=0):
    columns = [
        [f"k{i:06}" for i in ids],
        [f"c{i % 3}" for i in ids],
        [i + plus for i in ids],
        [f"note {i * 7919}" for i in ids],
    ]
    return pa.table(columns, schema=SCHEMA)


def frame(spark, folder, table):
    """Return the rows as a frame over several Parquet files."""
    more_folder = folder / "more"
    more_folder.mkdir(exist_ok=True)
    for part in range(3):
        pq.write_table(
            table.slice(part * len(table) // 3, len(table) // 3 + 3),
            more_folder / f"{part}.parquet",
        )
    return spark.read.parquet(str(more_folder)).dropDuplicates(["id"])


def create_table(path, *, is_full):
    table = mdt.create(
        path, SCHEMA, key=["id"], partition_by=["city"], key_index="record", options=OPTIONS
    )
    if is_full:
        table.bulk_insert(rows(range(12_000)))
    return mdt.open(path, OPTIONS)


def main(folder, operation):
    """Run the operation once without a kill, then once for each phase with a kill."""
    spark = cluster().config("spark.sql.shuffle.partitions", "3").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    more = frame(spark, folder, rows(range(6_000, 18_000), 1))
    work = {
        "load": lambda table: table.bulk_insert(more),
        "upsert": lambda table: table.upsert(more),
        "delete": lambda table: table.delete(more.select("id", "city")),
    }
    phases = Phases(folder)
    for name in ("map_bytes", "shuffle_bytes"):
        setattr(engine, name, phases.counted(getattr(engine, name)))
    expected_table = create_table(folder / "whole", is_full=operation != "load")
    work[operation](expected_table)
    expected, stages, failures = bag(expected_table.scan().to_arrow()), phases.count, []
    for number in range(stages):
        phases.count, phases.kills = 0, number
        table = create_table(folder / f"killed{number}", is_full=operation != "load")
        work[operation](table)
        stored = bag(table.scan().to_arrow())
        report = table.check()
        if stored != expected or report.problems:
            failures.append([number, len(stored), [str(problem) for problem in report.problems]])
    spark.stop()
    killed = len(list(folder.glob("killed-*")))
    print(
        json.dumps({"phases": stages, "killed": killed, "wrong": failures, "rows": len(expected)})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

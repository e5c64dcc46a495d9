"""Session on a cluster of two executors that reports which executor reads which file, for
test_on_a_cluster.py.

Argument: the path of a table. The last line of the output is JSON: for each of three queries the
name of each file and the executor that read it.
"""

import json
import os
import sys

import pyarrow as pa
from cluster_reads import cluster

import mdt
from mdt.engines.spark.private import java_session


def report_executors(batches):
    """Yield the names of the files in the batches, with the executor that read them: Python workers
    are children of a process of their executor.
    """
    for batch in batches:
        names = batch.column(0).unique()
        yield pa.record_batch([names, pa.array([os.getppid()] * len(names))], ["name", "executor"])


def readers(spark, path, where):
    """Return each file that a query reads, with the process id that identifies its executor."""
    names = mdt.read(spark, path).where(where).select("_metadata.file_name")
    rows = names.mapInArrow(report_executors, "name string, executor long").distinct().collect()
    return sorted((row["name"], row["executor"]) for row in rows)


def main(path):
    """Run three queries: one over all rows, one over most rows and one over some of them."""
    builder = cluster().config("spark.mdt.affinity", "on").config("spark.locality.wait", "60s")
    # One task for each file, as with files of the usual size.
    builder = builder.config("spark.sql.files.maxPartitionBytes", "500000").config(
        "spark.sql.files.openCostInBytes", "500000"
    )
    spark = builder.config("spark.sql.files.minPartitionNum", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tracker = java_session(spark).sparkContext().statusTracker()
    while len(tracker.getExecutorInfos()) < 3:  # including the driver
        spark.range(100).count()
    answers = [readers(spark, path, where) for where in ("v >= 0", "v < 996", "id < 50000")]
    spark.stop()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])

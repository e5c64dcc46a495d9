"""A session on a cluster of two executors says which of them reads which file: for
test_on_a_cluster.py.

Arguments: the path of a table.  The last line is, for each of two queries, the name of each file
and the executor that read it, as JSON.
"""

import json
import os
import sys

import pyarrow as pa
from cluster_reads import cluster

import mdt
from mdt.engines.spark.private import java_session


def executor(batches):
    """Say of each file who has read it: Python workers are children of a process of their
    executor.
    """
    for batch in batches:
        names = batch.column(0).unique()
        yield pa.record_batch([names, pa.array([os.getppid()] * len(names))], ["name", "executor"])


def readers(spark, path, where):
    """Return each file that a query reads, with the number of an executor."""
    names = mdt.read(spark, path).where(where).select("_metadata.file_name")
    found = names.mapInArrow(executor, "name string, executor long").distinct().collect()
    return sorted((row["name"], row["executor"]) for row in found)


def main(path):
    """Read twice, all files, and some of them."""
    builder = cluster().config("spark.mdt.affinity", "on").config("spark.locality.wait", "60s")
    # Every file in a task of its own, as those of a usual size are.
    builder = builder.config("spark.sql.files.maxPartitionBytes", "500000").config(
        "spark.sql.files.openCostInBytes", "500000"
    )
    spark = builder.config("spark.sql.files.minPartitionNum", "1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    known = java_session(spark).sparkContext().statusTracker()
    while len(known.getExecutorInfos()) < 3:  # the driver is one of them
        spark.range(100).count()
    told = [readers(spark, path, where) for where in ("v >= 0", "v < 996", "id < 50000")]
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])

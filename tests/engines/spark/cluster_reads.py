"""A session on a cluster of two executors reads a table, loses one of them, and reads again: for
test_on_a_cluster.py.

Arguments: the path of a table.  The last line is what the queries gave, as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import mdt

QUERIES = (
    "select count(*), sum(v), sum(length(note)) from t",
    "select count(*), sum(v), 0 from t where v in (5, 77)",
)


def cluster():
    """Return what makes a session on a cluster of two executors."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config(
        "spark.ui.enabled", "false"
    )
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
        "spark.driver.host", "127.0.0.1"
    )
    return builder.config("spark.executor.memory", "512m")


def executors():
    """Return the process ids of the executors below this process."""
    parents = {}
    lines = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
                lines[int(folder.name)] = (folder / "cmdline").read_bytes()
            except OSError:
                continue
    ours = {os.getpid()}
    for _ in range(8):
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return sorted(pid for pid in ours if b"CoarseGrainedExecutorBackend" in lines.get(pid, b""))


def main(path):
    """Read, end an executor, read."""
    spark = cluster().config("spark.sql.files.maxPartitionBytes", "200000").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    mdt.read(spark, path).createOrReplaceTempView("t")
    found = [list(spark.sql(query).first() or ()) for query in QUERIES]
    first, *_ = executors()
    os.kill(first, signal.SIGKILL)
    found += [list(spark.sql(query).first() or ()) for query in QUERIES]
    jars = [str(file) for file in Path(os.environ["TMPDIR"]).glob("mdt-jar-*/*.jar")]
    spark.stop()
    print(json.dumps({"found": found, "jars": len(jars)}))


if __name__ == "__main__":
    main(sys.argv[1])

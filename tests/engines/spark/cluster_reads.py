"""Session on a cluster of two executors that reads a table, loses an executor and reads again, for
test_on_a_cluster.py.

Argument: the path of a table. The last line of the output is JSON: the results of the queries, and
the number of jars.
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
    """Return a builder of sessions on a cluster of two executors."""
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
    descendants = {os.getpid()}
    for _ in range(8):
        descendants |= {pid for pid, parent in parents.items() if parent in descendants}
    return sorted(
        pid for pid in descendants if b"CoarseGrainedExecutorBackend" in lines.get(pid, b"")
    )


def main(path):
    """Read the table, kill an executor and read again."""
    spark = cluster().config("spark.sql.files.maxPartitionBytes", "200000").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    mdt.read(spark, path).createOrReplaceTempView("t")
    answers = [list(spark.sql(query).first() or ()) for query in QUERIES]
    first, *_ = executors()
    os.kill(first, signal.SIGKILL)
    answers += [list(spark.sql(query).first() or ()) for query in QUERIES]
    jars = [str(file) for file in Path(os.environ["TMPDIR"]).glob("mdt-jar-*/*.jar")]
    spark.stop()
    print(json.dumps({"found": answers, "jars": len(jars)}))


if __name__ == "__main__":
    main(sys.argv[1])

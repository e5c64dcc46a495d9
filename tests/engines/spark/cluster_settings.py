"""Job on a cluster whose executors get a package with indexes as an archive, for
test_on_a_cluster.py.

Arguments: the folder with that package for the driver, the archive (empty for none), and the path
of the new table. The last line of the output is the result as JSON.
"""

import json
import sys
from pathlib import Path

from cluster_reads import cluster
from pyspark.errors import PySparkException

import mdt
import mdt.spark


def session(archive):
    """Return a session on two executors whose settings name the indexes of tables and the package
    that provides them.
    """
    builder = (
        cluster()
        .config("spark.mdt.indexes", "bitmap(v);length(note)")
        .config("spark.mdt.indexes.packages", "example-index")
        .config("spark.mdt.indexes.build", "background")
        .config("spark.mdt.spark.local.bytes.max", "0")
    )
    if archive:
        builder = builder.config("spark.archives", f"{archive}#environment")
        builder = builder.config("spark.executorEnv.PYTHONPATH", "./environment")
    return builder.getOrCreate()


def main(folder, archive, path):
    """Write and read a table, unless an executor lacks the package."""
    sys.path.append(folder)
    spark = session(archive)
    spark.sparkContext.setLogLevel("OFF")
    mdt.spark.enable(spark)
    rows = spark.range(2000).selectExpr("id", "id % 97 as v", "repeat('x', int(id % 50)) as note")
    report = {}
    try:
        rows.write.format("mdt").option("key", "id").save(path)
        mdt.open(path).create_index("bloom(note)", mode="async")
        rows.limit(1).write.format("mdt").mode("append").save(path)
        report["built"] = mdt.spark.wait_for_indexes(120)
        stored = spark.read.format("mdt").load(path)
        report["found"] = [stored.where("v = 5").count(), stored.where("length(note) = 49").count()]
        report["coverage"] = mdt.open(path).indexes()["coverage"].to_pylist()
    except PySparkException as error:
        report["error"] = str(error)
        report["made"] = Path(path).exists()
    spark.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])

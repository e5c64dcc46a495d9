"""A job on a cluster whose executors get a package with indexes as an archive: for
test_on_a_cluster.py.

Arguments: the folder where the driver finds that package, the archive, empty for none, the path of
the table that is made. The last line is what happened, as JSON.
"""

import json
import sys
from pathlib import Path

from cluster_reads import cluster
from pyspark.errors import PySparkException

import mdt
import mdt.spark


def session(archive):
    """Return a session on two executors that says what indexes tables have, and which package they
    come from.
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
    told = {}
    try:
        rows.write.format("mdt").option("key", "id").save(path)
        mdt.open(path).create_index("bloom(note)", mode="async")
        rows.limit(1).write.format("mdt").mode("append").save(path)
        told["built"] = mdt.spark.wait_for_indexes(120)
        found = spark.read.format("mdt").load(path)
        told["found"] = [found.where("v = 5").count(), found.where("length(note) = 49").count()]
        told["coverage"] = mdt.open(path).indexes()["coverage"].to_pylist()
    except PySparkException as error:
        told["error"] = str(error)
        told["made"] = Path(path).exists()
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

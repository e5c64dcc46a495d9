"""Plans queries with Hudi on Spark in the environment that it needs: ``hudi_plans.py WORK``, JSON of
:mod:`benchmarks.hudi_planning`.

Makes the table of Hudi's writer, and prints a line of JSON for each table and query. Requests to
storage are counted by a file system of the JVM, which Spark's own compiler compiles. Imports the
standard library and PySpark.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

_COUNTING = """
import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

public class CountingFileSystem extends RawLocalFileSystem {
    public static final AtomicLong opens = new AtomicLong();
    public static final AtomicLong lists = new AtomicLong();
    public static final AtomicLong looks = new AtomicLong();
    private static final ThreadLocal depth = new ThreadLocal();

    public String getScheme() { return "file"; }

    private static boolean begin(AtomicLong count) {
        if (depth.get() != null) return false;
        count.incrementAndGet();
        depth.set("inside");
        return true;
    }

    public FSDataInputStream open(Path path, int size) throws IOException {
        boolean outer = begin(opens);
        try { return super.open(path, size); } finally { if (outer) depth.remove(); }
    }

    public FileStatus[] listStatus(Path path) throws IOException {
        boolean outer = begin(lists);
        try { return super.listStatus(path); } finally { if (outer) depth.remove(); }
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        boolean outer = begin(looks);
        try { return super.getFileStatus(path); } finally { if (outer) depth.remove(); }
    }
}
"""
_COUNTS = {"opens": "opens", "listings": "lists", "status": "looks"}
"""Name of a figure -> counter. A request for the status of a path is ``status``."""
_METADATA = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.enable.data.skipping": "true",
}
_WRITES = {
    **_METADATA,
    "hoodie.table.name": "hudi",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}


def session(jar: str) -> Any:
    """Return a session whose requests to local files are counted."""
    settings = {
        "spark.jars": jar,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.memory": "3g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("plans of Hudi")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Counters:
    """The counts of requests to storage."""

    def __init__(self, spark: Any) -> None:
        jvm, conf = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_COUNTING)
        loader = compiler.getClassLoader()
        conf.setClassLoader(loader)
        conf.set("fs.file.impl", "CountingFileSystem")
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()
        counting = loader.loadClass("CountingFileSystem")
        self._fields = {name: counting.getField(field) for name, field in _COUNTS.items()}

    def read(self) -> dict[str, int]:
        """Return the counts since the start."""
        return {name: field.get(None) for name, field in self._fields.items()}


def plan(spark: Any, path: str, where: str, options: Mapping[str, str]) -> Any:
    """Plan a query down to the files of its tasks, and return its DataFrame."""
    frame = spark.read.format("hudi").options(**options).load(path).where(where)
    frame._jdf.queryExecution().toRdd().getNumPartitions()
    return frame


def files_of(frame: Any) -> int:
    """Return the number of files that a planned query reads."""
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return int(scan.metrics().apply("numFiles").value())


def measured(
    spark: Any, counters: Counters, path: str, where: str, options: Mapping[str, str], times: int
) -> Iterator[dict[str, Any]]:
    """Yield the figures of one plan after another, the first one cold."""
    for _ in range(1 + times):
        before, start = counters.read(), time.perf_counter()
        frame = plan(spark, path, where, options)
        seconds, after = time.perf_counter() - start, counters.read()
        counts = {name: after[name] - before[name] for name in after}
        yield {"seconds": round(seconds, 3), **counts, "read": files_of(frame)}


def main(work: Mapping[str, Any]) -> None:
    """Make Hudi's table and measure."""
    spark, folder = session(work["jar"]), work["folder"]
    for number in range(work["batches"]):
        rows = spark.read.parquet(f"{folder}/rows-{number}.parquet")
        operation = "upsert" if number else "insert"
        options = {**_WRITES, "hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode("append").save(f"{folder}/hudi")
    counters = Counters(spark)
    middle = work["rows"] // 2
    queries = {
        "filter": (f"v between {middle} and {middle + work['rows_of_file'] // 2}", None),
        "key": (f"id = 'k{middle:09}'", 1),
    }
    for table in ("mdt", "hudi"):
        for metadata in ("without", "with"):
            options = _METADATA if metadata == "with" else {"hoodie.metadata.enable": "false"}
            for query, (where, count) in queries.items():
                path = f"{folder}/{table}"
                _, *laps = measured(spark, counters, path, where, options, work["repeat"])
                found = plan(spark, path, where, options).count()
                if found != (count or work["rows_of_file"] // 2 + 1):
                    raise SystemExit(f"{table}, {metadata}: {where} finds {found} rows")
                figures = {
                    name: statistics.median_low(lap[name] for lap in laps) for name in laps[0]
                }
                line = {"query": query, "writer": table, "metadata table": metadata, **figures}
                print(json.dumps(line), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

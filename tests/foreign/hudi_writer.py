"""Runs in the environment of Hudi's bundle: carries out jobs with Hudi's Spark writer and reads the
tables back.

``python hudi_writer.py bundle.jar jobs.json results.jsonl``.  Needs pyspark 3.5 and nothing of this
project.
"""

import json
import sys
import traceback
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

SCHEMA = StructType(
    [
        StructField("id", StringType()),
        StructField("city", StringType()),
        StructField("ts", LongType()),
        StructField("v", LongType()),
        StructField("note", StringType()),
    ]
)
NAMES = SCHEMA.fieldNames()


def session(jar):
    """Return a small local session with Hudi's extensions."""
    settings = {
        "spark.jars": jar,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
    }
    builder = SparkSession.builder.master("local[2]").appName("take over")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def read(spark, path):
    """Return the rows that Hudi's reader sees."""
    return [list(row) for row in spark.read.format("hudi").load(path).select(*NAMES).collect()]


def write_rows(frame, job):
    """Upsert or delete rows through the data source."""
    options = {
        "hoodie.table.name": job["name"],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": job["partition"],
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.operation": job["op"],
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.delete.shuffle.parallelism": "1",
        "hoodie.embed.timeline.server": "false",
        **(
            {"hoodie.datasource.write.precombine.field": job["ordering"]} if job["ordering"] else {}
        ),
        **job["options"],
    }
    frame.write.format("hudi").options(**options).mode("append").save(job["path"])


def write_sql(spark, job):
    """Run a statement on the table, which it calls ``{table}``."""
    for name, value in job["options"].items():
        spark.conf.set(name, value)
    table = f"taken_{job['number']}"
    try:
        spark.sql(f"create table {table} using hudi location '{job['path']}'")
        spark.sql(job["sql"].format(table=table))
    finally:
        for name in job["options"]:
            spark.conf.unset(name)


def carry_out(spark, job):
    """Return the rows before one job, after it, and after each of the upserts that follow, or its
    error.
    """
    try:
        found = [read(spark, job["path"])]
        if job["op"] == "sql":
            write_sql(spark, job)
        else:
            write_rows(spark.createDataFrame([tuple(row) for row in job["rows"]], SCHEMA), job)
        found.append(read(spark, job["path"]))
        for rows in job.get("then", ()):
            write_rows(
                spark.createDataFrame([tuple(row) for row in rows], SCHEMA), {**job, "op": "upsert"}
            )
            found.append(read(spark, job["path"]))
        return {"number": job["number"], "rows": found}
    except Exception as error:  # noqa: BLE001 - whatever Hudi throws is what the caller wants to see
        return {
            "number": job["number"],
            "error": str(error)[:4000],
            "trace": traceback.format_exc()[-2000:],
        }


def main(jar, jobs, results):
    """Carry out all jobs; one line of JSON for each."""
    spark = session(jar)
    with Path(results).open("w") as out:
        for job in json.loads(Path(jobs).read_text()):
            out.write(json.dumps(carry_out(spark, job)) + "\n")
            out.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

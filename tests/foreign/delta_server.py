"""Runs in an environment of its own: an engine that reads Delta or Iceberg tables and runs SQL.

``python delta_server.py spark jar …``, with ``iceberg`` for Iceberg on Spark, ``duckdb``,
``clickhouse`` or ``sail``.
Requests and replies are lines of JSON. A request has a statement, and the path at which its rows
are stored as Parquet.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}
ICEBERG = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.cache-enabled": "false",
}


def on_spark(settings, jars):
    """Return a function that carries out SQL with Delta or Iceberg on Spark."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(jars))
    spark = builder.config(map={**SETTINGS, **settings}).getOrCreate()

    def run(sql, out):
        frame = spark.sql(sql)
        if out:
            frame.coalesce(1).write.parquet(out)

    return run


def on_duckdb(jars):
    """Return a function that carries out SQL with DuckDB's extensions for Delta and Iceberg."""
    import duckdb

    connection = duckdb.connect()
    for name in ("avro", "delta", "iceberg"):  # Iceberg needs Avro
        package = Path(find_spec(f"duckdb_extension_{name}").origin).parent
        connection.execute(f"load '{next(package.rglob(f'{name}.duckdb_extension'))}'")
    # With it, a snapshot that is read after a later one may have rows of that
    connection.execute("set enable_external_file_cache = false")

    def run(sql, out):
        connection.execute(f"copy ({sql}) to '{out}' (format parquet)" if out else sql)

    return run


def on_clickhouse(jars):
    """Return a function that carries out SQL with ClickHouse in this process."""
    import chdb

    os.chdir("/")  # it reads no files outside of the working directory

    def run(sql, out):
        content = chdb.query(sql, "Parquet").bytes()
        if out:
            Path(out).write_bytes(content)

    return run


def on_sail(jars):
    """Return a function that carries out SQL with Sail, a server of Spark Connect in Rust."""
    import pyarrow.parquet as pq
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()

    def run(sql, out):
        rows = spark.sql(sql).toArrow()
        if out:
            pq.write_table(rows, out)

    run.server = server  # it ends with its last reference
    return run


def main(engine, *jars):
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engines print to standard output
    engines = {
        "spark": partial(on_spark, DELTA),
        "iceberg": partial(on_spark, ICEBERG),
        "duckdb": on_duckdb,
        "clickhouse": on_clickhouse,
        "sail": on_sail,
    }
    run = engines[engine](jars)
    for line in sys.stdin:
        try:
            run(*json.loads(line))
            reply = {}
        except Exception as error:  # noqa: BLE001 - the caller decides about errors of the engine
            reply = {"error": str(error)[:4000]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A classic session that serves clients of Spark Connect, and such a client, for test_connect.py.

Arguments: "server" and a folder. The server runs the client in a separate process. The last line of
the output is the client's results as JSON.
"""

import json
import socket
import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

import mdt
import mdt.spark


def serve(folder):
    """Serve one client that works in ``folder``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    mdt.spark.enable(spark)
    client = [sys.executable, __file__, "client", folder, f"sc://127.0.0.1:{port}"]
    process = subprocess.run(client, capture_output=True, text=True, check=False)
    spark.stop()
    assert process.returncode == 0, process.stderr
    print(process.stdout)


def refused(call):
    """Return the class, the condition and the SQLSTATE of the error that a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - from PySpark or mdt
        raised = error
        return [type(raised).__name__, raised.getCondition(), raised.getSqlState()]
    return []


def work(folder, url):
    """Write, change and read a table through the server and print the results as JSON."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    path, report = f"{folder}/t", dict[str, Any]()
    rows = spark.createDataFrame([("a", 1.5), ("b", 2.5)], "id string, fare double")
    rows.write.format("mdt").option("key", "id").save(path)
    spark.sql(f"create table remote using mdt location '{path}'")
    spark.sql("update remote set fare = fare + 1 where id = 'a'")
    spark.sql(
        "merge into remote t using (select 'c' id, 9D fare) s on t.id = s.id when not matched then"
        " insert *"
    )
    spark.sql("delete from remote where fare > 8 and length(id) = 1")
    query = spark.readStream.format("mdt").load(path).writeStream.format("mdt").option("key", "id")
    query.option("checkpointLocation", f"{folder}/c").trigger(availableNow=True).start(
        f"{folder}/s"
    ).awaitTermination()
    report["streamed"] = spark.read.format("mdt").load(f"{folder}/s").count()
    report["rows"] = sorted(list(row) for row in spark.table("remote").collect())
    report["found"] = spark.read.format("mdt").load(path).where("fare = 2.5 and id = 'b'").count()
    report["before"] = spark.sql("select count(*) from remote version as of 1").collect()[0][0]
    report["changes"] = spark.sql("select * from mdt_changes('remote', 'earliest')").count()
    report["statement"] = refused(lambda: spark.sql("update remote set id = 'z'"))
    report["frame"] = refused(lambda: mdt.open(path).upsert(rows))
    report["session"] = refused(lambda: mdt.read(spark, path))  # type: ignore[arg-type]
    print(json.dumps(report))


if __name__ == "__main__":
    {"server": serve, "client": work}[sys.argv[1]](*sys.argv[2:])

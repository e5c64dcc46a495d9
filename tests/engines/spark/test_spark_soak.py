"""A long-running driver that reads and writes does not accumulate resources: threads, descriptors,
functions that the JVM may call, and rows that Spark persists.
"""

import gc
import os
import threading
import time

import pytest
from texts import columns

import mdt
import mdt.spark
from mdt.engines.spark import private

SCHEMA = columns("id string, city string, v int64")
ROUNDS, WARM = 25, 4
COLLECTIONS = 5
MORE = 6
"""Tolerated increase of threads or descriptors, which Spark opens and closes at any time."""


def workloads(spark, path):
    """Return the workloads of a driver. Each takes a number that differs from round to round."""

    def read(n):
        spark.sql(f"select count(*) from soak where v > {n}").toArrow()
        spark.read.format("mdt").load(path).where(f"v = {n}").collect()
        newest = mdt.open(path).snapshot().seq
        spark.read.format("mdt").option("as_of", max(1, newest - 3)).load(path).count()
        spark.read.format("mdt").option("since", max(1, newest - 2)).option("changes", "net").load(
            path
        ).toArrow()

    def join(n):
        spark.sql(
            f"select a.v, b.id from soak a join soak b on a.id = b.id where b.v < {n} order by a.v"
            " limit 3"
        ).toArrow()
        spark.sql(
            "select city, count(*) from soak where v in (select max(v) from soak) group by city"
        ).toArrow()

    def write(n):
        rows = spark.range(n, n + 20).selectExpr(
            "concat('k', id) id", "if(id % 2 = 0, 'x', 'y') city", "id + 1 v"
        )
        rows.write.format("mdt").mode("append").option("mdt.spark.local.bytes.max", "0").save(path)
        spark.sql(f"update soak set v = v + 1 where id = 'k{n}'")
        source = f"select 'm{n % 7}' id, 'x' city, {n} v"
        spark.sql(
            f"merge into soak t using ({source}) s on t.id = s.id and t.city = s.city "
            "when matched then update set * when not matched then insert *"
        )

    return {"read": read, "join": join, "write": write}


def resources(spark):
    """Return the amount of each resource that a leak would increase."""
    context = spark.sparkContext
    for _ in range(COLLECTIONS):  # Python frees objects after the JVM has freed its references
        gc.collect()
        private.collect_garbage(spark)
        time.sleep(0.2)
    pool = private.gateway(context).gateway_property.pool
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0,
        "functions": len(pool.dict),
        "rows of Spark": private.java_session(spark).sparkContext().getPersistentRDDs().size(),
    }


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["read", "join", "write"])
def test_the_resources_of_a_driver_do_not_grow(spark, tmp_path, what):
    path = str(tmp_path / "t")
    t = mdt.create(path, SCHEMA, key=["id"], partition_by=["city"], table_type="MERGE_ON_READ")
    t.upsert(
        {
            "id": [f"k{i}" for i in range(200)],
            "city": ["xy"[i % 2] for i in range(200)],
            "v": list(range(200)),
        }
    )
    mdt.spark.enable(spark)
    spark.sql(f"create table soak using mdt location '{path}'")
    try:
        work = workloads(spark, path)[what]
        for n in range(WARM):
            work(n)
        before = resources(spark)
        for n in range(ROUNDS):
            work(WARM + n)
        after = resources(spark)
    finally:
        spark.sql("drop table soak")
    assert all(after[name] <= before[name] + MORE for name in before), (before, after)
    assert after["rows of Spark"] <= before["rows of Spark"]

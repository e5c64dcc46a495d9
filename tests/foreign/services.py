"""Apache Hudi on Spark reads a table after each of our services: see README.md of this folder.  Not
collected by pytest.

Without ``--read`` it makes the tables with this package; with it, in Hudi's environment, it reads
them and compares.
"""

import argparse
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

CALLS = ("show_timeline", "show_commits", "show_archived_commits", "show_cleans", "show_savepoints")


def texts(rows):
    return sorted(sorted([name, str(value)] for name, value in row.items()) for row in rows)


def through_services(t, rows, save):
    """Run every service, and deletes and updates by condition. Save the table after each."""
    t.bulk_insert(rows(range(200), 1))
    for n in range(12):
        t.upsert(rows(range(n * 10, n * 10 + 15), n + 2))
    t.delete(rows(range(5), 0))
    save("start")
    t.cluster(["v"])
    save("clustered")
    t.upsert(rows(range(50, 80), 50))
    t.compact()
    save("compacted")
    t.savepoint("kept")
    t.upsert(rows(range(60, 220), 60))
    save("savepoint")
    t.untag("kept")
    for n in range(10):
        t.upsert(rows(range(n * 10, n * 10 + 15), n + 70))
    t.clean(retain_commits=3)
    save("cleaned")
    t.tag("plain")
    t.update_where({"v": "v + 1000"}, "ts = 1 and city = 'x'")
    t.delete_where("v < 40")
    save("by_condition")
    t.cluster(["ts"])
    t.savepoint("saved")
    t.cluster(["v", "ts"], curve="hilbert")
    for n in range(12):
        t.upsert(rows(range(n * 10, n * 10 + 15), n + 85))
    t.clean(retain_commits=2)
    assert t.snapshot().retention.horizon > max(t.tags()["seq"].to_pylist())
    save("tagged")
    t.untag("plain")
    t.untag("saved")
    t.clean(retain_commits=1)
    save("untagged")


def through_columns(t, rows, save):
    """Alter a table, build indexes on it and purge it. Save it after each step."""
    import pyarrow as pa

    t.upsert(rows(range(40), 120))
    narrow = t.snapshot().seq
    t.alter(add={"extra": pa.string()})
    t.upsert({"id": ["k1"], "city": ["y"], "ts": [130], "v": [7], "extra": ["e"]})
    save("altered")
    t.create_index(["bitmap(v)", "bloom(extra)"], mode="async")
    save("index_requested")
    t.build_indexes("bitmap(v)")
    save("index_begun")
    t.build_indexes()
    save("index_completed")
    # hudi-rs would fail on the log files, but Hudi's own reader does not
    t.alter(widen={"v": pa.int64()}, beyond_hudi=True)
    t.upsert({"id": ["k2"], "city": ["x"], "ts": [131], "v": [2**40], "extra": ["w"]})
    save("widened")
    newest = t.snapshot().seq
    t.restore(narrow)
    save("restored_columns")
    t.restore(newest)
    save("restored_again")
    t.purge()
    save("purged")


def through_overwrites(t, save):
    """Merge, replace and drop partitions. Save the table after each step."""
    import mdt

    def make_rows(ids, ts):
        return [{"id": f"k{i}", "city": "xy"[i % 2], "ts": ts, "v": i, "extra": "o"} for i in ids]

    t.merge(make_rows(range(30, 50), 140)).when_matched(
        "target.v < 100"
    ).delete().when_matched().update(
        {"v": mdt.col("source.v"), "ts": "source.ts"}
    ).when_not_matched().insert("*").execute()
    save("merged")
    t.insert_overwrite(make_rows(range(0, 20, 2), 150))
    save("overwritten")
    t.upsert(make_rows(range(10), 160))
    t.delete_partition({"city": "y"})
    save("partition_deleted")
    t.insert_overwrite(make_rows(range(0, 6, 2), 165), partitions=[{"city": "x"}, {"city": "z"}])
    t.once("stream", 1).upsert(make_rows(range(3), 166))
    save("partitions_overwritten")
    t.insert_overwrite_table(make_rows(range(8), 170))
    t.upsert(make_rows(range(4, 12), 180))
    t.clean(retain_commits=1)
    save("table_overwritten")
    t.truncate()
    save("truncated")
    t.upsert(make_rows(range(3), 190))
    save("filled_again")


def through_rows(t, save):
    """Write partial rows, merged columns, late rows, rows that move to another partition, and small
    commits in one. Save the table after each step.
    """
    import pyarrow as pa

    is_text = pa.types.is_string(t.schema.field("at").type)

    def make_rows(ids, at, **more):
        places = ["xy"[i % 2] for i in ids]
        when = f"day {at:03}" if is_text else at
        return {"id": [f"k{i}" for i in ids], "city": places, "at": [when] * len(ids), **more}

    t.upsert(make_rows(range(40), 10, v=list(range(40)), cost=[Decimal(i) / 4 for i in range(40)]))
    t.upsert(make_rows(range(0, 40, 3), 20, v=[-1] * 14), partial=True)
    save("partial")
    t.upsert(
        make_rows(range(10, 50), 30, v=[1000] * 40, cost=[Decimal(1)] * 40), mergers={"cost": "sum"}
    )
    save("merged_columns")
    t.delete(make_rows(range(5), 40))
    t.upsert(make_rows(range(8), 35, v=[5] * 8, cost=[None] * 8))
    save("late")
    moved = make_rows(range(20, 30), 50, v=[7] * 10, cost=[Decimal("0.25")] * 10)
    t.upsert({**moved, "city": ["z"] * 10})
    save("moved")
    with t.writer() as writer:
        for i in range(60, 64):
            writer.upsert(make_rows(range(i, i + 1), 60, v=[i], cost=[None]))
    t.compact()
    save("compacted_rows")
    t.upsert(make_rows(range(30, 70), 70, v=[9] * 40, cost=[Decimal(3)] * 40))
    t.update_where({"cost": "cost + 1"}, "city = 'z' or v = 9")
    t.delete_where("cost = 4 and city = 'y'")
    save("changed")


def through_repeats(t, save):
    """Write keys with several rows. Save the table after each step."""

    def make_rows(ids, v):
        return {
            "id": [f"k{i}" for i in ids],
            "city": ["xy"[i % 2] for i in ids],
            "at": [1] * len(ids),
            "v": [v] * len(ids),
            "cost": [None] * len(ids),
        }

    for v in range(3):
        t.insert(make_rows(range(v, 20), v), check=False)
    save("repeated")
    t.upsert(make_rows(range(5, 8), 9))
    t.delete(make_rows(range(8, 10), 0))
    t.delete_where("v = 1 and city = 'y'")
    save("repeated_changed")


def make(root, version):
    """Make tables of ``version`` and of both types. Keep a copy of each after each service, with
    its expected rows.
    """
    import pyarrow as pa

    import mdt
    from mdt.services.reclaiming import cleaning

    cleaning.ARCHIVE_RECORDS_MIN = 4
    first = [("id", pa.string()), ("city", pa.string())]
    schema = pa.schema([*first, ("ts", pa.int64()), ("v", pa.int32())])
    last = [("v", pa.int32()), ("cost", pa.decimal128(9, 2))]
    by_text, by_number = (
        pa.schema([*first, ("at", at), *last]) for at in (pa.string(), pa.int64())
    )
    jobs = []

    def rows(ids, ts):
        n = list(ids)
        columns = [f"k{i}" for i in n], ["xy"[i % 2] for i in n], [ts] * len(n), [i + ts for i in n]
        return pa.table(list(columns), schema=schema)

    def make_table(name, table_type, schema, ordering, **more):
        """Return a table, and the function that saves a copy of it."""
        live = root / f"live_{name}"
        settings = {"partition_by": ["city"], "ordering": ordering, "table_type": table_type}
        table = mdt.create(live, schema, key=["id"], version=version, **settings, **more)

        def save(moment):
            copy = root / f"{name}_{moment}"
            shutil.copytree(live, copy)
            expected = texts(table.scan().to_arrow().to_pylist())
            jobs.append({"name": copy.name, "path": str(copy), "rows": expected})

        return table, save

    for kind in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        t, save = make_table(kind, kind, schema, "ts", options={"mdt.metadata.compact.records": 3})
        through_services(t, rows, save)
        through_columns(t, rows, save)
        through_overwrites(t, save)
        for key_index in ("bloom", "record", "bucket", "memory", "simple", "lmdb"):
            keeps_ordering = key_index in ("record", "simple", "lmdb")
            options = {
                "mdt.delete.keeps.ordering": keeps_ordering,
                "mdt.key.store.dir": str(root / "keys"),
            }
            scope = "partition" if key_index == "bucket" else "table"
            table_schema = by_number if keeps_ordering else by_text
            settings = {"key_index": key_index, "scope": scope, "options": options}
            through_rows(*make_table(f"{kind}_{key_index}", kind, table_schema, "at", **settings))
        repeats = {"options": {"mdt.keys.repeat": True}}
        through_repeats(*make_table(f"{kind}_repeats", kind, by_number, None, **repeats))
    (root / "jobs.json").write_text(json.dumps(jobs))


def read(root, jar):
    """Read every copy with Hudi and compare its rows. Print the number of rows that Hudi's
    procedures return about its timeline.
    """
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
        )
        .getOrCreate()
    )
    for job in json.loads((root / "jobs.json").read_text()):
        frame = spark.read.format("hudi").load(job["path"])
        names = [name for name in frame.columns if not name.startswith("_hoodie")]
        by_position = spark.read.format("hudi").option("hoodie.merge.use.record.positions", "true")
        is_same = all(
            texts([row.asDict() for row in rows.select(names).collect()]) == job["rows"]
            for rows in (frame, by_position.load(job["path"]))
        )
        spark.sql(f"create table {job['name']} using hudi location '{job['path']}'")
        row_counts = {}
        for call in CALLS:
            more = (
                ", start_ts => '2000', end_ts => '2100'" if call == "show_archived_commits" else ""
            )
            limit = "" if call == "show_savepoints" else ", limit => 500"
            row_counts[call] = spark.sql(
                f"call {call}(table => '{job['name']}'{limit}{more})"
            ).count()
        print("same rows" if is_same else "OTHER ROWS", job["name"], row_counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="of Hudi's environment")
    parser.add_argument("--jar", required=True)
    parser.add_argument(
        "--root", type=Path, required=True, help="a directory that does not exist yet"
    )
    parser.add_argument("--version", type=int, default=6, help="Hudi's table version")
    parser.add_argument("--read", action="store_true")
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.root, arguments.jar)
        return
    make(arguments.root, arguments.version)
    command = [
        arguments.python,
        __file__,
        "--read",
        "--jar",
        arguments.jar,
        "--root",
        str(arguments.root),
    ]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

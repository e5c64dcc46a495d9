"""DataFrames with rows that are marked as deletes, and sources of merges that repeat keys, in tasks
and in process.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from reader import bag, hudi_table

import mdt
from mdt.errors import Invalid

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        pa.field("n", pa.int32(), nullable=False),
    ]
)
MIXED = (
    "select 'k1' id, 'y' city, 6L ts, cast(null as int) n, true _hoodie_is_deleted union all select"
    " 'k2', 'x', 4L, null, true union all select 'z', 'x', 4L, null, true union all select 'k3',"
    " 'y', 7L, 30, null union all select 'n', 'x', 1L, 5, false"
)


def filled(folder: Path, local_bytes: int, **options: object) -> mdt.Table:
    table = mdt.create(
        folder, SCHEMA, ["id"], partition_by=["city"], ordering="ts", options=options
    )
    table.upsert([{"id": f"k{i}", "city": "xy"[i % 2], "ts": 5, "n": i} for i in range(6)])
    return mdt.open(folder, {"mdt.spark.local.bytes.max": local_bytes})


def rows(table: mdt.Table, folder: Path) -> dict[str, tuple[int, int]]:
    found = table.scan().to_arrow()
    assert bag(found) == bag(hudi_table(folder, SCHEMA)) and table.check().ok
    return {row["id"]: (row["ts"], row["n"]) for row in found.to_pylist()}


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_marked_rows_of_a_data_frame_delete(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    table = filled(tmp_path, local_bytes, **{"mdt.delete.keeps.ordering": True})
    done = table.upsert(spark.sql(MIXED))
    assert (done.inserted, done.updated, done.deleted, done.late, done.missing) == (1, 1, 1, 1, 1)
    assert done.engine == ("arrow" if local_bytes else "spark")
    expected = {"k0": (5, 0), "k2": (5, 2), "k3": (7, 30), "k4": (5, 4), "k5": (5, 5), "n": (1, 5)}
    assert rows(table, tmp_path) == expected
    late = table.upsert(
        [{"id": "k1", "city": "y", "ts": 5, "n": 1}, {"id": "z", "city": "x", "ts": 3, "n": 1}]
    )
    assert (late.inserted, late.late) == (0, 2)
    assert rows(table, tmp_path) == expected


def test_a_load_of_a_data_frame_leaves_marked_rows_out_also_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = mdt.create(tmp_path / "a", SCHEMA, ["id"], partition_by=["city"], ordering="ts")
    opened = mdt.open(tmp_path / "a", {"mdt.spark.local.bytes.max": 0})
    assert opened.bulk_insert(spark.sql(MIXED)).inserted == 2 and table.scan().count() == 2
    mdt.spark.enable(spark)
    written = (
        spark.sql(MIXED)
        .write.format("mdt")
        .option("key", "id")
        .option("ordering", "ts")
        .partitionBy("city")
    )
    written.mode("append").save(str(tmp_path / "b"))
    made = mdt.open(tmp_path / "b")
    assert made.schema.names == SCHEMA.names and made.scan().count() == 2
    assert opened.insert_overwrite(spark.sql(MIXED)).inserted == 2


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_a_merge_takes_marks_and_the_newest_row_of_a_key(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    table = filled(tmp_path, local_bytes)
    twice = spark.sql(
        f"{MIXED} union all select 'k4', 'x', 7L, 70, false union all select 'k4', 'x', 8L, 80,"
        " false union all select 'k5', 'y', 9L, 0, true union all select 'k5', 'y', 8L, 7, false"
    )
    with pytest.raises(Invalid, match="dedupe=True"):
        table.merge(twice).when_matched().update("*").execute()
    done = (
        table.merge(twice, dedupe=True)
        .when_matched("source.ts > target.ts")
        .update("*")
        .when_not_matched()
        .insert()
        .execute()
    )
    assert (done.inserted, done.updated, done.deleted) == (1, 2, 2)
    assert rows(table, tmp_path) == {
        "k0": (5, 0),
        "k2": (5, 2),
        "k3": (7, 30),
        "k4": (8, 80),
        "n": (1, 5),
    }

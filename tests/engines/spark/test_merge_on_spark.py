"""DataFrames as the source of a merge, and of upserts that keep parts of older rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from reader import bag, hudi_table

import mdt
from mdt.errors import Invalid, Unsupported

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("note", pa.string()),
    ]
)


def filled(folder: Path, local_bytes: int, scope: str = "partition") -> mdt.Table:
    table = mdt.create(folder, SCHEMA, ["id"], partition_by=["city"], ordering="ts", scope=scope)
    table.upsert(
        [{"id": f"k{i}", "city": "xy"[i % 2], "ts": 5, "n": i, "note": f"n{i}"} for i in range(10)]
    )
    return mdt.open(folder, {"mdt.spark.local.bytes.max": local_bytes})


def rows(table: mdt.Table, folder: Path) -> dict[str, tuple[int, int, str]]:
    found = table.scan().to_arrow()
    assert bag(found) == bag(hudi_table(folder, SCHEMA)) and table.check().ok
    return {row["id"]: (row["ts"], row["n"], row["note"]) for row in found.to_pylist()}


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_data_frames_are_merged_in_tasks_or_in_process(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    table = filled(tmp_path, local_bytes, scope="table")
    frame = spark.sql(
        "select 'k1' key, 'x' city, 6L ts, 10 n, 'moved' note union all select 'k2', 'x', 1L, 20,"
        " 'falls' union all select 'k3', 'y', 6L, 0, 'gone' union all select 'k4', 'x', 6L, 0,"
        " 'read' union all select 'k77', 'y', 6L, 7, 'new' union all select 'k78', 'y', 6L, 7,"
        " 'left out'"
    )
    merge = (
        table.merge(frame, "source.key = target.id").when_matched("source.note = 'gone'").delete()
    )
    merge = merge.when_matched("source.n > target.n").update(
        {"n": "source.n + target.n", "ts": "source.ts", "city": "source.city"}
    )
    new = {"id": "source.key", "city": "source.city", "ts": "source.ts", "n": 5}
    merge = merge.when_not_matched("source.note = :new", params={"new": "new"}).insert(new)
    merge = merge.when_not_matched_by_source("target.n in (4, 9)").delete()
    done = (
        merge.when_not_matched_by_source("target.n = 8").update({"city": "'y'", "ts": 1}).execute()
    )
    assert (done.updated, done.inserted, done.deleted, done.source_rows) == (3, 1, 2, 6)
    assert (done.engine, done.files_scanned) == ("arrow" if local_bytes else "spark", 2)
    found = rows(table, tmp_path)
    assert (found["k1"], found["k2"], found["k4"]) == ((6, 11, "n1"), (1, 22, "n2"), (5, 4, "n4"))
    assert (
        found["k77"] == (6, 5, None)
        and not {"k3", "k9", "k78"} & found.keys()
        and found["k8"] == (1, 8, "n8")
    )
    assert (table.get("k1")["city"], table.get("k8")["city"]) == ("x", "y")


def test_of_a_large_data_frame_errors_name_rows_and_what_needs_all_rows_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = filled(tmp_path, 0)
    twice = spark.sql("select 'k1' id, 'y' city, 6L ts, 10 n union all select 'k1', 'y', 7L, 3")
    with pytest.raises(
        Invalid, match=r"1 rows of the table match several rows of the source: \['k1'\]"
    ):
        table.merge(twice).when_matched().update({"n": "source.n"}).execute()
    with pytest.raises(Unsupported, match="matched by the record key"):
        table.merge(twice, on="n")
    assert rows(table, tmp_path)["k1"] == (5, 1, "n1")


@pytest.mark.parametrize("local_bytes", [0, 1 << 20])
def test_parts_of_rows_are_upserted_and_merged_in_tasks_or_in_process(
    spark: SparkSession, tmp_path: Path, local_bytes: int
) -> None:
    table = filled(tmp_path, local_bytes)
    engine = "arrow" if local_bytes else "spark"
    frame = spark.sql(
        "select 'k1' id, 'y' city, 6L ts, 10 n union all select 'k1', 'y', 7L, 20 union all select"
        " 'k2', 'x', 1L, 5 union all select 'k77', 'y', 6L, 7"
    )
    done = table.upsert(frame, partial=True, mergers={"n": "sum"})
    assert (done.updated, done.inserted, done.late, done.engine) == (2, 1, 0, engine)
    found = rows(table, tmp_path)
    assert (found["k1"], found["k2"], found["k77"]) == ((7, 31, "n1"), (5, 7, "n2"), (6, 7, None))
    again = table.upsert(spark.sql("select 'k1' id, 'y' city, 'here' note"), partial=True)
    assert (again.updated, again.engine) == (1, engine) and rows(table, tmp_path)["k1"] == (
        7,
        31,
        "here",
    )
    with pytest.raises(Invalid, match="the data lack city"):
        table.upsert(spark.sql("select 'k1' id, 'here' note"), partial=True)


def test_under_table_scope_tasks_find_the_partition_by_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = filled(tmp_path, 0, scope="table")
    done = table.upsert(
        spark.sql("select 'k1' id, 9L ts, 'here' note union all select 'k2', 9L, 'there'"),
        partial=True,
    )
    assert (done.updated, done.inserted, done.engine) == (2, 0, "spark")
    found = rows(table, tmp_path)
    assert found["k1"] == (9, 1, "here") and found["k2"] == (9, 2, "there")

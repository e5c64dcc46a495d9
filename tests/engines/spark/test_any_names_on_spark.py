"""Columns whose names Avro does not allow, on Spark: every way to read and write takes and shows
them as they were declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from executed_plans import run
from pyspark.sql import SparkSession
from reader import hudi_table
from sql_tables import settings

import mdt
import mdt.spark
from mdt.schema import names

COLUMNS = (
    "`trip id` string, `pick-up city` string, `ts (ms)` bigint, `fare amount` double, `a.b` int,"
    " `x-y` struct<`zip code`: int, `p.q`: string>"
)


@pytest.fixture
def trips(spark: SparkSession, tmp_path: Path) -> Iterator[mdt.Table]:
    mdt.spark.enable(spark)
    spark.sql("drop table if exists odd_trips")
    spark.sql(
        f"create table odd_trips ({COLUMNS}) using mdt partitioned by (`pick-up city`) "
        f"options (key 'trip id', ordering 'ts (ms)') location '{tmp_path}/t'"
    )
    spark.sql(
        "insert into odd_trips select concat('t', id), id * 1L, id * 0.5D, int(id),"
        " named_struct('zip code', int(id), 'p.q', 'x'), if(id % 2 = 0, 'Oslo', 'Bern') from"
        " range(100)"
    )
    yield mdt.open(tmp_path / "t")
    spark.sql("drop table odd_trips")


def rows_of(table: mdt.Table, where: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return rows as mdt reads them in process."""
    found = table.scan(where, columns=columns, order_by="`trip id`").to_arrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_sql_reads_and_writes_by_the_declared_names(spark: SparkSession, trips: mdt.Table) -> None:
    assert {"trip id", "ts (ms)", "a.b", "pick-up city"} <= set(spark.table("odd_trips").columns)
    found = spark.sql(
        "select `trip id`, `fare amount`, `x-y`.`zip code` z from odd_trips where `fare amount` >"
        " 49 and `a.b` = 99"
    ).collect()
    assert [tuple(row) for row in found] == [("t99", 49.5, 99)]
    spark.sql("update odd_trips set `fare amount` = `fare amount` + 1 where `a.b` = 7")
    spark.sql("delete from odd_trips where `x-y`.`zip code` = 8")
    spark.sql(
        "merge into odd_trips t using (select 't9' `trip id`, 'Bern' `pick-up city`, 500L `ts"
        " (ms)`) s on t.`trip id` = s.`trip id` and t.`pick-up city` = s.`pick-up city` when"
        " matched then update set `a.b` = -1, `ts (ms)` = s.`ts (ms)`"
    )
    spark.sql(
        "insert into odd_trips (`trip id`, `pick-up city`, `ts (ms)`) values ('new', 'Rome', 1)"
    )
    spark.sql(
        "insert overwrite odd_trips partition (`pick-up city` = 'Rome') select 'newer', 2, 0.5, 1,"
        " null"
    )
    assert rows_of(
        trips,
        "`trip id` in ('t7', 't8', 't9', 'new', 'newer')",
        "trip id",
        "fare amount",
        "a.b",
        "pick-up city",
    ) == [("newer", 0.5, 1, "Rome"), ("t7", 4.5, 7, "Bern"), ("t9", 4.5, -1, "Bern")]
    assert spark.sql(
        "select count(*), sum(`a.b`) from odd_trips where `pick-up city` = 'Rome'"
    ).collect()[0][:] == (1, 1)
    assert [row[0] for row in spark.sql("show partitions odd_trips").collect()]
    assert spark.sql("select count(*) from odd_trips version as of 1").collect()[0][0] == 100
    assert not trips.check().problems
    assert (
        hudi_table(trips.path, names.in_files(trips.definition.schema)).num_rows
        == trips.scan().count()
    )


def test_sql_alters_such_columns(spark: SparkSession, trips: mdt.Table) -> None:
    spark.sql("alter table odd_trips add columns (`new.one` int, `two words` string)")
    spark.sql(
        "insert into odd_trips (`trip id`, `pick-up city`, `ts (ms)`, `new.one`) values ('n',"
        " 'Oslo', 1, 5)"
    )
    assert [
        tuple(row)
        for row in spark.sql(
            "select `trip id`, `two words` from odd_trips where `new.one` = 5"
        ).collect()
    ] == [("n", None)]
    trips.alter(rename={"fare amount": "the fare", "new.one": "new two"}, beyond_hudi=True)
    found = mdt.read(spark, trips.path)
    assert {"the fare", "new two"} <= set(found.columns)
    assert [
        tuple(row) for row in found.where("`the fare` = 5").select("trip id", "the fare").collect()
    ] == [("t10", 5.0)]


def test_frames_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(200).selectExpr(
        "concat('t', id) `trip id`",
        "if(id % 2 = 0, 'Oslo', 'Bern') `pick-up city`",
        "id `ts (ms)`",
        "id * 0.5 `fare amount`",
        "int(id) `1st`",
        "array(named_struct('who?', int(id))) `a.b`",
    )
    path = f"{tmp_path}/t"
    for bytes_max in ("0", "67108864"):
        with settings(spark, {"spark.mdt.spark.local.bytes.max": bytes_max}):
            rows.write.format("mdt").option("key", "trip id").option(
                "ordering", "ts (ms)"
            ).partitionBy("pick-up city").mode("append").save(path)
    table = mdt.open(path)
    assert table.scan().count() == 200
    read = spark.read.format("mdt").load(path)
    assert read.where("`fare amount` = 3.5 and `1st` = 7").select("trip id", "`a.b`").collect() == [
        ("t7", [(7,)])
    ]
    assert sorted(read.select(*(f"`{name}`" for name in rows.columns)).collect()) == sorted(
        rows.collect()
    )
    assert {
        row[0]
        for row in table.scan("`1st` < 3", columns=["trip id", "1st"]).to_spark(spark).collect()
    } == {"t0", "t1", "t2"}
    table = mdt.open(path, {"mdt.spark.local.bytes.max": "0"})
    table.upsert(
        rows.where("`1st` = 5").selectExpr(
            "`trip id`", "`pick-up city`", "999L `ts (ms)`", "-1.0D `fare amount`", "`1st`", "`a.b`"
        )
    )
    table.merge(
        rows.where("`1st` = 6").selectExpr("`trip id`", "`pick-up city`", "-2.0D `fare amount`")
    ).when_matched().update({"fare amount": "source.`fare amount`"}).execute()
    table.delete(rows.where("`1st` = 8").select("trip id", "pick-up city"))
    table.compact(spark=spark)
    found = (
        table.scan("`1st` in (5, 6, 8)", columns=["1st", "fare amount"], order_by="`1st`")
        .to_arrow()
        .to_pylist()
    )
    assert found == [{"1st": 5, "fare amount": -1.0}, {"1st": 6, "fare amount": -2.0}]
    assert not table.check().problems


def test_parquet_files_with_such_names_are_loaded(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "trip id": [f"t{n:05d}" for n in range(5000)],
            "a.b": range(5000),
            "größe": [n / 2 for n in range(5000)],
        }
    )
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=1000)
    frame = spark.read.parquet(f"{tmp_path}/in.parquet")
    for bytes_max in ("0", "67108864"):
        with settings(spark, {"spark.mdt.spark.local.bytes.max": bytes_max}):
            frame.write.format("mdt").option("key", "trip id").save(f"{tmp_path}/{bytes_max}")
        table = mdt.open(f"{tmp_path}/{bytes_max}")
        assert table.scan(order_by="`trip id`").to_arrow().equals(rows)
        assert not table.check().problems


def test_filters_of_spark_prune_files_by_such_names(spark: SparkSession, trips: mdt.Table) -> None:
    trips.create_index("bitmap('a.b')")
    found, files = run(mdt.read(spark, trips.path).where("`a.b` = 10"))
    assert ([row["trip id"] for row in found], files) == (["t10"], [1])


def test_streams_and_changes_show_them(
    spark: SparkSession, trips: mdt.Table, tmp_path: Path
) -> None:
    spark.sql("update odd_trips set `fare amount` = -1 where `a.b` = 3")
    found = spark.sql(
        "select `trip id`, `fare amount` from mdt_changes('odd_trips', 1) where `fare amount` < 0"
    ).collect()
    assert [tuple(row) for row in found] == [("t3", -1.0)]
    sink = f"{tmp_path}/sink"
    stream = (
        spark.readStream.format("mdt")
        .load(trips.path)
        .selectExpr("`trip id`", "`fare amount`")
        .writeStream.format("mdt")
        .option("key", "trip id")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start(sink)
    )
    stream.awaitTermination()
    assert mdt.open(sink).schema.names == ["trip id", "fare amount"]
    assert mdt.open(sink).scan("`fare amount` = -1").count() == 1

"""Files on far stores: executors keep their footers, and compare those that they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from plan_metrics import Figures, figures
from pyspark.sql import SparkSession

import mdt
import mdt.spark

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])
FOUND, READ = "footers found in executors", "footers read by executors"


def rows(ids: range, plus: int = 0) -> pa.Table:
    return pa.table(
        [list(ids), ["Oslo" if i % 2 else "Rome" for i in ids], [i % 97 + plus for i in ids]],
        schema=SCHEMA,
    )


@pytest.fixture
def told(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that asks for metrics."""
    mdt.spark.enable(spark)
    spark.conf.set("spark.mdt.explain", "metrics")
    yield spark
    for name in ("explain", "footers.bytes", "affinity"):
        spark.conf.unset(f"spark.mdt.{name}")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mdt.Table:
    """Base files, blocks of log files and dead rows, in a store that says that it is far."""
    made = mdt.create(
        tmp_path / "t t", SCHEMA, key=["id"], partition_by=["city"], indexes=["bitmap(v)"]
    )
    made.bulk_insert(rows(range(4000)))
    made.upsert(rows(range(0, 900, 7), 1000))
    made.delete(rows(range(50, 60)).select(["id", "city"]))
    monkeypatch.setattr(type(made.storage), "is_remote", True)
    return made


def counts(told: SparkSession, table: mdt.Table, where: str = "v >= 0") -> tuple[int, int]:
    """Return how many footers a query finds, and how many it reads."""
    (found,) = figures(told, mdt.read(told, table.path).where(where))
    return number(found, FOUND), number(found, READ)


def number(found: Figures, name: str) -> int:
    return int(found[name].replace(",", ""))


def test_the_second_query_finds_every_footer(told: SparkSession, table: mdt.Table) -> None:
    files = table.scan("v >= 0").explain().files_read
    assert files == 4, "two base files and two blocks"
    assert counts(told, table) == (0, files)
    assert counts(told, table) == (files, 0)
    table.upsert(rows(range(4000, 4100)))
    found, read = counts(told, table)
    assert found == files and read == table.scan("v >= 0").explain().files_read - files > 0


def test_a_warm_table_has_its_footers_in_executors(told: SparkSession, table: mdt.Table) -> None:
    assert mdt.warm(told, table.path).opened == 4 and counts(told, table) == (4, 0)
    told.conf.set("spark.mdt.footers.bytes", "0")
    assert mdt.warm(told, table.path).opened == 0, "nobody would keep them"


def test_few_bytes_keep_few_footers_and_none_keeps_none(
    told: SparkSession, table: mdt.Table
) -> None:
    told.conf.set("spark.mdt.footers.bytes", "1")
    assert counts(told, table) == (0, 4) and counts(told, table) == (0, 4)
    told.conf.set("spark.mdt.footers.bytes", "0")
    (found,) = figures(told, mdt.read(told, table.path).where("v >= 0"))
    assert FOUND not in found and READ not in found


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_rows_and_what_spark_says_of_their_files_are_the_same(
    told: SparkSession, table: mdt.Table, vectorized: str
) -> None:
    asked = (
        "id, city, v, input_file_name() as name, _metadata.file_path as path, _metadata.file_name"
        " as file, _metadata.file_size as size, _metadata.file_block_start as start"
    )
    told.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    told.conf.set("spark.sql.files.maxPartitionBytes", "9000")
    try:
        found = []
        for kept in ("0", "1000000", "1000000"):
            told.conf.set("spark.mdt.footers.bytes", kept)
            frame = mdt.read(told, table.path)
            every = sorted(tuple(row) for row in frame.selectExpr(*asked.split(", ")).collect())
            some = sorted(
                tuple(row) for row in frame.where("v in (5, 1007)").select("id", "v").collect()
            )
            found.append((every, some, frame.count(), sorted(frame.inputFiles())))
    finally:
        told.conf.unset("spark.sql.parquet.enableVectorizedReader")
        told.conf.unset("spark.sql.files.maxPartitionBytes")
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == found[0][2] == 3990 and found[0][1]


def test_a_footer_that_was_changed_is_found_when_it_is_read(
    told: SparkSession, table: mdt.Table, tmp_path: Path
) -> None:
    name = next(file for file in (tmp_path / "t t").rglob("*.parquet"))
    data = bytearray(name.read_bytes())
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little") + 20
    data[at] ^= 1
    name.write_bytes(data)
    with pytest.raises(
        Exception, match="the footer of a data file is not as it was written: .*parquet"
    ):
        mdt.read(told, table.path).where("v >= 0").collect()


def test_a_file_may_have_an_executor_where_there_is_none(
    told: SparkSession, table: mdt.Table
) -> None:
    told.conf.set("spark.mdt.affinity", "on")
    assert mdt.read(told, table.path).count() == 3990

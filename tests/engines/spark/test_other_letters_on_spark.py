"""Names of columns in other letters than the table's, on Spark: one column unless
spark.sql.caseSensitive is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sql_tables import settings

import mdt
import mdt.spark
from mdt.errors import Invalid

SENSITIVE = {"spark.sql.caseSensitive": "true"}


@pytest.fixture
def people(spark: SparkSession, tmp_path: Path) -> Iterator[mdt.Table]:
    mdt.spark.enable(spark)
    spark.sql("drop table if exists people")
    spark.sql(
        "create table people (Id bigint, CustName string) using mdt options (key 'ID') location"
        f" '{tmp_path}/t'"
    )
    spark.sql("insert into people values (1, 'a')")
    yield mdt.open(tmp_path / "t")
    spark.sql("drop table people")


@pytest.mark.parametrize("bytes_max", ["0", "67108864"])
def test_every_way_to_write_takes_them(
    spark: SparkSession, people: mdt.Table, bytes_max: str
) -> None:
    rows = spark.createDataFrame([(2, "z")], "ID long, custname string")
    with settings(spark, {"spark.mdt.spark.local.bytes.max": bytes_max}):
        rows.writeTo("people").append()
        rows.replace("z", "y").write.format("mdt").mode("append").save(people.path)
        rows.selectExpr("3L iD", "'c' CUSTNAME").write.format("mdt").mode("append").option(
            "evolve", "true"
        ).option("key", "id").save(people.path)
        spark.sql("insert into people (id, CUSTNAME) values (4, 'd')")
        spark.sql("update people set custname = 'dd' where ID = 4")
        spark.sql(
            "merge into people t using (select 5L id, 'e' custname) s on t.id = s.id when not"
            " matched then insert *"
        )
        table = mdt.open(people.path, {"mdt.spark.local.bytes.max": bytes_max})
        table.upsert(rows.selectExpr("6L ID", "'f' custName"))
        table.merge(rows.selectExpr("6L ID", "'ff' CUSTNAME")).when_matched().update("*").execute()
        table.delete(rows.selectExpr("1L ID"))
    assert people.schema.names == ["Id", "CustName"]
    assert {row["Id"]: row["CustName"] for row in people.scan().to_arrow().to_pylist()} == {
        2: "y",
        3: "c",
        4: "dd",
        5: "e",
        6: "ff",
    }
    assert (
        mdt.read(spark, people.path)
        .where("ID = 2 and CUSTNAME = 'y'")
        .select("custname")
        .collect()[0][0]
        == "y"
    )


def test_a_session_that_tells_letters_apart_is_refused(
    spark: SparkSession, people: mdt.Table
) -> None:
    rows = spark.createDataFrame([(2, "z")], "ID long, custname string")
    with settings(spark, SENSITIVE):
        with pytest.raises(
            PySparkException,
            match="spark.sql.caseSensitive is true: ID for Id, custname for CustName",
        ):
            rows.write.format("mdt").mode("append").save(people.path)
        with pytest.raises(Invalid, match="spark.sql.caseSensitive is true"):
            people.delete(rows)
        with pytest.raises(
            PySparkException,
            match="key: there is no column 'id', and spark.sql.caseSensitive is true",
        ):
            rows.write.format("mdt").option("key", "id").save(f"{people.path}_other")
        with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
            mdt.read(spark, people.path).where("custname = 'a'")
        rows.toDF("Id", "CustName").write.format("mdt").mode("append").save(people.path)
    assert people.scan().count() == 2

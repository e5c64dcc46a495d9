"""ALTER TABLE … DROP, RENAME and ALTER COLUMN on tables of ours: what ``t.alter`` does, and what
the catalog knows then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from reader import bag, hudi_table

import mdt
import mdt.spark


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with the table `altered`, which has one row."""
    mdt.spark.enable(spark)
    spark.sql("drop table if exists altered")
    spark.sql("drop table if exists files")
    columns = (
        "id string, n int not null comment 'a number', price float, old string, place struct<x:"
        " int>"
    )
    location = f"location '{tmp_path / 't'}'"
    spark.sql(
        f"create table altered ({columns}) using mdt options (key 'id', type 'mor') {location}"
    )
    spark.sql("insert into altered values ('a', 1, 1.5, 'x', named_struct('x', 1))")
    yield spark
    spark.sql("drop table altered")


def described(spark: SparkSession) -> list[tuple[str, str, str | None]]:
    return [
        (row["col_name"], row["data_type"], row["comment"])
        for row in spark.sql("describe altered").collect()
    ]


COLUMNS = [
    ("id", "string", None),
    ("n", "int", "a number"),
    ("price", "float", None),
    ("old", "string", None),
    ("place", "struct<x:int>", None),
]


def test_columns_are_dropped_widened_and_may_be_null(sql: SparkSession, tmp_path: Path) -> None:
    assert described(sql) == COLUMNS
    sql.sql("alter table altered alter column N type bigint")
    sql.sql("alter table altered alter column n drop not null")
    sql.sql("alter table altered drop columns (old, Place)")
    sql.sql("alter table altered drop column if exists old")
    assert described(sql) == [
        ("id", "string", None),
        ("n", "bigint", "a number"),
        ("price", "float", None),
    ]
    sql.sql("insert into altered values ('b', 5000000000, 2.5), ('c', null, null)")
    assert {tuple(row) for row in sql.table("altered").collect()} == {
        ("a", 1, 1.5),
        ("b", 5_000_000_000, 2.5),
        ("c", None, None),
    }
    table = mdt.open(tmp_path / "t")
    assert (
        bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", table.schema))
        and table.check().ok
    )
    assert sql.sql("select * from altered version as of 1").columns == [
        "id",
        "n",
        "price",
        "old",
        "place",
    ]
    assert table.history()["operation"].to_pylist().count("alter_schema") == 3


def test_other_sessions_alter_too_and_the_catalogs_part_stays_its_own(
    sql: SparkSession, tmp_path: Path
) -> None:
    sql.newSession().sql("alter table default.altered drop column old")
    sql.sql("alter table altered alter column price comment 'in euros'")
    assert described(sql) == [COLUMNS[0], COLUMNS[1], ("price", "float", "in euros"), COLUMNS[4]]
    assert sql.sql("explain alter table altered drop column price").count() == 1
    assert len(mdt.open(tmp_path / "t").schema) == 4


def test_columns_are_added_and_moved_to_a_place(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql(
        "alter table altered add columns (a int first, b int comment 'second' after ID, c int"
        " after b)"
    )
    assert sql.table("altered").columns == ["a", "id", "b", "c", "n", "price", "old", "place"]
    sql.sql("alter table altered alter column old first, c after old")
    sql.sql("alter table altered change column n n bigint comment 'more' after place")
    assert described(sql) == [
        ("old", "string", None),
        ("c", "int", None),
        ("a", "int", None),
        ("id", "string", None),
        ("b", "int", "second"),
        ("price", "float", None),
        ("place", "struct<x:int>", None),
        ("n", "bigint", "more"),
    ]
    sql.sql("insert into altered values ('y', 3, 2, 'b', 1, 0.5, named_struct('x', 1), 9)")
    assert sql.sql("select id, n, c from altered order by id").collect() == [
        ("a", 1, None),
        ("b", 9, 3),
    ]
    table = mdt.open(tmp_path / "t")
    assert (
        bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", table.schema))
        and table.check().ok
    )


NO_CHANGES = [
    ("alter table altered drop column id", "of the record key"),
    ("alter table altered drop column none", "no column 'none'"),
    ("alter table altered rename column price to cost", "Hudi's readers would answer differently"),
    ("alter table altered drop column place.x", "the last field of 'place'"),
    ("alter table altered alter column n type smallint", "cannot become int16"),
    ("alter table altered alter column n type string collate UNICODE_CI", "collation"),
    ("alter table altered alter column price set not null", "SET NOT NULL"),
    ("alter table altered alter column place.x first", "FIRST and AFTER for a field of a struct"),
    ("alter table altered alter column place.x comment 'c'", "COMMENT on a field of a struct"),
    ("alter table altered alter column none comment 'c'", "no column 'none'"),
    ("alter table altered add columns (m int after none)", "no column 'none'"),
    ("alter table altered add columns (m int not null)", "is required"),
    ("alter table altered add columns (m int default 5)", "ADD COLUMN … DEFAULT"),
    ("alter table altered alter column n set default 5", "SET DEFAULT"),
    ("alter table altered alter column n drop default", "DROP DEFAULT"),
    ("alter table altered replace columns (id string)", "REPLACE COLUMNS"),
]


def test_what_cannot_be_altered_leaves_table_and_catalog(sql: SparkSession, tmp_path: Path) -> None:
    for statement, reason in NO_CHANGES:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(statement)
    assert described(sql) == COLUMNS
    assert mdt.open(tmp_path / "t").snapshot().seq == 1


def test_tables_of_others_are_sparks(sql: SparkSession) -> None:
    sql.sql("create table files (id string, n int) using parquet")
    with pytest.raises(PySparkException, match="does not support DROP COLUMN"):
        sql.sql("alter table files drop column n")
    sql.sql("drop table files")


def test_the_catalog_knows_the_columns_of_a_state_that_was_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    mdt.spark.enable(spark)
    spark.sql("drop table if exists restored")
    spark.sql(
        "create table restored (id int, v int) using mdt options (key 'id') location"
        f" '{tmp_path}/t'"
    )
    spark.sql("insert into restored values (1, 1)")
    spark.sql("alter table restored add columns (w int comment 'late')")
    spark.sql("insert into restored values (2, 2, 2)")
    spark.sql("call mdt.restore('restored', '1')")
    assert [row["col_name"] for row in spark.sql("describe restored").collect()] == ["id", "v"]
    assert [tuple(row) for row in spark.sql("select * from restored").collect()] == [(1, 1)]
    spark.sql("insert into restored values (3, 3)")
    assert spark.table("restored").count() == 2
    spark.sql("drop table restored")


def test_describe_of_a_column_shows_its_comment_and_so_does_the_frame(sql: SparkSession) -> None:
    def about(column: str) -> dict[str, str]:
        return dict(map(tuple, sql.sql(f"describe extended altered {column}").collect()))

    assert (
        about("n").items() >= {"col_name": "n", "data_type": "int", "comment": "a number"}.items()
    )
    assert about("id")["comment"] == "NULL"
    sql.sql("alter table altered alter column n comment 'how many'")
    sql.sql("alter table altered alter column n type bigint")
    assert about("n").items() >= {"data_type": "bigint", "comment": "how many"}.items()
    assert sql.table("altered").schema["n"].metadata == {"comment": "how many"}
    assert [tuple(row) for row in sql.sql("select n, old from altered where n > 0").collect()] == [
        (1, "x")
    ]
    assert sql.sql("select n from altered version as of 1").count() == 1

"""``VERSION AS OF``, ``TIMESTAMP AS OF`` and ``ALTER TABLE … ADD COLUMNS`` in Spark's SQL, on
tables of the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from reader import bag, hudi_table

import mdt
import mdt.spark

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session that knows a table with the states 1 (a), 2 (a, b) and 3 (b), of which 2 has the
    tag "both".
    """
    mdt.spark.enable(spark)
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"])
    table.upsert([{"id": "a", "n": 1}])
    table.upsert([{"id": "b", "n": 2}])
    table.tag("both")
    table.delete([{"id": "a"}])
    spark.sql("drop table if exists states")
    spark.sql(f"create table states using mdt location '{tmp_path / 't'}'")
    yield spark
    spark.sql("drop table states")


def ids(spark: SparkSession, query: str) -> list[str]:
    return sorted(row[0] for row in spark.sql(query).collect())


def test_a_version_is_the_option_as_of(sql: SparkSession, tmp_path: Path) -> None:
    assert ids(sql, "select id from states") == ["b"]
    assert ids(sql, "select id from states version as of 1") == ["a"]
    assert ids(sql, "select id from default.states for system_version as of 2 where n < 5") == [
        "a",
        "b",
    ]
    assert ids(sql, "select id from spark_catalog.default.states version as of 'both'") == [
        "a",
        "b",
    ]
    assert ids(
        sql.newSession(),
        "with x as (select * from states version as of 2) select x.id from x join states s on x.id"
        " = s.id",
    ) == ["b"]
    assert ids(
        sql,
        "select s.id from states version as of 2 s where s.id not in (select id from states version"
        " as of 1)",
    ) == ["b"]
    assert ids(sql, "select states.id from states version as of 1") == ["a"]
    sql.sql("create or replace temporary view then as select * from states version as of 1")
    assert ids(sql, "select id from then") == ["a"]


def test_a_timestamp_is_a_moment_of_the_session(sql: SparkSession, tmp_path: Path) -> None:
    history = mdt.open(tmp_path / "t").history()
    assert sql.conf.get("spark.sql.session.timeZone") == "America/Los_Angeles"
    instant = dict(zip(history["seq"].to_pylist(), history["instant"].to_pylist(), strict=True))[2]
    moment = datetime.strptime(instant, "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    for text in (f"'{moment.isoformat()}'", f"timestamp_micros({round(moment.timestamp() * 1e6)})"):
        assert ids(sql, f"select id from states timestamp as of {text}") == ["a", "b"]
    assert ids(
        sql, "select id from states timestamp as of current_timestamp() + interval 1 day"
    ) == ["b"]
    early = (moment - timedelta(days=2)).isoformat()
    with pytest.raises(PySparkException, match="not there yet"):
        sql.sql(f"select * from states timestamp as of '{early}'")


NO_STATES = [
    ("select * from states version as of 99", "there is no commit 99"),
    ("select * from states version as of 'nope'", "nope"),
    ("select * from states version as of 1 with (as_of = '2')", "named twice"),
    ("select * from states timestamp as of null", "(?i)null"),
    ("select * from nowhere version as of 1", "nowhere"),
]


def test_what_names_no_state_is_refused(sql: SparkSession) -> None:
    for query, reason in NO_STATES:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(query).collect()


def test_columns_are_added_to_the_table_and_to_the_catalog(
    sql: SparkSession, tmp_path: Path
) -> None:
    sql.sql(
        "alter table states add columns (note string comment 'said', price decimal(10, 2), at"
        " timestamp)"
    )
    told = [
        (row["col_name"], row["data_type"], row["comment"])
        for row in sql.sql("describe states").collect()
    ]
    assert told == [
        ("id", "string", None),
        ("n", "bigint", None),
        ("note", "string", "said"),
        ("price", "decimal(10,2)", None),
        ("at", "timestamp", None),
    ]
    sql.sql("insert into states values ('c', 3, 'new', 1.5, timestamp '2024-01-01 00:00:00Z')")
    sql.sql("update states set note = concat('old ', n), price = n / 3 where note is null")
    table = mdt.open(tmp_path / "t")
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"
    found = table.scan().to_arrow()
    assert (
        bag(found) == bag(hudi_table(tmp_path / "t", table.schema)) and not table.check().problems
    )
    assert sorted(map(str, found["note"].to_pylist())) == ["new", "old 2"]
    assert sql.sql("select * from states version as of 1").columns == ["id", "n"]
    assert ids(sql.newSession(), "select note from states") == ["new", "old 2"]


NO_COLUMNS = [
    ("alter table states add columns (n int)", "'n' and 'n' differ at most"),
    ("alter table states add columns (N int)", "differ at most in case"),
    ("alter table states add columns (z int default 5)", "ADD COLUMN … DEFAULT"),
]


def test_a_column_that_cannot_be_added_leaves_table_and_catalog(
    sql: SparkSession, tmp_path: Path
) -> None:
    for statement, reason in NO_COLUMNS:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(statement)
    assert [row["col_name"] for row in sql.sql("describe states").collect()] == ["id", "n"]
    assert "alter_schema" not in mdt.open(tmp_path / "t").history()["operation"].to_pylist()

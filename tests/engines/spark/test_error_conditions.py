"""Errors of mdt on Spark have a condition and an SQLSTATE, as Spark's own have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import mdt
import mdt.spark
from mdt import errors
from mdt.errors import MdtError

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> mdt.Table:
    mdt.spark.enable(spark)
    found = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    found.upsert(pa.table({"id": [1, 2], "v": [1, 2]}, schema=SCHEMA))
    spark.sql("drop table if exists conditions")
    spark.sql(f"create table conditions using mdt location '{found.path}'")
    return found


STATEMENTS = {
    "update conditions set id = 3": ("MDT_INVALID", "22023"),
    "call mdt.compact('conditions', budget => 'x')": ("MDT_INVALID", "22023"),
    "create table other_conditions like conditions": ("MDT_UNSUPPORTED", "0A000"),
    "call mdt.restore('conditions', '99')": ("MDT_INVALID", "22023"),
}


@pytest.mark.parametrize("text", sorted(STATEMENTS))
def test_a_statement_that_is_refused_has_a_condition(
    spark: SparkSession, table: mdt.Table, text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql(text)
    assert (caught.value.getCondition(), caught.value.getSqlState()) == STATEMENTS[text]


def test_an_option_that_means_nothing_has_a_condition(
    spark: SparkSession, table: mdt.Table
) -> None:
    with pytest.raises(PySparkException, match="unknown option 'fare'") as caught:
        spark.read.format("mdt").option("fare", 1).load(str(table.path))
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("MDT_INVALID", "22023")


def test_a_statement_on_a_damaged_table_has_a_condition(
    spark: SparkSession, table: mdt.Table
) -> None:
    for record in sorted(Path(table.path, ".hoodie/.mdt/log").iterdir())[-1:]:
        record.write_bytes(record.read_bytes()[:-7])
    with pytest.raises(PySparkException) as caught:
        spark.sql("call mdt.compact('conditions')")
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("MDT_CORRUPT", "XX001")


def test_an_error_in_a_query_has_a_condition_too(spark: SparkSession, table: mdt.Table) -> None:
    for file in table.files().to_pylist():
        Path(table.path, file["name"]).unlink()
    with pytest.raises(MdtError) as caught:
        mdt.read(spark, table.path).toArrow()
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("MDT_MISSING", "58P01")


def kinds(of: type[MdtError]) -> list[type[MdtError]]:
    return [of, *(kind for child in of.__subclasses__() for kind in kinds(child))]


def test_every_kind_of_error_is_in_the_table_of_the_page() -> None:
    page = Path(__file__).parents[3].joinpath("docs/spark.md").read_text()
    ours: list[Any] = [kind for kind in kinds(MdtError)[1:] if kind.__module__ == errors.__name__]
    for kind in ours:
        error = kind("")
        assert f"| `{kind.__name__}` | `{error.getCondition()}` | `{error.getSqlState()}` |" in page

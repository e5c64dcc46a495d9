"""limit and order_by mean on Spark what they mean in process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from reader import bag
from test_spark_read import SCHEMA, merged

import mdt
from mdt.limits import SPARK_LIMIT_MAX


@pytest.mark.parametrize("way", ["", " desc", " nulls last", " desc nulls first"])
def test_spark_sorts_every_type_as_we_do(spark: SparkSession, tmp_path: Path, way: str) -> None:
    table = merged(tmp_path / "t")
    for name in SCHEMA.names:
        scan = table.scan(order_by=f"{name}{way}, id desc", limit=25)
        theirs = [row["id"] for row in scan.to_spark(spark).collect()]
        assert theirs == scan.to_arrow()["id"].to_pylist(), name


def test_spark_limits_without_an_order_and_after_a_filter(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = merged(tmp_path / "t")
    rows = table.scan("x > 0").to_arrow()
    found = table.scan("x > 0", limit=5).to_spark(spark).toArrow()
    assert len(found) == 5 and not bag(found.select(["id"])) - bag(rows.select(["id"]))
    assert table.scan(limit=0).to_spark(spark).count() == 0
    whole = table.scan(limit=SPARK_LIMIT_MAX + 1, order_by="id", columns=["city"]).to_spark(spark)
    assert whole.columns == ["city"] and whole.count() == table.scan().count()


def test_a_limit_that_spark_cannot_count_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = merged(tmp_path / "t")
    monkeypatch.setattr("mdt.query.SPARK_LIMIT_MAX", 3)
    assert table.scan(limit=3).to_spark(spark).count() == 3
    with pytest.raises(mdt.Unsupported, match="Spark takes no limit above 3"):
        table.scan(limit=4).to_spark(spark)


def test_a_table_and_a_scan_can_be_used_in_spark_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = merged(tmp_path / "t")
    scan = table.scan("id < 20")
    counted = (
        spark.sparkContext.parallelize([0, 1], 2)
        .map(lambda _: (table.scan().count(), scan.count()))
        .collect()
    )
    assert counted == [(table.scan().count(), scan.count())] * 2

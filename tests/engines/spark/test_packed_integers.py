"""Files of older versions have integers that are stored by their differences: releases of Spark
that skip rows of these wrongly return right rows, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import mdt
import mdt.spark
from mdt.hudi import base_file

ROWS = 30_000
PACKED = "DELTA_BINARY_PACKED"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("code", pa.int64()),
        ("small", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        [
            [f"k{i:06}" + "x" * 40 for i in numbers],
            [i * 7919 % 12_011 for i in numbers],
            pa.array([None if i % 7 == 0 else i * 31 % 9973 for i in numbers], pa.int32()),
            pa.array([i * 1_000_003 for i in numbers], pa.timestamp("us", "UTC")),
        ],
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def packed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[mdt.Table]:
    """A table whose integers and times are packed, and its view ``packed``."""
    mdt.spark.enable(spark)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            base_file, "_encodings", lambda *_: dict.fromkeys(("code", "small", "at"), PACKED)
        )
        table = mdt.create(
            tmp_path_factory.mktemp("packed") / "t",
            SCHEMA,
            key=["id"],
            table_type="MERGE_ON_READ",
            indexes=["bitmap(code)"],
            options={"mdt.services.auto": "false"},
        )
        table.bulk_insert(rows())
        table.delete({"id": [f"k{i:06}" + "x" * 40 for i in range(0, ROWS, 13)]})
    group = pq.read_metadata(Path(table.path) / table.files()["name"][0].as_py()).row_group(0)
    stored = {
        group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)
    }
    assert all(PACKED in stored[name] for name in ("code", "small", "at"))
    mdt.read(spark, table.path).createOrReplaceTempView("packed")
    yield table
    spark.catalog.dropTempView("packed")


@pytest.mark.parametrize("count", [1, 3, 20, 200])
def test_rows_that_an_index_chose_have_their_values(
    packed: mdt.Table, spark: SparkSession, count: int
) -> None:
    for seed in range(3):
        codes = random.Random(f"{seed}:{count}").sample(range(12_011), count)
        where = f"code in ({', '.join(map(str, codes))})"
        found = spark.sql(f"select * from packed where {where}").toArrow().sort_by("id")
        assert (
            found.select(SCHEMA.names).to_pylist()
            == packed.scan(where).to_arrow().sort_by("id").to_pylist()
        )


@pytest.mark.parametrize("count", [1, 5, 60])
def test_rows_of_pages_that_parquets_own_filter_chose_have_their_values(
    packed: mdt.Table, spark: SparkSession, count: int
) -> None:
    for seed in range(3):
        ids = [
            f"'k{i:06}" + "x" * 40 + "'"
            for i in random.Random(f"{seed}:{count}").sample(range(ROWS), count)
        ]
        where = f"id in ({', '.join(ids)})"
        found = spark.sql(f"select * from packed where {where}").toArrow().sort_by("id")
        assert (
            found.select(SCHEMA.names).to_pylist()
            == packed.scan(where).to_arrow().sort_by("id").to_pylist()
        )

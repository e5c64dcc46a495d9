"""A table of many types that statements of SQL change, what its rows are said to be, and what they
are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reader import bag, hudi_table

import mdt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "city": pa.string(),
        "n": pa.int32(),
        "name": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "wall": pa.timestamp("us"),
        "price": pa.decimal128(10, 2),
        "fare": pa.float64(),
        "ok": pa.bool_(),
        "address": pa.struct({"zip": pa.int32(), "street": pa.string()}),
        "ts": pa.int64(),
    }
)
TABLE, BEFORE = "changed", "before_it"


def rows(count: int = 60) -> pa.Table:
    names = ["it's", 'say "hi"', "back\\slash", "50%_off", "straße", None, ""]
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "city": ["Oslo", "Rome", "O'Hare"][i % 3],
                "n": None if i % 7 == 3 else i % 10,
                "name": names[i % 7],
                "day": None if i % 11 == 5 else date(2024, 2, 1 + i % 29),
                "at": datetime(2024, 3, 10, i % 24, 30, tzinfo=UTC) if i % 13 else None,
                "wall": datetime(2024, 3, 10, i % 24, 30) if i % 13 else None,
                "price": None if i % 9 == 4 else Decimal(i * 125) / 100,
                "fare": [0.0, -0.0, float("nan"), 1.5, None, float("inf")][i % 6],
                "ok": [True, False, None][i % 3],
                "address": (
                    None
                    if i % 8 == 7
                    else {"zip": None if i % 8 == 6 else i, "street": f"s{i % 4}"}
                ),
                "ts": 1,
            }
            for i in range(count)
        ],
        SCHEMA,
    )


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session that knows a table with rows; it lies where :func:`path` says."""
    import mdt.spark  # and so pyspark, which takes a second

    mdt.spark.enable(spark)
    table = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        table_type="MERGE_ON_READ",
    )
    table.bulk_insert(rows())
    spark.sql(f"drop table if exists {TABLE}")
    spark.sql(f"create table {TABLE} using mdt location '{tmp_path / 't'}'")
    yield spark
    spark.sql(f"drop table {TABLE}")


def path(spark: SparkSession) -> str:
    told = spark.sql(f"describe extended {TABLE}").toArrow().to_pylist()
    return str(
        next(row["data_type"] for row in told if row["col_name"] == "Location")
    ).removeprefix("file:")


def kept(spark: SparkSession) -> pa.Table:
    """Keep the rows of now as a plain Parquet file, with a view of it, and return them."""
    found = mdt.open(path(spark)).scan().to_arrow()
    plain_copy(spark, found, Path(path(spark)).parent)
    return found


def plain_copy(spark: SparkSession, of: pa.Table, folder: Path) -> None:
    file = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(of, file)
    spark.read.parquet(str(file)).createOrReplaceTempView(BEFORE)


def expected(spark: SparkSession, values: Mapping[str, str], where: str) -> pa.Table:
    """Return what Spark says that an update leaves of the rows that were kept."""
    columns = [
        (
            f"if(coalesce({where}, false), cast({values[field.name]} as"
            f" {field.dataType.simpleString()}), `{field.name}`) `{field.name}`"
            if field.name in values
            else f"`{field.name}`"
        )
        for field in spark.table(BEFORE).schema
    ]
    return spark.sql(f"select {', '.join(columns)} from {BEFORE}").toArrow().cast(SCHEMA)


def check(spark: SparkSession, wanted: pa.Table) -> None:
    """Require that everyone reads the rows that are ``wanted``."""
    table = mdt.open(path(spark))
    found = table.scan().to_arrow()
    assert bag(found) == bag(wanted.select(SCHEMA.names))
    assert bag(hudi_table(path(spark), SCHEMA)) == bag(found)
    assert not table.check().problems


def counts(spark: SparkSession, statement: str) -> tuple[int, ...]:
    (row,) = spark.sql(statement).collect()
    return tuple(row)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Let a session have these settings meanwhile."""
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)

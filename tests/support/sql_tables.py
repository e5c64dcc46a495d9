"""Shared parts of the tests of Spark: sessions, settings, tables of cases, and a table of many
types that SQL statements change.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reader import bag, hudi_table

import mdt
from mdt.schema.names import in_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
LOCAL_BYTES = "spark.mdt.spark.local.bytes.max"
"""The setting that decides whether rows are written in tasks ("0") or in process."""
IN_TASKS = {"mdt.spark.local.bytes.max": 0}


def lines(text: str) -> list[str]:
    """Return the lines of a text, without the spaces around them."""
    return list(map(str.strip, text.strip().splitlines()))


def cases(text: str) -> list[tuple[str, ...]]:
    """Return the lines of a table of cases, the cells of each between arrows.

    >>> cases("delete from t -> 2 -> rows")
    [('delete from t', '2', 'rows')]
    """
    return [tuple(map(str.strip, line.split(" -> "))) for line in lines(text)]


def numbers(ids: Iterable[int], plus: int = 0) -> pa.Table:
    """Return rows with numbers as keys, two cities, and values that repeat after 97 keys."""
    keys = list(ids)
    cities = ["Oslo" if key % 2 else "Rome" for key in keys]
    return pa.table(
        {"id": pa.array(keys, pa.int64()), "city": cities, "v": [key % 97 + plus for key in keys]}
    )


def stored(path: Path | str, rows: pa.Table, **more: Any) -> mdt.Table:
    """Return a new table that holds ``rows``. Its key is ``id`` unless ``more`` names another."""
    table = mdt.create(path, rows.schema, **{"key": "id", **more})
    table.bulk_insert(rows)
    return table


def sound(path: Path | str) -> pa.Table:
    """Return the rows of a table. Assert that hudi-rs reads the same rows, and that a check finds
    nothing.
    """
    table = mdt.open(path)
    read = table.scan().to_arrow()
    assert bag(hudi_table(table.path, in_files(read.schema))) == bag(read)
    assert not table.check().problems
    return read


def tuples(frame: DataFrame) -> list[Any]:
    """Return the rows of a frame in a fixed order. Rows of one column are returned as
    their values.
    """
    rows = [tuple(row) if len(row) > 1 else row[0] for row in frame.collect()]
    return sorted(rows, key=str)


@pytest.fixture
def named(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that knows tables of mdt by name. The tables and streams of a test are dropped and
    stopped after it.
    """
    import mdt.spark  # and so pyspark, which takes a second

    mdt.spark.enable(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()
    for row in spark.sql("show tables").collect():
        if not row["isTemporary"]:
            spark.sql(f"drop table {row['tableName']}")


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Turn off the compilation of queries, which takes longer than running them."""
    with settings(spark, {"spark.sql.codegen.wholeStage": "false"}):
        yield


@pytest.fixture
def configured(named: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings of mdt are unset after the test."""
    yield named
    for name in named.conf.getAll:
        if name.startswith("spark.mdt."):
            named.conf.unset(name)


@pytest.fixture
def explained(configured: SparkSession) -> SparkSession:
    """A session whose scans have metrics in Spark's store."""
    configured.conf.set("spark.mdt.explain", "metrics")
    return configured


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
def sql(named: SparkSession, tmp_path: Path) -> SparkSession:
    """A session that knows a table with rows. :func:`path` returns its location."""
    table = stored(tmp_path / "t", rows(), partition_by="city", ordering="ts")
    named.sql(f"create table {TABLE} using mdt location '{table.path}'")
    return named


def path(spark: SparkSession) -> str:
    description = dict(
        map(tuple, spark.sql(f"describe extended {TABLE}").drop("comment").collect())
    )
    return str(description["Location"]).removeprefix("file:")


def kept(spark: SparkSession) -> pa.Table:
    """Save the current rows as a plain Parquet file with a view of it, and return them."""
    current = mdt.open(path(spark)).scan().to_arrow()
    plain_copy(spark, current, Path(path(spark)).parent)
    return current


def plain_copy(spark: SparkSession, of: pa.Table, folder: Path) -> None:
    file = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(of, file)
    spark.read.parquet(str(file)).createOrReplaceTempView(BEFORE)


def expected(spark: SparkSession, values: Mapping[str, str], where: str) -> pa.Table:
    """Return the rows after an update of the saved rows, computed by Spark."""
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
    """Require that all readers read the rows ``wanted``."""
    assert bag(sound(path(spark))) == bag(wanted.select(SCHEMA.names))


def counts(spark: SparkSession, statement: str) -> tuple[int, ...]:
    (row,) = spark.sql(statement).collect()
    return tuple(row)


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Give a session these settings for a while."""
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

"""Where indexes leave single rows of many files, Spark reads a copy of these rows, and nobody sees it but in time."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from reader import bag

import mdt
from mdt.engines.spark import frame as frames
from mdt.engines.spark.extracts import Extract
from mdt.engines.spark.file_index import PlannerWarning
from mdt.engines.spark.private import collect_garbage
from mdt.table import Table

ROWS = 60_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("code", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("real", pa.float64()),
        ("place", pa.struct([("zip", pa.string())])),
    ]
)  # fmt: skip
QUERIES = {
    "one column": "select name from {t} where code = 77",
    "all flat columns": "select id, code, name, price, day, at, real from {t} where code = 78",
    "count": "select count(*) from {t} where code = 79",
    "no row": "select count(*), max(name) from {t} where code = 77 and name = 'n3'",
    "aggregate": "select name, sum(price), min(at) from {t} where code in (5, 77) group by name",
    "two of one filter": "select a.name, b.price from {t} a join {t} b on a.id = b.id where a.code = 77 and b.code = 77",
    "two of other filters": "select a.name, b.real from {t} a join {t} b on a.name = b.name where a.code = 70 and b.code = 71",
    "union": "select name from {t} where code = 77 union all select cast(day as string) from {t} where code = 77",
    "union of wholes": "select * except (place) from {t} where code = 7 union all select * except (place) from {t} where code = 7",
    "scalar subquery": "select id, (select max(real) from {t} where code = 6) m from {t} where code = 5",
    "correlated": "select a.id, (select max(b.price) from {t} b where b.name = a.name and b.code = 9) m from {t} a where a.code = 8",
    "in subquery": "select id, price from {t} where code = 5 and name in (select name from {t} where code = 6)",
    "not translated": "select id from {t} where code = 12 and length(name) = 2 and rand(3) < 2",
    "window": "select id, rank() over (partition by name order by price) r from {t} where code = 3",
    "or": "select id, real from {t} where code = 5 or code = 9 and name = 'n4'",
}


def rows(numbers: range, step: int = 1) -> pa.Table:
    n = np.array(numbers, np.int64)
    order = n * step
    columns = {
        "id": [f"k{i:06}" for i in numbers],
        "code": pa.array(order * 7919 % 12_000, mask=order % 97 == 0),
        "name": [f"n{i % 5}" for i in numbers],
        "price": pa.array((order % 1000).astype(np.int32)).cast(pa.decimal128(12, 2)),
        "day": pa.array((order % 500).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(order * 1_000_003).cast(pa.timestamp("us", "UTC")),
        "real": np.where(order % 11 == 0, np.nan, order / 7),
        "place": [{"zip": f"z{i % 3}"} for i in numbers],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    options = {"mdt.max.file.bytes": 1_000_000, "mdt.durable": False, "mdt.spark.extract.rows.min": 1}
    path = tmp_path_factory.mktemp("extracts") / "table"
    made = mdt.create(path, SCHEMA, ["id"], table_type="MERGE_ON_READ", indexes=["bitmap(code)"], options=options)
    made.bulk_insert(rows(range(ROWS)))
    assert len(made.files()) > 1
    return made


@pytest.fixture
def extracts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Extract]]:
    """What was copied during a test."""
    made: list[Extract] = []
    plain = frames.extracted

    def counted(*parts: Any) -> Extract | None:
        found = plain(*parts)
        made.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(frames, "extracted", counted)
    yield made


def native(spark: SparkSession, table: Table, name: str) -> None:
    """Make a view of the live rows without any index."""
    spark.createDataFrame(table.scan().to_arrow()).createOrReplaceTempView(name)


def shown(frame: DataFrame) -> object:
    return bag(frame.select(*(sf.col(c).cast("string") for c in frame.columns)).toArrow())


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_same_rows_with_a_copy(
    spark: SparkSession, table: Table, extracts: list[Extract], name: str
) -> None:
    native(spark, table, "plain")
    mdt.read(spark, table.path).createOrReplaceTempView("ours")
    expected = shown(spark.sql(QUERIES[name].format(t="plain")))
    assert not extracts
    assert shown(spark.sql(QUERIES[name].format(t="ours"))) == expected
    assert extracts


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select place.zip from {t} where code = 77", "nested columns have no page map"),
        ("select * from {t}", "nothing is known of positions"),
        ("select count(*) from {t} where code > 50", "most rows match"),
    ],
)
def test_files_are_read_as_they_are(
    spark: SparkSession, table: Table, extracts: list[Extract], query: str, why: str
) -> None:
    mdt.read(spark, table.path).createOrReplaceTempView("ours")
    assert len(spark.sql(query.format(t="ours")).collect()) > 0
    assert not extracts, why


def test_who_asks_for_the_files_reads_the_files(spark: SparkSession, table: Table, extracts: list[Extract]) -> None:
    frame = mdt.read(spark, table.path).where("code = 77").select("_metadata.file_name").distinct()
    assert {r[0] for r in frame.collect()} <= set(table.files()["name"].to_pylist())
    assert not extracts


def test_a_copy_holds_the_columns_of_all_occurrences(
    spark: SparkSession, table: Table, extracts: list[Extract]
) -> None:
    ours = mdt.read(spark, table.path).where("code = 77")
    both = ours.select("name").unionAll(ours.select(sf.col("day").cast("string")))
    assert sorted(r[0] for r in both.collect()) == sorted(
        str(v) for c in ("name", "day") for v in table.scan("code = 77").to_arrow()[c].to_pylist()
    )
    assert len(extracts) == 1


def test_few_rows_are_read_from_the_files(
    spark: SparkSession, table: Table, extracts: list[Extract], tmp_path: Path
) -> None:
    small = mdt.create(tmp_path / "t", SCHEMA, ["id"], indexes=["bitmap(code)"], options={"mdt.durable": False})
    small.insert(rows(range(2000)))
    assert mdt.read(spark, small.path).where("code = 77").count() == small.scan("code = 77").count()
    assert not extracts


def test_dirty_files_and_log_files_keep_their_live_rows(
    spark: SparkSession, extracts: list[Extract], tmp_path: Path
) -> None:
    options = {"mdt.max.file.bytes": 1_000_000, "mdt.durable": False, "mdt.spark.extract.rows.min": 1}
    made = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], table_type="MERGE_ON_READ", indexes=["bitmap(code)"], options=options
    )
    made.bulk_insert(rows(range(ROWS)))
    made.upsert(rows(range(0, ROWS // 3, 7), 3))
    made.delete(rows(range(500)).select(["id"]))
    native(spark, made, "plain")
    mdt.read(spark, made.path).createOrReplaceTempView("ours")
    assert (made.snapshot().dead_rows > 0).any()
    for name in ("all flat columns", "count", "two of other filters", "or", "scalar subquery"):
        assert shown(spark.sql(QUERIES[name].format(t="ours"))) == shown(spark.sql(QUERIES[name].format(t="plain"))), (
            name
        )
    assert extracts


def test_each_action_sees_the_newest_rows(spark: SparkSession, extracts: list[Extract], tmp_path: Path) -> None:
    options = {"mdt.max.file.bytes": 1_000_000, "mdt.durable": False, "mdt.spark.extract.rows.min": 1}
    made = mdt.create(tmp_path / "t", SCHEMA, ["id"], indexes=["bitmap(code)"], options=options)
    made.bulk_insert(rows(range(ROWS)))
    frame = mdt.read(spark, made.path)
    query = "select count(*) from {f} where code = 77"
    before = spark.sql(query, f=frame).collect()[0][0]
    made.delete(made.scan("code = 77", columns=["id"]).to_arrow().slice(0, 3))
    assert spark.sql(query, f=frame).collect()[0][0] == before - 3
    assert extracts


def test_copies_are_deleted_with_their_queries(
    spark: SparkSession, table: Table, extracts: list[Extract], tmp_path: Path
) -> None:
    spark.conf.set("spark.mdt.scratch", str(tmp_path))
    try:
        frame = mdt.read(spark, table.path)
        assert frame.where("code = 77").select("name").collect()
        assert len(list(tmp_path.rglob("rows-*.parquet"))) == 1

        for _ in range(50):
            gc.collect()
            collect_garbage(spark)
            frame.where("code = -1").collect()  # a call that tells what is gone
            if not list(tmp_path.rglob("rows-*.parquet")):
                break
            time.sleep(0.1)
        assert not list(tmp_path.rglob("rows-*.parquet"))
    finally:
        spark.conf.unset("spark.mdt.scratch")


def test_a_copy_that_fails_costs_time_only(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Extract:
        raise OSError("the scratch directory is full")

    monkeypatch.setattr(frames, "extracted", broken)
    with pytest.warns(PlannerWarning, match="the scratch directory is full"):
        found = mdt.read(spark, table.path).where("code = 77").count()
    assert found == table.scan("code = 77").count()

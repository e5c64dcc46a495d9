"""ORDER BY … LIMIT, LIMIT, and count, min and max: same rows, few files or none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from executed_plans import nodes, run
from pyspark.sql import DataFrame, SparkSession
from sql_tables import settings

import mdt
import mdt.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("ok", pa.bool_()),
    ]
)
FILES, ROWS = 8, 40


def rows(file: int) -> pa.Table:
    ids = list(range(file * ROWS, (file + 1) * ROWS))
    long = "x" * 70  # longer than bounds are
    columns = [
        ids,
        [20_000 + file] * ROWS,
        [f"{long}{file}é{i}" if i % 2 else f"n{file}{i % 7}" for i in ids],
        ids,
        [float("nan") if file == 7 and i % 5 == 0 else -0.0 if i == 0 else float(i) for i in ids],
        [None if i % 6 == 0 else i for i in ids],
        [i % 3 == 0 for i in ids],
    ]
    return pa.table(
        [pa.array(v, t) for v, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mdt.Table:
    """Eight files in the order of every column; two rows of the last and one of the third have
    died.
    """
    table = mdt.create(
        tmp_path_factory.mktemp("first") / "t",
        SCHEMA,
        key=["id"],
        options={"mdt.services.auto": "false"},
    )
    for file in range(FILES):
        table.bulk_insert(rows(file))
    table.delete({"id": [FILES * ROWS - 1, FILES * ROWS - 5, 2 * ROWS + 1]})
    return table


@pytest.fixture(scope="module")
def ordered(spark: SparkSession, table: mdt.Table) -> Iterator[SparkSession]:
    mdt.spark.enable(spark)
    mdt.read(spark, table.path).createOrReplaceTempView("ordered")
    spark.createDataFrame(table.scan().to_arrow()).createOrReplaceTempView("plain")
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in ("ordered", "plain"):
        spark.catalog.dropTempView(name)


TOP = {
    "id": 1,
    "id desc": 1,
    "day desc, id": 1,
    "day, id desc": 1,
    "price desc": 1,
    "price": 1,
    "at desc nulls last": 1,
    "at desc nulls first, id": FILES,
    "at nulls last": 1,
    "fare, id": 1,
    "fare desc, id": 2,
    "name, id": FILES,
    "name desc, id": FILES,
    "ok, id": FILES,
    "id + 1": FILES,
}


@pytest.mark.parametrize("order", TOP)
def test_the_first_rows_are_those_of_all_rows(ordered: SparkSession, order: str) -> None:
    query = f"select id, cast(fare as string) f, name from {{}} order by {order} limit 7"
    found, files = run(ordered.sql(query.format("ordered")))
    assert found == ordered.sql(query.format("plain")).collect()
    assert sum(files) <= TOP[order]


QUERIES = {
    "offset": ("select id from {} order by id desc limit 5 offset 45", 2),
    "names": ("select i + 1 from (select id i, day d from {}) order by d desc, i limit 3", 1),
    "filter of whole files": (
        "select id from {} where day >= date'1970-01-01' + 20004 order by id limit 3",
        1,
    ),
    "filter of rows": ("select id from {} where id > 100 and id % 7 = 3 order by id limit 3", 6),
    "filter that leaves some files as wholes": (
        "select id from {} where id > 100 order by id limit 43",
        3,
    ),
    "in a subquery": (
        "select count(*) from (select * from {} order by id limit 12) where name > 'a'",
        1,
    ),
    "joined": (
        (
            "select a.id from (select id from {} order by id desc limit 3) a join plain b on a.id ="
            " b.id order by 1"
        ),
        1,
    ),
    "all rows": ("select id from {} order by id limit 100000", FILES),
    "none": ("select id from {} order by id limit 0", 0),
}


@pytest.mark.parametrize("which", QUERIES)
def test_queries_around_first_rows(ordered: SparkSession, which: str) -> None:
    query, most = QUERIES[which]
    found, files = run(ordered.sql(query.format("ordered")))
    assert found == ordered.sql(query.format("plain")).collect()
    assert sum(files) <= most


@pytest.mark.parametrize(
    ("query", "number", "most"),
    [
        ("select * from ordered limit 10", 10, 1),
        ("select id + 1 from ordered limit 100", 100, 3),
        ("select id from ordered where day = date'1970-01-01' + 20002 limit 10", 10, 1),
        ("select id from ordered where id > 50 limit 10", 10, 1),
        ("select id from ordered where id % 2 = 0 limit 10", 10, FILES),
        ("select count(day) from (select * from ordered limit 41)", 1, 2),
        ("select * from ordered limit 1000", FILES * ROWS - 3, FILES),
    ],
)
def test_a_limit_reads_files_with_enough_rows(
    ordered: SparkSession, query: str, number: int, most: int
) -> None:
    found, files = run(ordered.sql(query))
    assert len(found) == number and sum(files) <= most
    if "count" in query:
        assert found[0][0] == 41


TOTALS = {
    "count(*)": True,
    "count(1), count(id), count(day)": True,
    "min(day), max(price), max(at)": False,
    "min(id), min(price), min(ok), max(ok)": True,
    "min(name)": True,
    "max(name)": False,
    "max(id)": False,
    "count(at)": False,
    "max(fare)": False,
    "sum(id)": False,
    "count(distinct day)": False,
    "count(*) + min(id) as both": True,
    "count(*) filter (where id > 3)": False,
    "min(day) = max(day) as same": False,
    "count(id + 1)": False,
    "count(null)": True,
    "min(id), 'c' as c": True,
}


@pytest.mark.parametrize("what", TOTALS)
def test_totals_are_those_of_the_rows(ordered: SparkSession, what: str) -> None:
    frame = ordered.sql(f"select {what} from ordered")
    found, files = run(frame)
    expected = ordered.sql(f"select {what} from plain")
    assert str(found) == str(expected.collect()) and frame.schema.names == expected.schema.names
    assert (not files) == TOTALS[what]


@pytest.mark.parametrize(
    ("where", "is_told"),
    [
        ("day > date'1970-01-01' + 20003", True),
        ("id < 80", True),
        ("id < 81", False),
        ("name is not null and id >= 120", True),
        ("at > timestamp_micros(100)", False),
        ("id in (1, 2)", False),
        ("id < 0", True),
        ("id % 2 = 0", False),
        ("rand() < 0.5 or id >= 0", True),
        ("rand() < 0.5 and id < 0", True),
    ],
)
def test_totals_of_conditions_that_take_whole_files(
    ordered: SparkSession, where: str, is_told: bool
) -> None:
    query = "select count(*), min(id) from {} where " + where
    found, files = run(ordered.sql(query.format("ordered")))
    assert found == ordered.sql(query.format("plain")).collect() and (not files) == is_told


def test_a_count_is_of_the_version_that_the_rest_of_the_query_reads(
    ordered: SparkSession, tmp_path: Path
) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    table.bulk_insert(rows(0))
    frame = mdt.read(ordered, table.path)
    frame.createOrReplaceTempView("growing")
    assert frame.count() == ROWS
    both = ordered.sql("select (select count(*) from growing) n, count(name) m from growing")
    table.bulk_insert(rows(1))
    assert frame.count() == 2 * ROWS and mdt.read(ordered, table.path, as_of=1).count() == ROWS
    assert both.collect()[0] in [(n, n) for n in (ROWS, 2 * ROWS)]
    ordered.catalog.dropTempView("growing")


def test_totals_ask_python_and_run_no_job(ordered: SparkSession) -> None:
    frame = ordered.sql("select count(*), min(id) from ordered")
    frame.collect()
    assert [node.nodeName() for node in nodes(frame)] == ["LocalTableScan"]


@pytest.mark.parametrize("what", ["none", "joins"])
def test_a_session_can_do_without(ordered: SparkSession, table: mdt.Table, what: str) -> None:
    with settings(ordered, {"spark.mdt.optimize": what}):
        frame = mdt.read(ordered, table.path)
        read: list[Any] = [run(one)[1] for one in (frame.orderBy("id").limit(3), counted(frame))]
    assert [sum(files) for files in read] == [FILES, FILES]


def counted(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("count(*)")


def test_an_unknown_name_is_refused(ordered: SparkSession, table: mdt.Table) -> None:
    with (
        settings(ordered, {"spark.mdt.optimize": "tops"}),
        pytest.raises(mdt.errors.Invalid, match="top"),
    ):
        mdt.read(ordered, table.path)


@pytest.mark.parametrize("optimize", ["all", "top", "top, totals"])
def test_rows_are_counted_that_fulfil_every_condition(
    ordered: SparkSession, table: mdt.Table, optimize: str
) -> None:
    with settings(ordered, {"spark.mdt.optimize": optimize}):
        frame = mdt.read(ordered, table.path)
    query = "select id from {t} where id >= (select max(id) - 9 from {t}) limit 5"
    assert len(ordered.sql(query, t=frame).collect()) == 5


@pytest.mark.parametrize("order", ["x desc", "x", "x desc nulls first", "x nulls last"])
def test_the_first_rows_may_be_infinite_or_no_numbers(
    ordered: SparkSession, tmp_path: Path, order: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32())])
    table = mdt.create(tmp_path / "t", schema, key=["id"], options={"mdt.small.file.bytes": 0})
    files = [
        [math.inf, 1.0],
        [math.inf],
        [-math.inf],
        [None, 1.5],
        [math.nan],
        [-math.inf, math.nan],
    ]
    for file, found in enumerate(files):
        ids = [10 * file + i for i in range(len(found))]
        table.insert(
            pa.table(
                [ids, pa.array(found, pa.float64()), pa.array(found, pa.float32())], schema=schema
            )
        )
    plain = ordered.createDataFrame(table.scan().to_arrow())
    for query in (f"select x from {{t}} order by {order} limit {n}" for n in (1, 2, 3, 6)):
        found = ordered.sql(query, t=mdt.read(ordered, table.path)).collect()
        assert str(found) == str(ordered.sql(query, t=plain).collect()), query
        narrow = query.replace("x", "y")
        assert str(ordered.sql(narrow, t=mdt.read(ordered, table.path)).collect()) == str(
            ordered.sql(narrow, t=plain).collect()
        )

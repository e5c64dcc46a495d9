"""The values of one side of a join prune the files of the other: same rows, fewer files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from executed_plans import nodes, run
from pyspark.sql import SparkSession
from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark import private

SALES = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.int32()),
        ("city", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("note", pa.string()),
    ]
)
DAYS = pa.schema([("day", pa.int32()), ("name", pa.string()), ("big", pa.int64())])
FILES, ROWS = 12, 50
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
ADAPTIVE = "spark.sql.adaptive.enabled"


def sales(day: int) -> pa.Table:
    ids = range(day * ROWS, (day + 1) * ROWS)
    columns = [
        list(ids),
        [day] * ROWS,
        [f"c{i % 7}" for i in ids],
        [None if i % 9 == 0 else i for i in ids],
        ["n"] * ROWS,
    ]
    return pa.table(
        [pa.array(values, type) for values, type in zip(columns, SALES.types, strict=True)],
        schema=SALES,
    )


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with views ``sales``, a file for each day and one row of it in a log, and
    ``days``.
    """
    root: Path = tmp_path_factory.mktemp("joined")
    mdt.spark.enable(spark)
    table = mdt.create(
        root / "sales",
        SALES,
        key=["id"],
        table_type="MERGE_ON_READ",
        indexes=["bitmap(city)"],
        options={"mdt.services.auto": "false"},
    )
    for day in range(FILES):
        table.bulk_insert(sales(day))
    table.build_indexes()
    table.upsert(sales(3).slice(0, 1))
    days = mdt.create(root / "days", DAYS, key=["day"])
    numbers = list(range(FILES + 2))
    days.insert(pa.table([numbers, [f"d{i}" for i in numbers], numbers], schema=DAYS))
    for name in ("sales", "days"):
        mdt.read(spark, root / name).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in ("sales", "days"):
        spark.catalog.dropTempView(name)


PRUNED = {
    "inner": (
        (
            "select s.id, d.name from sales s join days d on s.day = d.day where d.name in ('d2',"
            " 'd5')"
        ),
        2,
    ),
    "inner, other order": (
        "select s.id, d.name from days d join sales s on s.day = d.day where d.name = 'd2'",
        1,
    ),
    "in": ("select id from sales where day in (select day from days where name = 'd7')", 1),
    "exists": (
        (
            "select id from sales s where exists (select 1 from days d where d.day = s.day and"
            " d.name = 'd7')"
        ),
        1,
    ),
    "cast": ("select s.id from sales s join days d on s.day = d.big where d.name = 'd11'", 1),
    "below an aggregate": (
        (
            "select s.day, n from (select day, count(note) n from sales group by day) s join days d"
            " on s.day = d.day where d.name = 'd4'"
        ),
        1,
    ),
    "below a join": (
        (
            "select s.id from sales s left join days e on s.day = e.day join days d on s.day ="
            " d.day where d.name = 'd4'"
        ),
        1,
    ),
    "another name": (
        (
            "select x from (select id, day x from sales where id >= 0) join days on x = day where"
            " name = 'd1'"
        ),
        1,
    ),
    "nothing": ("select s.id from sales s join days d on s.day = d.day where d.name = 'd13'", 0),
    "values": ("select s.id from sales s join (values (3), (4)) v(day) on s.day = v.day", 3),
    "a scalar": ("select id from sales where day = (select max(day) - 2 from days)", 1),
    "a bound": (
        "select id from sales where day > (select max(day) - 4 from days where name < 'd2')",
        2,
    ),
}
WHOLE = {
    "left": "select s.id, d.name from sales s left join days d on s.day = d.day and d.name = 'd2'",
    "anti": (
        "select id from sales s where not exists (select 1 from days d where d.day = s.day and"
        " d.name = 'd7')"
    ),
    "full": (
        "select s.id, d.name from sales s full join (select * from days where name = 'd1') d on"
        " s.day = d.day"
    ),
    "no filter": "select s.id from sales s join days d on s.day = d.day",
    "a window": (
        "select id, r from (select id, day, rank() over (order by id) r from sales) s join days d"
        " on s.day = d.day where name = 'd3'"
    ),
    "a limit": (
        "select id from (select * from sales order by note, id limit 70) s join days d on s.day ="
        " d.day where name = 'd1'"
    ),
    "a number of each row": (
        "select x from (select monotonically_increasing_id() x, day from sales) s join days d on"
        " s.day = d.day where name = 'd1'"
    ),
}


def bag(rows: list[object]) -> list[object]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("which", PRUNED)
def test_only_files_with_values_of_the_other_side_are_read(
    joined: SparkSession, which: str, adaptive: str
) -> None:
    query, files = PRUNED[which]
    with settings(joined, {ADAPTIVE: adaptive}):
        found, read = run(joined.sql(query))
        with settings(joined, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}):
            expected = joined.sql(query).collect()
    assert bag(found) == bag(expected)
    assert bool(found) == (files > 0)
    assert max(read) <= max(files, 1)


@pytest.mark.parametrize("which", WHOLE)
def test_nothing_is_pruned_where_rows_without_a_match_count(
    joined: SparkSession, which: str
) -> None:
    found, read = run(joined.sql(WHOLE[which]))
    with settings(joined, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}):
        assert bag(found) == bag(joined.sql(WHOLE[which]).collect())
    assert found and max(read) == FILES + 1


def test_without_a_broadcast_nobody_is_asked(joined: SparkSession) -> None:
    with settings(joined, {BROADCAST: "-1"}):
        found, read = run(joined.sql(PRUNED["inner"][0]))
    assert len(found) == 2 * ROWS and max(read) == FILES + 1


def test_an_index_finds_the_rows_of_the_values(joined: SparkSession) -> None:
    frame = joined.sql("select s.id from sales s join (values ('c3')) v(city) on s.city = v.city")
    rows = frame.collect()
    assert {row["id"] % 7 for row in rows} == {3}
    (scan,) = [node for node in nodes(frame) if node.nodeName().startswith("Scan parquet")]
    assert scan.metrics().apply("numOutputRows").value() == len(rows)


def test_many_values_are_told_as_their_range(joined: SparkSession) -> None:
    query = (
        "select /*+ broadcast(r) */ s.id from sales s join (select cast(id + 300 as int) day from"
        " range(20000)) r on s.day = r.day where r.day > 2"
    )
    assert run(joined.sql(query)) == ([], [0])


def test_branches_that_ask_different_sides_are_not_taken_for_each_other(
    joined: SparkSession,
) -> None:
    one = (
        "select s.note, count(*) n from sales s join days d on s.day = d.day where d.name = '{}'"
        " group by s.note"
    )
    query = (
        f"select n from ({one.format('d1')}) union all select n from ({one.format('d2')}) union all"
        " select count(*) from sales"
    )
    assert sorted(row[0] for row in joined.sql(query).collect()) == [ROWS, ROWS, FILES * ROWS]


def test_two_joins_prune_one_scan(joined: SparkSession) -> None:
    query = (
        "select s.id from sales s join days d on s.day = d.day join (values ('c1'), ('c2')) v(city)"
        " on s.city = v.city where d.name = 'd6'"
    )
    rows, read = run(joined.sql(query))
    assert {(row["id"] // ROWS, row["id"] % 7 in (1, 2)) for row in rows} == {(6, True)} and max(
        read
    ) == 1


def test_a_session_can_do_without(joined: SparkSession, tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SALES, key=["id"])
    for day in range(3):
        table.bulk_insert(sales(day))
    query = "select count(t.note) n from {t} t join days d on t.day = d.day where d.name = 'd1'"
    with settings(joined, {"spark.mdt.optimize": "none"}):
        rows, read = run(joined.sql(query, t=mdt.read(joined, table.path)))
    assert rows[0]["n"] == ROWS and max(read) == 3
    with settings(joined, {"spark.mdt.optimize": "top, joins"}):
        assert max(run(joined.sql(query, t=mdt.read(joined, table.path)))[1]) == 1


def test_a_question_about_an_aggregate_stays_above_it(joined: SparkSession) -> None:
    query = (
        "select s.m from (select day, max(day) m from sales group by day) s join days d on s.m ="
        " d.day where d.name = 'd3'"
    )
    with settings(joined, {"spark.sql.planChangeValidation": "true"}):
        assert [row["m"] for row in joined.sql(query).collect()] == [3]
        assert {
            which: run(joined.sql(query))[1][0]
            for which, (query, _) in PRUNED.items()
            if which == "inner"
        } == {"inner": 2}


def test_long_values_are_told_as_their_range(joined: SparkSession) -> None:
    query = (
        "select /*+ broadcast(r) */ s.id from sales s join (select repeat(concat('c', id), 3000)"
        " city from range(200)) r on s.city = r.city"
    )
    assert run(joined.sql(query))[0] == []


def test_a_bloom_filter_of_sparks_own_is_not_told(joined: SparkSession) -> None:
    query = "select s.id from sales s join days d on s.day = d.day where d.name in ('d2', 'd5')"
    with settings(
        joined,
        {
            "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
            BROADCAST: "-1",
            "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
        },
    ):
        assert len(joined.sql(query).collect()) == 2 * ROWS


def test_one_file_of_few_rows_asks_nothing(joined: SparkSession) -> None:
    """It is read before an answer has come."""
    query = (
        "select /*+ broadcast({0}) */ s.id, d.name from days d join sales s on s.day = d.day"
        " where {1}"
    )
    for side, condition, asks in (("d", "d.name = 'd2'", True), ("s", "s.id < 60", False)):
        frame = joined.sql(query.format(side, condition))
        plan = private.java_frame(frame).queryExecution().optimizedPlan().toString()
        assert ("dynamicpruning" in plan) == asks, plan

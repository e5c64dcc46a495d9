"""``spark.mdt.explain=metrics``: the figures of plans as metrics in Spark's own store, from which
its UI reads.
"""

import pyarrow as pa
import pytest
from plan_metrics import figures
from sql_tables import settings
from texts import columns

import mdt
import mdt.spark

SCHEMA = columns("id int64, city string, status string")


def rows(ids):
    cities = ["Oslo", "Rome", "Paris"]
    return pa.table(
        [list(ids), [cities[i % 3] for i in ids], [f"s{i % 50}" for i in ids]], schema=SCHEMA
    )


@pytest.fixture
def told(spark):
    """A session that asks for metrics."""
    mdt.spark.enable(spark)
    spark.conf.set("spark.mdt.explain", "metrics")
    yield spark
    spark.conf.unset("spark.mdt.explain")


@pytest.fixture
def table(tmp_path):
    table = mdt.create(
        tmp_path / "t", SCHEMA, key=["id"], partition_by=["city"], indexes=["bitmap(status)"]
    )
    table.bulk_insert(rows(range(3000)))
    table.bulk_insert(rows(range(3000, 3300)))
    return table


def number(text):
    return int(text.replace(",", ""))


def test_a_plan_tells_what_it_reads_what_each_index_took_out_and_how_long_it_took(told, table):
    where = "city = 'Oslo' and status = 's7'"
    (found,) = figures(told, mdt.read(told, table.path).where(where))
    plan = table.scan(where).explain()
    assert number(found["files of the table"]) == plan.files_total == 6
    assert number(found["files read"]) == plan.files_read == 2
    assert number(found["row groups of the table"]) == plan.row_groups_total
    assert number(found["row groups read"]) == plan.row_groups_read
    assert number(found["rows of the table"]) == plan.rows_total == 3300
    assert number(found["rows that may match"]) == plan.rows_read == 22
    assert found["bytes of the table"].endswith("KiB") and found["bytes read"].endswith("KiB")
    assert (
        found["files pruned by column_stats"] == "4"
        and found["files pruned by bitmap/1(status)"] == "0"
    )
    assert found["time to plan the scan"].endswith((" ms", " s"))
    assert number(found["not found in caches"]) > 0
    assert not any("s7" in name or "Oslo" in name for name in found)
    (again,) = figures(told, mdt.read(told, table.path))
    assert again["files read"] == "6" and not any("pruned by" in name for name in again)


def test_every_scan_of_a_query_has_figures_of_its_own(told, table):
    mdt.read(told, table.path).createOrReplaceTempView("explained")
    joined = told.sql("""
        select /*+ broadcast(b) */ a.id from explained a join explained b on a.status = b.status
        where a.id between 0 and 99 and b.city = 'Rome' and b.id > (select max(id) - 10 from explained where status = 's1')
    """)
    found = figures(told, joined)
    assert len(found) == 3 and all(one["files of the table"] == "6" for one in found)
    assert sorted(one["files read"] for one in found) == ["1", "3", "6"], (
        "the side that is broadcast prunes the other"
    )
    named = told.read.format("mdt").load(table.path).where("city = 'Oslo'")
    assert [one["files read"] for one in figures(told, named.groupBy("status").count())] == ["2"]
    assert [one["files read"] for one in figures(told, named.union(named))] in (["2"], ["2", "2"])


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.adaptive.enabled",
        "spark.sql.parquet.enableVectorizedReader",
        "spark.sql.codegen.wholeStage",
    ],
)
def test_rows_are_the_same_however_spark_runs_the_query(told, table, setting):
    table.delete({"id": [1, 7], "city": ["Rome", "Rome"]})
    where = "status in ('s1', 's7') and id < 3100"
    expected = sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist())
    with settings(told, {setting: "false"}):
        frame = mdt.read(told, table.path).where(where)
        (found,) = figures(told, frame)
        assert number(found["files of the table"]) == table.scan(where).explain().files_total
        assert number(found["rows that may match"]) >= len(expected)
        assert sorted(row["id"] for row in frame.collect()) == expected
        assert frame.groupBy("city").count().count() == 3 and frame.count() == len(expected)


def test_who_does_not_ask_for_metrics_has_the_plan_of_spark(told, table):
    where = "status = 's7'"
    explained = mdt.read(told, table.path).where(where)
    assert len(figures(told, explained)) == 1
    told.conf.set("spark.mdt.explain", "log")
    plain = mdt.read(told, table.path).where(where)
    assert figures(told, plain) == []
    told.conf.set("spark.mdt.explain", "log, metrics")
    assert len(figures(told, mdt.read(told, table.path).where(where))) == 1
    assert figures(told, mdt.read(told, table.path).where("id < 0")) == [], "no file is read"
    assert explained.collect() == plain.collect()


def test_a_table_that_was_read_before_goes_by_the_setting_of_now(told, table):
    told.sql("drop table if exists read_before")
    told.sql(f"create table read_before using mdt location '{table.path}'")
    view = mdt.read(told, table.path)
    for setting, count in (("metrics", 1), ("off", 0), ("metrics", 1)):
        told.conf.set("spark.mdt.explain", setting)
        for frame in (told.table("read_before"), view):
            assert len(figures(told, frame.where("status = 's7'"))) == count
    told.sql("drop table read_before")

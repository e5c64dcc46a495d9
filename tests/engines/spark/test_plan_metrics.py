"""``spark.mdt.explain=metrics``: the figures of plans are metrics in Spark's own status store, from
which its UI reads.
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
def metrics_session(spark):
    """A session with ``spark.mdt.explain=metrics``."""
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


def test_metrics_of_a_plan_have_files_read_files_pruned_by_each_index_and_the_time(
    metrics_session, table
):
    where = "city = 'Oslo' and status = 's7'"
    (metrics,) = figures(metrics_session, mdt.read(metrics_session, table.path).where(where))
    plan = table.scan(where).explain()
    assert number(metrics["files of the table"]) == plan.files_total == 6
    assert number(metrics["files read"]) == plan.files_read == 2
    assert number(metrics["row groups of the table"]) == plan.row_groups_total
    assert number(metrics["row groups read"]) == plan.row_groups_read
    assert number(metrics["rows of the table"]) == plan.rows_total == 3300
    assert number(metrics["rows that may match"]) == plan.rows_read == 22
    assert metrics["bytes of the table"].endswith("KiB") and metrics["bytes read"].endswith("KiB")
    assert (
        metrics["files pruned by column_stats"] == "4"
        and metrics["files pruned by bitmap/1(status)"] == "0"
    )
    assert metrics["time to plan the scan"].endswith((" ms", " s"))
    assert number(metrics["not found in caches"]) > 0
    assert not any("s7" in name or "Oslo" in name for name in metrics)
    (unfiltered,) = figures(metrics_session, mdt.read(metrics_session, table.path))
    assert unfiltered["files read"] == "6" and not any("pruned by" in name for name in unfiltered)


def test_every_scan_of_a_query_has_its_own_metrics(metrics_session, table):
    mdt.read(metrics_session, table.path).createOrReplaceTempView("explained")
    joined = metrics_session.sql("""
        select /*+ broadcast(b) */ a.id from explained a join explained b on a.status = b.status
        where a.id between 0 and 99 and b.city = 'Rome' and b.id > (select max(id) - 10 from explained where status = 's1')
    """)
    metrics = figures(metrics_session, joined)
    assert len(metrics) == 3 and all(
        scan_metrics["files of the table"] == "6" for scan_metrics in metrics
    )
    assert sorted(scan_metrics["files read"] for scan_metrics in metrics) == ["1", "3", "6"], (
        "the broadcast side prunes the other side"
    )
    by_path = metrics_session.read.format("mdt").load(table.path).where("city = 'Oslo'")
    assert [
        scan_metrics["files read"]
        for scan_metrics in figures(metrics_session, by_path.groupBy("status").count())
    ] == ["2"]
    assert [
        scan_metrics["files read"]
        for scan_metrics in figures(metrics_session, by_path.union(by_path))
    ] in (["2"], ["2", "2"])


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.adaptive.enabled",
        "spark.sql.parquet.enableVectorizedReader",
        "spark.sql.codegen.wholeStage",
    ],
)
def test_metrics_do_not_change_the_rows_however_spark_runs_the_query(
    metrics_session, table, setting
):
    table.delete({"id": [1, 7], "city": ["Rome", "Rome"]})
    where = "status in ('s1', 's7') and id < 3100"
    expected = sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist())
    with settings(metrics_session, {setting: "false"}):
        frame = mdt.read(metrics_session, table.path).where(where)
        (metrics,) = figures(metrics_session, frame)
        assert number(metrics["files of the table"]) == table.scan(where).explain().files_total
        assert number(metrics["rows that may match"]) >= len(expected)
        assert sorted(row["id"] for row in frame.collect()) == expected
        assert frame.groupBy("city").count().count() == 3 and frame.count() == len(expected)


def test_plans_have_explained_scans_only_if_metrics_are_set(metrics_session, table):
    where = "status = 's7'"
    explained = mdt.read(metrics_session, table.path).where(where)
    assert len(figures(metrics_session, explained)) == 1
    metrics_session.conf.set("spark.mdt.explain", "log")
    plain = mdt.read(metrics_session, table.path).where(where)
    assert figures(metrics_session, plain) == []
    metrics_session.conf.set("spark.mdt.explain", "log, metrics")
    assert len(figures(metrics_session, mdt.read(metrics_session, table.path).where(where))) == 1
    assert figures(metrics_session, mdt.read(metrics_session, table.path).where("id < 0")) == [], (
        "no file is read"
    )
    assert explained.collect() == plain.collect()


def test_a_table_read_before_follows_a_changed_setting(metrics_session, table):
    metrics_session.sql("drop table if exists read_before")
    metrics_session.sql(f"create table read_before using mdt location '{table.path}'")
    view = mdt.read(metrics_session, table.path)
    for setting, count in (("metrics", 1), ("off", 0), ("metrics", 1)):
        metrics_session.conf.set("spark.mdt.explain", setting)
        for frame in (metrics_session.table("read_before"), view):
            assert len(figures(metrics_session, frame.where("status = 's7'"))) == count
    metrics_session.sql("drop table read_before")

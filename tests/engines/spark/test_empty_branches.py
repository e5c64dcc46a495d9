"""A relation without files to read is removed from the plan, each query is planned once, and
results do not change.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reader import bag
from sql_tables import settings
from texts import columns
from trees import create

import mdt
from mdt.engines.spark import frame as frames
from mdt.engines.spark.file_index import Lister, PlannerWarning, relation
from mdt.engines.spark.private import java_frame

SCHEMA = columns("id int64, part int64, x int64")


def rows(ids, version=0):
    numbers = np.array(ids)
    return pa.table([numbers, numbers // 10, numbers % 7 + version], schema=SCHEMA)


def new_table(path, **more):
    return create(path, SCHEMA, partition_by=["part"], key_index="record", **more)


def nodes(query):
    """Return the number of unions, joins and file scans in the optimized plan of a query,
    subqueries included.
    """
    text = java_frame(query).queryExecution().optimizedPlan().toString()
    return {
        "union": text.count("Union"),
        "join": text.count("Join"),
        "scan": text.count(" parquet\n"),
    }


PLAIN = {"union": 0, "join": 0, "scan": 1}
NOTHING = {"union": 0, "join": 0, "scan": 0}

QUERIES = [
    "select * from {t}",
    "select count(*), sum(x), max(id) from {t}",
    "select part, count(*) from {t} group by part",
    "select part, x, count(*) from {t} group by cube (part, x)",
    "select count(*), sum(id) from {t} where part = 0",
    "select count(distinct x) from {t} where id >= 10",
    "select id from {t} where id = 3 or id = 25",
    "select id, x from {t} where id > 1000",
    "select a.id, b.x from {t} a join {t} b on a.id = b.x",
    "select a.id, b.x from {t} a left join {t} b on a.id = b.x and b.part = 0",
    "select a.id, b.x from {t} a full join {t} b on a.id = b.x + 20 and a.part = 2 and b.part = 1",
    "select id from {t} a where not exists (select 1 from {t} b where b.x = a.id and b.part = 0)",
    "select id from {t} where id not in (select x from {t} where part = 0)",
    "select id from {t} where x = (select max(x) from {t} where part = 0)",
    "select (select max(id) from {t} where part = 0), (select count(*) from {t} where id > 1000)",
    (
        "select id from {t} a where x > (select avg(x) from {t} b where b.part = a.part and b.part"
        " = 0)"
    ),
    "select id from {t} where part in (select max(part) from {t})",
    (
        "with w as (select *, rand() as r from {t} where part = 0) select a.id from w a join w b on"
        " a.r = b.r"
    ),
    "select id from {t} where part = 0 union all select x from {t} where part = 1",
    "select id from {t} where part = 1 except select x from {t}",
    "select id, row_number() over (partition by part order by id) from {t}",
    "select id from {t} order by id desc limit 3 offset 1",
    "select /*+ repartition(2) */ id from {t} where part = 0",
    (
        "select part, collect_set(x)[0] is null from {t} where part = 0 group by part having"
        " count(*) > 2"
    ),
    "select id, y from {t} lateral view explode(array(x, part)) as y where part = 0",
    "select ID from {t} where PART = 0 and Id > 2",
    "select a.id, (select max(b.x) from {t} b where b.part = a.part) from {t} a",
    (
        "select a.id, exists (select 1 from {t} b where b.id = a.x + 8), a.x in (select part from"
        " {t} b where b.id < a.id) from {t} a"
    ),
    (
        "select part, s from (select distinct part from {t}) a, lateral (select sum(x) s from {t} b"
        " where b.part < a.part)"
    ),
    (
        "select id + x from {t} where rand() >= 0 and id < 7 and x <= (select max(x) from {t} where"
        " part = 1)"
    ),
    "select * from {t} where x > (select min(x) from {t})",
    "select count(*) from (select x from {t} union all select part from {t})",
]


def fresh(table):
    """Change the table and return its new rows. The next functions do the same."""
    table.upsert(rows(range(30)))
    return rows(range(30))


def partly_dirty(table):
    fresh(table)
    table.upsert(rows(range(5), 1))
    return pa.concat_tables([rows(range(5), 1), rows(range(5, 30))])


def all_dirty(table):
    fresh(table)
    table.upsert(rows(range(0, 30, 3), 1))
    return pa.concat_tables([rows(range(n, 30, 3), n == 0) for n in range(3)])


def emptied(table):
    partly_dirty(table)
    table.delete(rows(range(30)))
    return SCHEMA.empty_table()


def untouched(table):
    return SCHEMA.empty_table()


@pytest.mark.parametrize("state", [untouched, fresh, partly_dirty, all_dirty, emptied])
def test_queries_return_the_rows_of_a_plain_view_in_every_state_of_a_table(spark, tmp_path, state):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    spark.createDataFrame(state(table)).createOrReplaceTempView("plain")
    frames.read(spark, table.metadata).createOrReplaceTempView("ours")
    with settings(
        spark,
        {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": str(state is partly_dirty).lower(),
        },
    ):
        for text in QUERIES if state in (fresh, partly_dirty) else QUERIES[::3]:
            expected = spark.sql(text.format(t="plain")).collect()
            assert sorted(spark.sql(text.format(t="ours")).collect(), key=str) == sorted(
                expected, key=str
            ), text


def test_the_plan_of_a_frame_follows_the_table_through_upserts_and_compaction(spark, tmp_path):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    view = frames.read(spark, table.metadata)
    view.createOrReplaceTempView("followed")
    plans = []

    def compacted(table):
        table.compact()
        return pa.concat_tables([rows(range(5), 1), rows(range(5, 30))])

    for change in (untouched, fresh, partly_dirty, compacted):
        expected = change(table)
        plans.append(nodes(view))
        assert nodes(spark.sql("select * from followed")) == plans[-1]
        assert bag(view.toArrow()) == bag(expected)
    assert plans == [NOTHING, PLAIN, PLAIN, PLAIN]
    executed = java_frame(view.select("id")).queryExecution().executedPlan().toString()
    assert "Union" not in executed and "Join" not in executed


def test_scans_pruned_to_no_files_are_removed_from_the_plan(spark, tmp_path):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    partly_dirty(table)
    view = frames.read(spark, table.metadata)
    assert nodes(view.where("id >= 0")) == PLAIN
    assert nodes(view.where("id >= 10").select("x")) == PLAIN
    assert nodes(view.where("PART = 1").groupBy("x").count()) == PLAIN
    assert nodes(view.where("part = 0 and id > 6")) == PLAIN
    assert nodes(view.where("id > 1000").limit(3)) == NOTHING
    assert view.where("id > 1000").count() == 0
    assert nodes(view.where("id >= 10 or rand() > 0.5")) == PLAIN, (
        "such a filter cannot be evaluated against metadata"
    )


def test_plans_of_joins_unions_and_scalar_subqueries_keep_only_needed_scans(spark, tmp_path):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    partly_dirty(table)
    view = frames.read(spark, table.metadata)
    view.createOrReplaceTempView("some")
    pair = view.alias("a").where("a.part = 1").join(view.alias("b").where("b.part = 2"), "x")
    assert nodes(pair) == {"union": 0, "join": 1, "scan": 2}, (
        "a file with few rows is not pruned by the other side"
    )
    assert nodes(view.where("part = 1").union(view.where("part = 0"))) == {
        "union": 1,
        "join": 0,
        "scan": 2,
    }
    scalar = spark.sql(
        "select id from some where part = 1 and x < (select max(x) from some where part = 2)"
    )
    assert nodes(scalar) == PLAIN, "the metadata table knows the greatest x"
    assert sorted(r.id for r in scalar.collect()) == [i for i in range(10, 20) if i % 7 < 6]
    scalar_alone = spark.sql("select (select max(x + 1) from some where part = 2) as m")
    assert nodes(scalar_alone) == PLAIN
    assert scalar_alone.first()[0] == 7  # type: ignore[index]


def test_a_cached_frame_keeps_its_rows_until_it_is_refreshed(spark, tmp_path):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    fresh(table)
    view = frames.read(spark, table.metadata)
    cached = view.where("id < 20").cache()
    try:
        assert cached.count() == 20
        table.delete(rows(range(10)))
        assert cached.where("id >= 0").count() == 20
        assert nodes(cached)["scan"] == 0, "it is read from memory"
        assert view.count() == 20
    finally:
        spark.catalog.clearCache()
    assert view.where("id < 20").count() == 10


def test_a_query_keeps_the_version_of_its_optimized_plan(spark, tmp_path):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ")
    fresh(table)
    query = frames.read(spark, table.metadata).select("id", "x").where("id < 5")
    assert nodes(query) == PLAIN
    table.upsert(rows(range(30), 50))
    table.compact()
    assert bag(query.toArrow()) == bag(rows(range(5)).select(["id", "x"]))


class Plans:
    """Counts the calls of the planner."""

    def __init__(self, monkeypatch):
        self.made = 0
        original = frames.plan

        def counting_plan(metadata, snapshot, predicate, *more):
            self.made += 1
            return original(metadata, snapshot, predicate, *more)

        monkeypatch.setattr(frames, "plan", counting_plan)

    def count_plans(self, query):
        made_before = self.made
        query.collect()
        return self.made - made_before


@pytest.mark.parametrize("state", [fresh, partly_dirty, all_dirty])
def test_a_query_is_planned_and_counted_once(spark, tmp_path, monkeypatch, state):
    table = new_table(tmp_path / "t", table_type="MERGE_ON_READ", indexes=["bitmap(x)"])
    state(table)
    table = mdt.open(table.path, {"mdt.usage.counts": True})
    view, plans = frames.read(spark, table.metadata), Plans(monkeypatch)
    queries = [
        (view.where("x < 5"), 1),
        (view.where("id > 5 and x = 3").groupBy("part").count(), 1),
        (view.where("id > 900"), 1),
        (view.where("x = 1").alias("a").join(view.where("x = 1").alias("b"), "x"), 2),
        (view, 0),
        (view.where("x = 1").union(view.where("x = 2")), 1),
    ]
    # A join is planned again when the values of its other side are known. The last plans of a table
    # are cached.
    assert [plans.count_plans(query) for query, _ in queries] == [
        expected for _, expected in queries
    ]
    total = table.metadata.usage.total()
    assert total.queries == sum(expected > 0 for _, expected in queries), "each query counts once"
    assert total.columns["x"].range.queries == 1
    assert total.columns["id"].range.queries == 2


def test_a_planner_that_fails_during_optimization_drops_no_rows(spark, tmp_path):
    table = new_table(tmp_path / "t")
    fresh(table)
    lister = frames._TableLister(table.metadata, None)

    class FailsFirst(Lister):
        calls = 0

        def list(self, query, predicate, rows=None):
            self.calls += not query.startswith("call:")
            if self.calls in (1, 2) and not query.startswith("call:"):
                # once with the filters, then without
                raise RuntimeError("not now")
            return lister.list(query, predicate, rows)

    view = frames.read(spark, table.metadata)
    frame = relation(spark, FailsFirst(), view.schema, tmp_path.as_uri())
    with pytest.warns(PlannerWarning, match="not now"):
        assert frame.where("id >= 12").count() == 18


def test_a_session_without_mdt_optimizer_rules_reads_live_rows(spark, tmp_path):
    table = new_table(tmp_path / "t")
    fresh(table)
    frames.read(spark, table.metadata).createOrReplaceGlobalTempView("everywhere")
    other = spark.newSession()
    query = "select id, x from global_temp.everywhere"
    try:
        assert other.sql(query).count() == 30, "no rows are deleted yet"
        expected = partly_dirty(table).select(["id", "x"])
        for session in (other, spark):
            assert bag(session.sql(query).toArrow()) == bag(expected)
    finally:
        spark.catalog.dropGlobalTempView("everywhere")


def test_metadata_columns_and_input_file_name_are_those_of_the_real_file(spark, tmp_path):
    table = new_table(tmp_path / "t")
    partly_dirty(table)
    view = frames.read(spark, table.metadata)
    names = view.selectExpr(
        "id",
        "_metadata.file_path",
        "_metadata.file_name",
        "_metadata.file_size",
        "_metadata.file_block_start",
        "input_file_name() n",
    )
    read = names.where("id < 20").collect()
    assert sorted(row.id for row in read) == list(range(20))
    assert len({row.file_path for row in read}) == 3, "a file of each partition, and a log file"
    files = {file["name"]: file for file in table.files().to_pylist()}
    for row in read:
        file = files[row.file_name]
        assert row.n == row.file_path and row.n.endswith("/" + row.file_name)
        path = Path(row.file_path.removeprefix("file://"))
        assert row.file_size == path.stat().st_size
        assert row.file_block_start == file["block_offset"]

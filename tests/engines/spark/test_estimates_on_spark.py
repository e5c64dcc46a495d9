"""What Spark's optimizer is told of a table after pruning, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from executed_plans import nodes
from pyspark.sql import DataFrame, SparkSession
from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark import frame as frames
from mdt.engines.spark import private

FACTS = pa.schema(
    [("id", pa.int64()), ("day", pa.int32()), ("who", pa.int32()), ("v", pa.float64()), ("note", pa.string())]
)
FILES, ROWS = 10, 200
COSTS = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}


def facts(day: int) -> pa.Table:
    ids = range(day * ROWS, (day + 1) * ROWS)
    return pa.table(
        [list(ids), [day] * ROWS, [i % 50 for i in ids], [i / 2 for i in ids], ["n" * 20] * ROWS], schema=FACTS
    )


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    root = tmp_path_factory.mktemp("measured")
    mdt.spark.enable(spark)
    table = mdt.create(root / "facts", FACTS, key=["id"], options={"mdt.services.auto": "false"})
    for day in range(FILES):
        table.bulk_insert(facts(day))
    people = mdt.create(root / "people", pa.schema([("who", pa.int32()), ("name", pa.string())]), key=["who"])
    people.insert(pa.table([pa.array(range(50), pa.int32()), [f"p{i}" for i in range(50)]], names=["who", "name"]))
    for name in ("facts", "people"):
        mdt.read(spark, root / name).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in ("facts", "people"):
        spark.catalog.dropTempView(name)


def sizes(frame: DataFrame, *, rows: bool = False) -> list[int]:
    """Return the bytes, or rows, of each relation of the optimized plan."""
    leaves = private.java_frame(frame).queryExecution().optimizedPlan().collectLeaves()
    stats = [leaves.apply(at).stats() for at in range(leaves.size())]
    return [int(str(one.rowCount().get() if rows else one.sizeInBytes())) for one in stats]


JOIN = "select f.id, p.name from facts f join people p on f.who = p.who"


def test_the_size_of_a_relation_is_what_is_left_of_it(measured: SparkSession) -> None:
    whole, people = sizes(measured.sql(JOIN))
    part, same = sizes(measured.sql(f"{JOIN} where f.day < 3"))
    assert part < whole * 0.4 and same == people


def test_the_cost_model_has_rows_and_columns(measured: SparkSession) -> None:
    with settings(measured, COSTS):
        assert sizes(measured.sql(JOIN), rows=True) == [FILES * ROWS, 50]
        frame = measured.sql(f"{JOIN} where f.day in (2, 4)")
        assert sizes(frame, rows=True) == [2 * ROWS, 50]
        plan = private.java_frame(frame).queryExecution().optimizedPlan()
        assert int(str(plan.stats().rowCount().get())) == 2 * ROWS, "each has one person"
        with settings(measured, {"spark.sql.statistics.histogram.enabled": "true"}):
            half = (
                private.java_frame(measured.sql(f"{JOIN} where f.id >= 1000 and f.v < 600"))
                .queryExecution()
                .optimizedPlan()
            )
            assert 100 < int(str(half.stats().rowCount().get())) < 400


def test_a_pruned_side_is_broadcast(measured: SparkSession) -> None:
    bytes_of = sizes(measured.sql(JOIN))[0]
    query = "select count(a.note), count(b.note) from facts a join facts b on a.id = b.id where a.day = 3"
    with settings(
        measured, {"spark.sql.autoBroadcastJoinThreshold": str(bytes_of // 4), "spark.sql.adaptive.enabled": "false"}
    ):
        found = measured.sql(query)
        assert found.collect()[0] == (ROWS, ROWS)
        assert "BroadcastHashJoin" in [node.nodeName() for node in nodes(found)]
        with settings(measured, {"spark.mdt.optimize": "none"}):
            path = measured.sql("select 1 from facts").inputFiles()[0].rpartition("/")[0]
            frame = mdt.read(measured, path)
        plain = measured.sql(query.replace("facts", "{facts}"), facts=frame)
        assert plain.collect()[0] == (ROWS, ROWS)
        assert "SortMergeJoin" in [node.nodeName() for node in nodes(plain)]


def test_estimates_that_fail_cost_nothing_but_themselves(
    measured: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = measured.sql(f"{JOIN} where f.day = 1").collect()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no estimate")

    for name in ("estimate", "threshold", "totals"):
        monkeypatch.setattr(frames._Files, name, fails)
    with settings(measured, COSTS):
        assert sorted(measured.sql(f"{JOIN} where f.day = 1").collect()) == sorted(expected)
    assert measured.sql("select count(*) from facts").collect()[0][0] == FILES * ROWS
    assert [row[0] for row in measured.sql("select id from facts order by id desc limit 2").collect()] == [1999, 1998]


def test_a_query_is_planned_once(measured: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    made = frames.plan
    monkeypatch.setattr(frames, "plan", lambda *given: planned.append(str(given[2])) or made(*given))
    with settings(measured, COSTS):
        measured.sql(f"{JOIN} where f.day = 5 and f.id > 7").collect()
    assert len([one for one in planned if "value=7" in one]) == 1

"""Sizes, row counts and column statistics that Spark's optimizer gets for pruned tables, and the
plans that it makes with them.
"""

from datetime import datetime

import pyarrow as pa
import pytest
from executed_plans import nodes, optimized, views
from sql_tables import cases, settings, stored, tuples

import mdt
from mdt.engines.spark import file_index, private
from mdt.engines.spark import frame as frames

FILES, ROWS = 10, 200
COSTS = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
HISTOGRAMS = "spark.sql.statistics.histogram.enabled"
ALONE = {"mdt.services.auto": "false"}


def numbers(values):
    return pa.array(values, pa.int32())


def facts(day):
    ids = range(day * ROWS, (day + 1) * ROWS)
    columns = {"id": ids, "day": numbers([day] * ROWS), "who": numbers([i % 50 for i in ids])}
    return pa.table(columns | {"v": [i / 2 for i in ids], "note": ["n" * 20] * ROWS})


@pytest.fixture(scope="module")
def measured(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("measured")
    table = mdt.create(root / "facts", facts(0).schema, "id", options=ALONE)
    for day in range(FILES):
        table.bulk_insert(facts(day))
    names = pa.table({"who": numbers(range(50)), "name": [f"p{i}" for i in range(50)]})
    people = stored(root / "people", names, key="who")
    with views(spark, facts=table, people=people) as session:
        yield session


def sizes(frame, *, rows=False):
    """Return the bytes, or the rows, of each relation of the optimized plan."""
    leaves = optimized(frame).collectLeaves()
    stats = [leaves.apply(at).stats() for at in range(leaves.size())]
    return [
        int(str(relation.rowCount().get() if rows else relation.sizeInBytes()))
        for relation in stats
    ]


def total(frame):
    """Return the optimizer's estimate of the number of result rows."""
    return int(str(optimized(frame).stats().rowCount().get()))


JOIN = "select f.id, p.name from facts f join people p on f.who = p.who"


def test_the_size_of_a_relation_is_its_size_after_pruning(measured):
    unpruned, people = sizes(measured.sql(JOIN))
    pruned, people_again = sizes(measured.sql(f"{JOIN} where f.day < 3"))
    assert pruned < unpruned * 0.4 and people_again == people


def test_the_cost_model_gets_row_counts_column_statistics_and_samples(
    measured,
):
    with settings(measured, COSTS):
        assert sizes(measured.sql(JOIN), rows=True) == [FILES * ROWS, 50]
        frame = measured.sql(f"{JOIN} where f.day in (2, 4)")
        assert sizes(frame, rows=True) == [2 * ROWS, 50]
        assert total(frame) == 2 * ROWS, "each row joins one person"
        frame = measured.sql(f"{JOIN} where f.note = '{'n' * 20}'")
        assert sizes(frame, rows=True) == [FILES * ROWS, 50]
        assert total(frame) == FILES * ROWS == len(frame.collect()), "note has one value"
        with settings(measured, {HISTOGRAMS: "true"}):
            half = measured.sql(f"{JOIN} where f.id >= 1000 and f.v < 600")
            assert 100 < total(half) < 400


SEMI = """select count(*) from facts f where f.day < 3
    and {} (select 1 from people p where p.who = f.who and p.name > 'p2')"""


@pytest.mark.parametrize("word", ["exists", "not exists"])
@pytest.mark.parametrize("costs", [COSTS, {}])
def test_both_sides_of_a_semi_or_anti_join_from_a_subquery_are_estimated(measured, word, costs):
    with settings(measured, costs):
        frame = measured.sql(SEMI.format(word))
        joined = measured.sql(f"{JOIN} where f.day < 3 and p.name > 'p2'").select("id")
        assert sizes(frame, rows=bool(costs)) == sizes(joined, rows=bool(costs))
        assert not costs or sizes(frame, rows=True) == [3 * ROWS, 50]


@pytest.mark.parametrize(
    "condition",
    [
        "length(f.note) = 20",
        "f.who < f.day + 50",
        "exists (select 1 from people q where q.who = f.who)",
        "f.note like 'n%' or f.v < f.id",
    ],
)
def test_conditions_without_an_estimate_do_not_spoil_the_estimate_of_others(measured, condition):
    with settings(measured, COSTS):
        frame = measured.sql(f"{JOIN} where f.day in (2, 4) and ({condition})")
        assert sizes(frame, rows=True)[0] == 2 * ROWS


def test_a_scalar_subquery_is_not_estimated(measured, monkeypatch):
    estimated = list[object]()
    estimate = frames._TableLister.estimate
    monkeypatch.setattr(
        frames._TableLister,
        "estimate",
        lambda *arguments, **named: estimated.append(arguments) or estimate(*arguments, **named),
    )
    measured.sql("select count(*) from facts where day > (select avg(who) from people)").collect()
    assert estimated == []
    measured.sql(SEMI.format("exists")).collect()
    assert len(estimated) == 2


def test_a_join_side_that_is_small_after_pruning_is_broadcast(measured):
    query = """select count(a.note), count(b.note) from {facts} a join {facts} b
        on a.id = b.id where a.day = 3"""
    values = {
        "spark.sql.autoBroadcastJoinThreshold": str(sizes(measured.sql(JOIN))[0] // 4),
        "spark.sql.adaptive.enabled": "false",
    }
    path = measured.sql("select 1 from facts").inputFiles()[0].rpartition("/")[0]
    for optimize, kind in (("all", "BroadcastHashJoin"), ("none", "SortMergeJoin")):
        with settings(measured, {**values, "spark.mdt.optimize": optimize}):
            frame = measured.sql(query, facts=mdt.read(measured, path))
            assert frame.collect()[0] == (ROWS, ROWS)
            assert kind in [node.nodeName() for node in nodes(frame)]


def test_estimates_that_fail_change_no_rows(measured, monkeypatch):
    expected = measured.sql(f"{JOIN} where f.day = 1").collect()

    def fails(*_, **__):
        raise RuntimeError("no estimate")

    for name in ("estimate", "threshold", "totals"):
        monkeypatch.setattr(frames._TableLister, name, fails)
    with settings(measured, COSTS):
        assert sorted(measured.sql(f"{JOIN} where f.day = 1").collect()) == sorted(expected)
    assert measured.sql("select count(*) from facts").collect()[0][0] == FILES * ROWS
    assert tuples(measured.sql("select id from facts order by id desc limit 2")) == [1998, 1999]


def test_a_query_is_planned_once(measured, monkeypatch):
    planned = []
    plan = frames.plan
    monkeypatch.setattr(
        frames, "plan", lambda *arguments: planned.append(str(arguments[2])) or plan(*arguments)
    )
    with settings(measured, COSTS):
        measured.sql(f"{JOIN} where f.day = 5 and f.id > 7").collect()
    assert len([predicate for predicate in planned if "value=7" in predicate]) == 1


CONDITIONS = cases(
    """
    tenant > 5 -> 60
    at > timestamp'2020-01-01 00:00:00' -> 60
    wall > timestamp_ntz'2020-01-01' -> 60
    v < 0 -> 20
    name >= 'n1' -> 40
    wall is not null and a.name <> 'x' -> 60
    """
)


@pytest.mark.parametrize("histograms", ["true", "false"])
def test_the_cost_model_handles_every_type_and_files_with_constant_columns(
    spark, tmp_path, histograms
):
    def odd(file, v):
        moment = pa.array([datetime(2024, 1, 1)] * 20, pa.timestamp("us"))
        times = {"at": moment.cast(pa.timestamp("us", "UTC")), "wall": moment}
        columns = {"id": range(20 * file, 20 * file + 20), "tenant": [100_000_000] * 20, **times}
        return pa.table(columns | {"v": [v] * 20, "name": [f"n{file}"] * 20})

    table = stored(tmp_path / "t", odd(0, -1.7e308), options=ALONE)
    table.bulk_insert(odd(1, 1.7e308))
    table.bulk_insert(odd(2, 0.5))
    frame = mdt.read(spark, table.path)
    join = "select a.id, b.name from {t} a join {t} b on a.id = b.id where a."
    with settings(spark, {**COSTS, HISTOGRAMS: histograms}):
        for condition, number in CONDITIONS:
            assert spark.sql(join + condition, t=frame).count() == int(number), condition


def test_the_file_compression_factor_of_spark_applies_to_sizes(measured):
    query = f"{JOIN} where f.day < 3"
    with settings(measured, {"spark.sql.sources.fileCompressionFactor": "500.0"}):
        large = sizes(measured.sql(query))[0]
    assert large > 45 * sizes(measured.sql(query))[0]


def test_new_sessions_of_a_session_share_one_optimizer_rule(measured):
    expected = sizes(measured.sql(f"{JOIN} where f.day < 3"))
    path = measured.sql("select 1 from facts").inputFiles()[0].rpartition("/")[0]
    java = private.java_session(measured)
    for _ in range(3):
        other = measured.newSession()
        mdt.read(other, path).createOrReplaceTempView("facts")
        mdt.read(other, path.replace("facts", "people")).createOrReplaceTempView("people")
        assert sizes(other.sql(f"{JOIN} where f.day < 3")) == expected
        assert java.extensions().buildPreCBORules(java).size() == 1


class Calls:
    """Counts the optimizer's calls to Python, and the relations in them."""

    def __init__(self, monkeypatch):
        self.calls, self.relations = 0, 0
        original_apply, original_answer = (
            file_index._Planner.apply,
            file_index._Planner.answer_question,
        )

        def apply(planner, request):
            self.calls += '"each":' in request
            return original_apply(planner, request)

        def answer_question(planner, question):
            self.relations += "estimate" in question
            return original_answer(planner, question)

        monkeypatch.setattr(file_index._Planner, "apply", apply)
        monkeypatch.setattr(file_index._Planner, "answer_question", answer_question)


def test_all_relations_of_a_query_are_estimated_in_one_call(measured, monkeypatch):
    calls = Calls(monkeypatch)
    more = "join people q on q.who = p.who join facts g on g.id = f.id and g.day < 3"
    frame = measured.sql(f"{JOIN} {more} where f.day < 5")
    estimates = sizes(frame)
    assert len(estimates) == 4 and (calls.calls, calls.relations) == (1, 3), (
        "people is joined with itself and estimated once"
    )
    assert len(frame.collect()) == 3 * ROWS


def test_a_relation_whose_estimate_fails_leaves_the_estimates_of_others(measured, monkeypatch):
    people = sizes(measured.sql(JOIN))[1]
    estimated = frames._TableLister.estimate

    def estimate(files, *arguments, **more):
        if "day" in files.metadata.newest().definition.schema.names:
            raise OSError("no")
        return estimated(files, *arguments, **more)

    monkeypatch.setattr(frames._TableLister, "estimate", estimate)
    frame = measured.sql(f"{JOIN} where f.day < 3")
    assert sizes(frame)[1] == people and len(frame.collect()) == 3 * ROWS

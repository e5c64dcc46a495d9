"""A side of a join that Spark cannot broadcast is asked for its values by a job of its own, where that pays: same rows, less work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from executed_plans import jobs_of_jobs, nodes, passed, plain
from pyspark.sql import SparkSession
from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark.private import jvm

LINES, PER_ORDER, FILES = 1_050_000, 5, 10
ORDERS = LINES // PER_ORDER
EACH = ORDERS // FILES
PEOPLE = 999
OPTIONS = {"mdt.services.auto": "false", "mdt.small.file.bytes": 0}
VIEWS = ("orders", "lines", "some", "people")
COSTS = {"spark.sql.cbo.enabled": "true"}


def texts(number: np.ndarray) -> pa.Array:
    return pa.array(number).cast(pa.string())


def who(line: np.ndarray) -> np.ndarray:
    """Return whose the lines are: 2 in 5 of one, the others of a thousand people in turns."""
    return np.where(line % 5 < 2, 0, 1 + line % PEOPLE)


def orders(part: int) -> pa.Table:
    number = np.arange(part * EACH, (part + 1) * EACH)
    return pa.table({"number": number, "day": (number // (EACH // 10)).astype(np.int32), "text": texts(number)})


@pytest.fixture(scope="module")
def ordered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with views ``orders``, whose files have ten days each, ``lines``, five an order, ``some``, a part of these, and ``people``."""
    root = tmp_path_factory.mktemp("ordered")
    mdt.spark.enable(spark)
    table = mdt.create(root / "orders", orders(0).schema, key=["number"], options=OPTIONS)
    for part in range(FILES):
        table.bulk_insert(orders(part))
    line = np.arange(LINES)
    number = line // PER_ORDER
    lines = pa.table(
        {"line": line, "number": number, "amount": (line % 7).astype(np.int32), "text": texts(number), "who": who(line)}
    )
    mdt.create(root / "lines", lines.schema, key=["line"], options=OPTIONS).bulk_insert(lines)
    mdt.create(root / "some", lines.schema, key=["line"], options=OPTIONS).bulk_insert(lines.slice(0, 900_000))
    people = pa.table({"who": np.arange(PEOPLE + 1), "name": texts(np.arange(PEOPLE + 1))})
    mdt.create(root / "people", people.schema, key=["who"], options=OPTIONS).bulk_insert(people)
    for name in VIEWS:
        mdt.read(spark, root / name).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2", "spark.sql.autoBroadcastJoinThreshold": "1000000"}):
        yield spark
    for name in VIEWS:
        spark.catalog.dropTempView(name)


EXISTS = "select count(*), sum(o.number) from orders o where o.day < 5 and {0} (select 1 from {1} l where l.number = o.number and l.amount < {2})"
OUTER = "select sum(o.number), count(l.line), sum(l.amount) from orders o left join {1} l on o.number = l.number and l.amount < {2} where o.day < 5"
IN = "select count(*) from orders o where day < 5 and o.number in (select number from {1} where amount < {2})"
FORMS = {
    "exists": EXISTS.format("exists", "lines", 2),
    "not exists": EXISTS.format("not exists", "lines", 2),
    "left join": OUTER.format("", "lines", 2),
    "in": IN.format("", "lines", 2),
}


@pytest.mark.parametrize("costs", [True, False])
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("form", FORMS)
def test_only_lines_of_the_orders_that_are_left_come_to_the_join(
    ordered: SparkSession, form: str, adaptive: str, costs: bool
) -> None:
    with settings(ordered, {"spark.sql.adaptive.enabled": adaptive, **(COSTS if costs else {})}):
        frame = ordered.sql(FORMS[form])
        found = sorted(map(repr, frame.collect()))
        assert found == plain(ordered, FORMS[form])
        assert passed(frame) == [5 * EACH // 10 * PER_ORDER]


OTHERS = (
    "select count(*), sum(l.line) from people p join lines l on p.who = l.who where p.name = '{0}' and l.amount < 5"
    " and exists (select 1 from lines m where m.{1} = l.{1} and m.amount <> l.amount + 1)"
    " and not exists (select 1 from lines n where n.{1} = l.{1} and n.amount > 5 and n.who <> l.who)"
)


def lines_of(person: int) -> int:
    """Return how many lines the orders have of which one that is looked for is somebody's."""
    line = np.arange(LINES)
    return int(np.isin(line // PER_ORDER, (line // PER_ORDER)[(who(line) == person) & (line % 7 < 5)]).sum())


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_table_that_a_question_leaves_few_rows_of_is_asked_itself(ordered: SparkSession, adaptive: str) -> None:
    query = OTHERS.format(7, "number")
    with settings(ordered, {"spark.sql.adaptive.enabled": adaptive, **COSTS}):
        frame = ordered.sql(query)
        found = sorted(map(repr, frame.collect()))
        assert found == plain(ordered, query)
        assert passed(frame) == [int((who(np.arange(LINES)) == 7).sum()), lines_of(7), lines_of(7)]
        assert set(jobs_of_jobs(frame)) == {0}, (
            "they could take all of Spark's threads for subqueries, and wait for each other"
        )
    with settings(ordered, {"spark.sql.adaptive.enabled": adaptive}):  # without costs nobody knows that they are few
        frame = ordered.sql(query)
        assert sorted(map(repr, frame.collect())) == found
        assert passed(frame) == [int((who(np.arange(LINES)) == 7).sum())]


def test_a_job_that_finds_more_values_than_were_expected_is_cut_and_not_believed(ordered: SparkSession) -> None:
    query = OTHERS.format(0, "line")
    with settings(ordered, COSTS):
        frame = ordered.sql(query)
        assert sorted(map(repr, frame.collect())) == plain(ordered, query)
        assert passed(frame) == [int((who(np.arange(LINES)) == 0).sum()), LINES, LINES]


def test_metrics_of_a_scan_wait_for_nobody_who_waits_for_its_questions(ordered: SparkSession) -> None:
    """Spark holds the monitor of a node while its questions are answered, and a plan of theirs that changes asks every node for its metrics."""
    frame = ordered.sql(FORMS["exists"])
    frame.collect()
    kinds = {node.getClass().getName(): node.getClass() for node in nodes(frame)}
    modifier = jvm(ordered).java.lang.reflect.Modifier
    found = kinds["mdt.spark.TableScan"].getDeclaredMethods()
    assert len(found) > 20
    assert not [method.getName() for method in found if modifier.isSynchronized(method.getModifiers())]


NOT_WORTH = {
    "too many orders": FORMS["exists"].replace("o.day < 5", "o.day >= 0"),
    "too few lines": EXISTS.format("exists", "some", 2),
    "orders that are as they are": FORMS["exists"].replace("o.day < 5 and", ""),
    "a key of texts": FORMS["exists"].replace("l.number = o.number", "l.text = o.text"),
    "orders with something drawn": (
        "select count(*) from (select number, rand() r from orders where day < 5) o"
        " where r < 2 and exists (select 1 from lines l where l.number = o.number and l.amount < 2)"
    ),
    "orders that are cut": (
        "select count(*) from (select number from orders where day < 5 limit 1000000) o"
        " where exists (select 1 from lines l where l.number = o.number and l.amount < 2)"
    ),
}


@pytest.mark.parametrize("why", NOT_WORTH)
def test_no_job_is_run_where_it_does_not_pay(ordered: SparkSession, why: str) -> None:
    frame = ordered.sql(NOT_WORTH[why])
    assert sorted(map(repr, frame.collect())) == plain(ordered, NOT_WORTH[why])
    assert passed(frame) == []

"""Sides of a join that ask each other through other joins and aggregates: same rows, fewer
files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from executed_plans import files_read, plain
from pyspark.sql import DataFrame, SparkSession
from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark import private

ROWS, KEYS, FILES = 3000, 300, 6
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
DAY = dt.date(1969, 12, 1)
COLUMNS = {
    "whole": (pa.int32(), lambda i: i - 150),
    "big": (pa.int64(), lambda i: (i - 150) * (2**55)),
    "day": (pa.date32(), lambda i: DAY + dt.timedelta(i)),
    "name": (pa.string(), lambda i: f"n{i:03}"),
    "spread": (pa.int32(), lambda i: i * 7 % KEYS),
}
"""Columns by which tables are joined: type, and the value of a number.  All but ``spread`` rise
from file to file.
"""
SALES = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.int64()),
        *((name, kind) for name, (kind, _) in COLUMNS.items()),
    ]
)
PARTS = pa.schema(
    [
        ("part", pa.int64()),
        ("kind", pa.string()),
        *((name, kind) for name, (kind, _) in COLUMNS.items()),
    ]
)


def values(name: str, numbers: list[int | None]) -> pa.Array:
    kind, value = COLUMNS[name]
    return pa.array([None if i is None else value(i) for i in numbers], kind)


def sales() -> pa.Table:
    numbers = [None if i % 11 == 0 else i * KEYS // ROWS for i in range(ROWS)]
    return pa.table(
        [
            pa.array(range(ROWS)),
            pa.array(range(ROWS)),
            *(values(name, numbers) for name in COLUMNS),
        ],
        SALES,
    )


def parts() -> pa.Table:
    numbers = list(range(KEYS))
    kinds = [f"k{i // 6}" for i in numbers]
    return pa.table(
        [pa.array(numbers), pa.array(kinds), *(values(name, numbers) for name in COLUMNS)], PARTS
    )


@pytest.fixture(scope="module")
def sold(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with views ``sales``, of FILES files, and ``parts``: what is sold has part i for
    each number i of COLUMNS.
    """
    root: Path = tmp_path_factory.mktemp("sold")
    mdt.spark.enable(spark)
    rows = sales()
    table = mdt.create(
        root / "sales",
        SALES,
        key=["id"],
        table_type="MERGE_ON_READ",
        options={"mdt.services.auto": "false"},
    )
    for at in range(0, ROWS, ROWS // FILES):
        table.bulk_insert(rows.slice(at, ROWS // FILES))
    table.upsert(rows.slice(10, 40))
    mdt.create(root / "parts", PARTS, key=["part"]).insert(parts())
    for name in ("sales", "parts"):
        mdt.read(spark, root / name).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in ("sales", "parts"):
        spark.catalog.dropTempView(name)


GROUPED = (
    "select p.part, s.n from parts p join (select {0}, sum(amount) n from sales group by {0}) s on"
    " p.{0} = s.{0} where p.kind = '{1}'"
)

FAR = {
    "an average, of a side made of a small one": (
        (
            "select sum(s.amount) from sales s, parts p where p.whole = s.whole and p.kind = 'k3'"
            " and s.amount < (select 1.1 * avg(amount) from sales t where t.whole = p.whole)"
        ),
        1,
    ),
    "below a join that sorts": (
        (
            "select /*+ merge(t) */ count(*) n from sales s join sales t on s.id = t.id join parts"
            " p on s.name = p.name where p.kind = 'k9'"
        ),
        1,
    ),
    "a semi-join below": (
        (
            "select s.n from (select whole, day from sales where day in (select day from parts"
            " where kind = 'k5')) x join (select day, count(*) n from sales group by day) s on"
            " s.day = x.day"
        ),
        0,
    ),
    "the right side of an outer join": (
        (
            "select p.part, s.n from (select q.part, t.big from parts q join sales t on q.big ="
            " t.big where q.kind = 'k2') p left join (select big, sum(amount) n from sales group by"
            " big) s on p.big = s.big"
        ),
        1,
    ),
    "the right side of an anti-join": (
        (
            "select t.id from sales t join parts q on q.whole = t.whole and q.kind = 'k2' where not"
            " exists (select 1 from (select whole, max(amount) m from sales group by whole) s where"
            " s.whole = t.whole and s.m > t.amount)"
        ),
        0,
    ),
    "a question that nobody answers": (
        (
            "select /*+ merge(p) */ p.part, s.n from parts p join (select whole, count(*) n from"
            " sales group by whole) s on p.whole = s.whole where p.kind = 'k1'"
        ),
        0,
    ),
    "two keys": (
        (
            "select p.part, s.n from parts p join (select whole, name, sum(amount) n from sales"
            " group by whole, name) s on p.whole = s.whole and p.name = s.name where p.kind = 'k8'"
        ),
        1,
    ),
    "both sides could ask": (
        (
            "select count(*) n from (select s.whole, p.name from sales s join parts p on s.whole ="
            " p.whole where p.kind < 'k2') a join (select s.whole, p.day from sales s join parts p"
            " on s.whole = p.whole where p.kind > 'k4') b on a.whole = b.whole"
        ),
        0,
    ),
}
"""Queries, and whether a question surely leaves files out."""


@pytest.mark.parametrize("threshold", ["-1", "40KB", "10MB"])
@pytest.mark.parametrize("which", FAR)
def test_rows_are_the_same_whoever_is_asked(sold: SparkSession, which: str, threshold: str) -> None:
    query, leaves_out = FAR[which]
    with settings(sold, {BROADCAST: threshold}):
        frame = sold.sql(query)
        found = sorted(map(repr, frame.collect()))
        assert found == plain(sold, query)
        assert sorted(map(repr, frame.collect())) == found, "a frame that runs again"
    if leaves_out and threshold == "10MB":
        assert min(files_read(frame)[:-1]) < FILES


def test_each_question_has_its_own_values(sold: SparkSession) -> None:
    query = " union all ".join(f"({GROUPED.format('whole', kind)})" for kind in ("k1", "k2", "k1"))
    assert sorted(map(repr, sold.sql(query).collect())) == plain(sold, query)


def test_a_chain_of_joins_is_planned_in_time(sold: SparkSession) -> None:
    tables = ", ".join(f"parts p{i}" for i in range(14))
    joins = " and ".join(f"p{i}.part = p{i + 1}.part and p{i}.kind < 'k4'" for i in range(13))
    grouped = "(select big, count(*) n from sales group by big) s"
    query = f"select count(*), sum(n) from {grouped}, {tables} where s.big = p0.big and {joins}"
    frame = sold.sql(query)
    assert 0 < questions(frame) < 300
    assert sorted(map(repr, frame.collect())) == plain(sold, query)


def questions(frame: DataFrame) -> int:
    """Return how many questions there are in the optimized plan."""
    return int(
        private.java_frame(frame)
        .queryExecution()
        .optimizedPlan()
        .treeString()
        .count("dynamicpruning#")
    )


LOOK_UP = "select sum(s.amount) n from sales s join parts p on s.{0} = p.{1} where p.kind = 'k2'"


@pytest.mark.parametrize("costs", ["true", "false"])
def test_nobody_asks_for_what_leaves_out_no_file(sold: SparkSession, costs: str) -> None:
    with settings(sold, {"spark.sql.cbo.enabled": costs, BROADCAST: "10MB"}):
        for names, asks in ((("SPREAD", "spread"), False), (("whole", "Whole"), True)):
            query = LOOK_UP.format(*names)
            frame = sold.sql(query)
            assert (questions(frame) > 0) == asks
            assert sorted(map(repr, frame.collect())) == plain(sold, query)

"""MERGE of a small source in Spark's SQL: its rows are made once, and rows of the table are looked
for that they may match.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession
from reader import bag
from sql_tables import BEFORE, TABLE, counts, kept, path, settings

import mdt
from mdt.engines.spark import engine, frame

EACH_COLUMN = [
    ("id", "7L"),
    ("city", "'Rome'"),
    ("n", "9"),
    ("name", "'BACK\\\\SLASH'"),
    ("day", "date'1969-12-31'"),
    ("price", "1.50"),
    ("fare", "2.0D"),
]


@pytest.mark.parametrize(("column", "more"), EACH_COLUMN)
def test_a_small_source_is_made_once_and_reads_what_it_may_match(
    sql: SparkSession, monkeypatch: pytest.MonkeyPatch, column: str, more: str
) -> None:
    asked: list[str] = []
    listed = frame._Files.list
    monkeypatch.setattr(
        frame._Files,
        "list",
        lambda self, query, where: asked.append(str(where)) or listed(self, query, where),
    )
    kept(sql)
    sql.sql(
        f"select distinct {column} c, rand() r from {BEFORE} where id % 5 = 2 union select null, 0"
        f" union select cast({more} as string) c, 0"
    ).selectExpr(f"cast(c as {dict(sql.table(BEFORE).dtypes)[column]}) c", "r").dropDuplicates(
        ["c"]
    ).createOrReplaceTempView("given")
    clauses = (
        "when matched and t.id + s.r > 20 then update set ok = not coalesce(t.ok, false) when"
        " matched then delete"
    )
    found = []
    with settings(sql, {"spark.sql.optimizer.dynamicPartitionPruning.enabled": "false"}):
        # which would find the same
        for on in (f"t.{column} = s.c", f"coalesce(t.{column}) = s.c"):
            asked.clear()
            merged = counts(sql, f"merge into {TABLE} t using given s on {on} {clauses}")
            found.append((merged, state_of(sql), list(asked)))
            mdt.open(path(sql)).restore(1)
    (few, after, narrow), (all_, expected_rows, wide) = found
    assert few == all_ and few[0] > 0 and after == expected_rows
    chosen = f"Leaf(column='{column}', op='in'"
    assert any(chosen in one for one in narrow) and not any(chosen in one for one in wide)


def state_of(sql: SparkSession) -> Any:
    return bag(mdt.open(path(sql)).scan().to_arrow())


@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = s.id and t.n >= 0"])
def test_a_source_that_reads_the_table_is_made_again_with_the_edits(
    sql: SparkSession, on: str
) -> None:
    sql.sql(f"update {TABLE} set n = 0 where id = 5")
    text = (
        f"merge into {TABLE} t using (select id, n + 1 n from {TABLE} where id = 5) s on {on} when"
        " matched then update set n = s.n"
    )

    def add(_: int) -> None:
        for _ in range(3):
            assert counts(sql, text)[1] == 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))
    assert [row["n"] for row in mdt.open(path(sql)).scan("id = 5").to_arrow().to_pylist()] == [6]


@pytest.mark.parametrize(
    "on",
    [
        "s.kind = 'n' and t.id = cast(s.c as bigint)",
        "s.kind = 'n' and t.id = 10 div (length(s.c) - 3)",
    ],
)
def test_what_the_condition_leaves_out_is_no_error(sql: SparkSession, on: str) -> None:
    given = "select * from values ('n', '10'), ('text', 'abc') as v(kind, c)"
    if "div" in on:
        given = "select * from values ('n', 'abcd'), ('text', 'abc') as v(kind, c)"
    sql.sql(given).createOrReplaceTempView("given")
    said = (
        f"merge into {TABLE} t using given s on {on} when matched and t.id > 1 then update set n"
        " = 77"
    )
    assert counts(sql, said) == (1, 1, 0, 0)
    assert [row["n"] for row in mdt.open(path(sql)).scan("id = 10").to_arrow().to_pylist()] == [77]


def test_rows_are_inserted_however_large_spark_takes_the_join_for(sql: SparkSession) -> None:
    sql.range(1_000).selectExpr("id * 2 id", "'Oslo' city", "1 n", "5L ts").createOrReplaceTempView(
        "given"
    )
    said = (
        f"merge into {TABLE} t using given s on t.id = s.id and t.city = s.city when matched then"
        " update set n = t.n + s.n when not matched then insert (id, city, n, ts) values (s.id,"
        " s.city, s.n, s.ts)"
    )
    there = sum(
        1
        for row in mdt.open(path(sql)).scan().to_arrow().to_pylist()
        if row["id"] % 2 == 0 and row["city"] == "Oslo"
    )
    assert counts(sql, said) == (1_000, there, 0, 1_000 - there)
    assert mdt.open(path(sql)).check().ok


@pytest.mark.parametrize("rows", [150, 40])
def test_edits_of_a_size_that_nobody_knows_are_looked_at_once(
    sql: SparkSession, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    looked: list[int] = []
    whole = type(sql.range(1)).limit

    def limit(self: engine.DataFrame, count: int) -> engine.DataFrame:
        looked.append(engine._estimated_bytes(self))
        return whole(self, count)

    monkeypatch.setattr(engine, "_PROBE_ROWS", 100)
    monkeypatch.setattr(type(sql.range(1)), "limit", limit)
    given = sql.sparkContext.parallelize([(n, "Oslo", n, 5) for n in range(1_000, 1_000 + rows)])
    sql.createDataFrame(given, "id long, city string, n long, ts long").createOrReplaceTempView(
        "given"
    )
    said = (
        f"merge into {TABLE} t using given s on t.id = s.id and t.city = s.city when matched then"
        " update set n = s.n when not matched then insert (id, city, n, ts) values (s.id, s.city,"
        " s.n, s.ts)"
    )
    assert counts(sql, said) == (rows, 0, 0, rows)
    assert len(looked) == 1 and looked[0] >= engine._UNKNOWN_BYTES

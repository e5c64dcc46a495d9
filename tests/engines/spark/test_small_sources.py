"""MERGE of a small source in Spark's SQL: its rows are made once, and rows of the table are looked for that they may match."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from reader import bag
from sql_tables import BEFORE, TABLE, counts, kept, path

import mdt
from mdt.engines.spark import frame

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
        frame._Files, "list", lambda self, query, where: asked.append(str(where)) or listed(self, query, where)
    )
    kept(sql)
    sql.sql(
        f"select distinct {column} c, rand() r from {BEFORE} where id % 5 = 2 union select null, 0 union select cast({more} as string) c, 0"
    ).selectExpr(f"cast(c as {dict(sql.table(BEFORE).dtypes)[column]}) c", "r").dropDuplicates(
        ["c"]
    ).createOrReplaceTempView("given")
    clauses = "when matched and t.id + s.r > 20 then update set ok = not coalesce(t.ok, false) when matched then delete"
    found = []
    for on in (f"t.{column} = s.c", f"coalesce(t.{column}) = s.c"):
        asked.clear()
        found.append((counts(sql, f"merge into {TABLE} t using given s on {on} {clauses}"), state_of(sql), list(asked)))
        mdt.open(path(sql)).restore(1)
    (few, after, narrow), (all_, expected_rows, wide) = found
    assert few == all_ and few[0] > 0 and after == expected_rows
    chosen = f"Leaf(column='{column}', op='in'"
    assert any(chosen in one for one in narrow) and not any(chosen in one for one in wide)


def state_of(sql: SparkSession) -> Any:
    return bag(mdt.open(path(sql)).scan().to_arrow())

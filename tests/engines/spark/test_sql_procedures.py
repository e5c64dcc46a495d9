"""``CALL mdt.…``, ``mdt_changes`` and ``match`` in Spark's SQL: what the methods of a table do and
say.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from reader import bag, hudi_table

import mdt
import mdt.spark

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "note": pa.string()})
ROWS = [
    {"id": "a", "city": "Oslo", "note": "A Black umbrella"},
    {"id": "b", "city": "Rome", "note": "blackbird"},
    {"id": "c", "city": "Oslo", "note": None},
    {"id": "d", "city": "Oslo", "note": "black. UMBRELLA!"},
]


@pytest.fixture
def sql(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    mdt.spark.enable(spark)
    table = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        indexes=["text(note, tokenizer='word')"],
    )
    table.upsert(ROWS)
    table.upsert([{**ROWS[1], "note": "white"}])
    spark.sql("drop table if exists served")
    spark.sql(f"create table served using mdt location '{tmp_path / 't'}'")
    yield spark
    spark.sql("drop table served")


def told(spark: SparkSession, statement: str) -> dict[str, Any]:
    """Return the only row of the answer of a procedure."""
    (row,) = spark.sql(statement).collect()
    found: dict[str, Any] = row.asDict()
    return found


def ids(spark: SparkSession, query: str) -> list[str]:
    return sorted(row[0] for row in spark.sql(query).collect())


def test_services_are_called_by_name(sql: SparkSession, tmp_path: Path) -> None:
    assert sql.sql("explain call mdt.compact('served')").count() == 1
    assert told(sql, "call mdt.tag('served', 'before')") == {"seq": 2}
    assert (
        told(sql, "call mdt.compact(table => 'default.served', spark => true)")["engine"] == "spark"
    )
    assert told(sql.newSession(), "call mdt.cluster('served', by => 'note, id', curve => 'sort')")[
        "by"
    ] == ["note", "id"]
    sql.sql("delete from served where id < 'c'")
    assert told(sql, "call mdt.restore(table => 'served', to => 'before')")["updated"] == 0
    assert sql.table("served").count() == 4
    assert told(sql, "call mdt.rollback('served', 2)") and ids(
        sql, "select note from served where id = 'b'"
    ) == ["blackbird"]
    sql.sql("call mdt.untag('served', name => 'before')")
    assert told(sql, f"call mdt.clean('{tmp_path / 't'}', retain_commits => 1 + 1)")["horizon"] > 3
    assert told(sql, "call mdt.check('served')")["problems"] == []
    told_by = mdt.open(tmp_path / "t").history()["operation"].to_pylist()
    assert told_by[3:] == ["tag", "compact", "delete_where", "restore", "restore", "untag", "clean"]
    table = mdt.open(tmp_path / "t")
    assert (
        bag(table.scan().to_arrow())
        == bag(hudi_table(tmp_path / "t", SCHEMA))
        == bag(pa.Table.from_pylist(ROWS, SCHEMA))
    )


def test_an_answer_has_the_columns_of_the_result_with_their_types(sql: SparkSession) -> None:
    answers = {
        "compact": "seq bigint, instant string, inserted bigint",
        "check": "problems array<string>, files bigint, rows bigint",
        "clean": "horizon bigint, files bigint, records bigint",
        "untag": "",
        "tag": "seq bigint",
    }
    more = {"untag": ", 'a'", "tag": ", 'a'"}
    for name, columns in answers.items():
        frame = sql.sql(f"explain call mdt.{name}('served'{more.get(name, '')})")
        assert frame.count() == 1
        if name != "untag":
            described = [
                f"{name} {type}"
                for name, type in sql.sql(f"call mdt.{name}('served'{more.get(name, '')})").dtypes
            ]
            assert ", ".join(described).startswith(columns)
    assert sql.sql("call mdt.untag('served', 'a')").columns == []
    stats = (
        sql.sql("call mdt.analyze('served', columns => 'city')").where("column = 'city'").first()
    )
    assert stats is not None and (stats["rows"], stats["distinct"]) == (4, 2)


def test_history_files_and_snapshots_are_tables(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql("delete from served where id = 'c'")
    sql.sql("call mdt.tag('served', 'old', 1)")
    history = sql.sql("select * from mdt_history('served') order by seq").collect()
    assert [row["operation"] for row in history] == [
        "create",
        "upsert",
        "upsert",
        "delete_where",
        "tag",
    ]
    assert [(row["inserted"], row["updated"], row["deleted"]) for row in history[1:4]] == [
        (4, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    ]
    assert all(isinstance(row["time"], datetime) for row in history)
    late = sql.sql(
        "select count(*) n from mdt_history('served') where time > current_timestamp() - interval 1"
        " hour"
    ).first()
    assert late is not None and late["n"] == 5
    assert timedelta(0) <= history[-1]["time"] - history[0]["time"] < timedelta(hours=1)
    files = sql.newSession().sql(
        "select partition, kind, sum(rows) rows, min(bytes) > 0 ok from mdt_files(table =>"
        " 'default.served') group by all"
    )
    assert sorted(tuple(row) for row in files.collect()) == [
        ("city=Oslo", "base", 3, True),
        ("city=Oslo", "log", 0, True),
        ("city=Rome", "base", 1, True),
        ("city=Rome", "log", 1, True),
    ]
    sql.sql("call mdt.clean('served', retain_commits => 1)")
    states = sql.sql(
        f"select seq, tags from mdt_snapshots('{tmp_path / 't'}') order by seq"
    ).collect()
    assert (states[0]["seq"], states[0]["tags"]) == (1, ["old"]) and states[-1]["seq"] == 5
    for row in states:
        assert sql.sql(f"select count(*) from served version as of {row['seq']}").count() == 1


def test_show_create_table_makes_an_equal_table(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql("drop table if exists shown")
    sql.sql(f"""
        create table shown (id string not null comment 'it''s a key', n decimal(9, 2) not null, s struct<a: int, b: array<date>>, city string)
        using mdt options (key 'id', ordering 'n', type 'cow', scope 'table', indexes 'bitmap(city);text(id, tokenizer=''word'')', `mdt.compression` 'zstd')
        partitioned by (city) location '{tmp_path / "shown"}'
    """)
    sql.sql("alter table shown add column m bigint comment 'more' after id")
    row = sql.sql("show create table shown").first()
    assert row is not None
    text = row["createtab_stmt"]
    columns = sql.sql("describe shown").collect()
    sql.sql("drop table shown")
    sql.sql(text.replace(str(tmp_path / "shown"), str(tmp_path / "again")))
    assert sql.sql("describe shown").collect() == columns
    first, again = (mdt.open(tmp_path / name).definition for name in ("shown", "again"))
    for name in (
        "declared",
        "key",
        "partition_by",
        "ordering",
        "table_type",
        "scope",
        "key_index",
        "indexes",
        "options",
    ):
        assert getattr(again, name) == getattr(first, name), name
    sql.sql("drop table shown")


REFUSED = [
    ("call mdt.nope('served')", "one of compact, cluster"),
    ("call mdt.compact()", "which table"),
    ("call mdt.compact('nowhere')", "no table nowhere"),
    ("call mdt.compact('served', nope => 1)", "an argument of mdt.compact"),
    ("call mdt.compact('served', budget_bytes => 'x')", "budget_bytes => 'x'"),
    ("call mdt.untag('served', 'a', 'false', 'b')", "takes 3 arguments"),
    ("call mdt.untag('served', 'a', name => 'b')", "given twice|positional"),
    ("call mdt.restore('served', 99)", "no commit 99"),
    ("call other.compact('served')", "(?i)other|procedures"),
    ("select * from mdt_changes('served')", "takes a table, since"),
    ("select * from mdt_history()", "mdt_history takes a table"),
    ("select * from mdt_files('served', 1)", "mdt_files takes a table"),
    ("select * from mdt_snapshots(path => 'served')", "mdt_snapshots takes a table"),
    ("select * from mdt_files('nowhere')", "no table nowhere"),
    ("select * from mdt_changes('served', 99)", "99"),
    ("select * from served where match(note)", "takes a text, words"),
    ("select * from served where match(note, id)", "id is no constant"),
    ("select * from served where match(note, words => 'x')", "is no constant"),
    ("select * from mdt_changes(table => 'served')", "takes a table, since"),
    ("select * from mdt_changes('served', 1, up_to => 2)", "takes a table, since"),
    ("select * from mdt_changes('served', 1, 2, 'all', 5)", "takes a table, since"),
    ("select * from served where match(note, 'x', 'nope')", "nope"),
]


def test_what_is_no_procedure_or_function_of_ours_is_refused(sql: SparkSession) -> None:
    for statement, reason in REFUSED:
        with pytest.raises(PySparkException, match=reason):
            sql.sql(statement).collect()


def test_changes_are_a_table(sql: SparkSession, tmp_path: Path) -> None:
    sql.sql("delete from served where id = 'c'")
    net = "select id || _change from mdt_changes('served', 1)"
    assert ids(sql, net) == ["bupdate_after", "bupdate_before", "cdelete"]
    assert ids(
        sql.newSession(),
        "select id from mdt_changes('served', 'earliest', 1, 'all') where city = 'Oslo'",
    ) == ["a", "c", "d"]
    both = (
        "select a.id from mdt_changes('served', 0, 1) a join mdt_changes('served', 1, 2) b on a.id"
        " = b.id where b._change = 'update_after'"
    )
    assert ids(sql, both) == ["b"]
    named = (
        "select id || _change from mdt_changes(since => 0, until => 1, table => 'served', changes"
        " => 'all')"
    )
    assert ids(sql, named) == ids(
        sql, "select id || _change from mdt_changes('served', 0, 1, 'all')"
    )


def test_match_is_the_operator_of_filters_wherever_it_stands(sql: SparkSession) -> None:
    for query in ("black umbrella", "BLACK", "white", "", "bird", "umbrella nothing"):
        found = ids(sql, f"select id from served where match(note, '{query}')")
        assert found == sorted(
            row["id"] for row in sql.table("served").where(mdt.spark.match("note", query)).collect()
        )
    assert ids(sql, "select id from served where match(note, 'black umbrella')") == ["a", "d"]
    assert ids(
        sql,
        "select id from served where match(concat(note, 'bird'), 'umbrellabird') or match(note,"
        " 'hit', 'ngram(3)')",
    ) == ["a", "b"]
    assert ids(
        sql, "select id from (select id, match(note, 'black') m from served) where m is null"
    ) == ["c"]
    assert tuple(sql.sql("delete from served where match(note, 'umbrella')").first() or ()) == (2,)
    assert ids(sql, "select id from served") == ["b", "c"]

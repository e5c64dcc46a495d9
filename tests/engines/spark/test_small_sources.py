"""MERGE of a small source in Spark's SQL: its rows are made once, and rows of the table are looked
for that they may match.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from executed_plans import PRUNING
from reader import bag
from sql_tables import BEFORE, TABLE, counts, kept, path, settings

import mdt
from mdt.engines.spark import frame, frame_input

EACH_COLUMN = {
    "id": "7L",
    "city": "'Rome'",
    "n": "9",
    "name": "'BACK\\\\SLASH'",
    "day": "date'1969-12-31'",
    "price": "1.50",
    "fare": "2.0D",
}
INSERT = "when not matched then insert (id, city, n, ts) values (s.id, s.city, s.n, s.ts)"
BY_KEY = f"merge into {TABLE} t using given s on t.id = s.id and t.city = s.city"


def numbers(sql, where):
    """Return what rows of the table have in ``n``."""
    return mdt.open(path(sql)).scan(where).to_arrow()["n"].to_pylist()


@pytest.mark.parametrize("column", EACH_COLUMN)
def test_a_small_source_is_made_once_and_reads_what_it_may_match(sql, monkeypatch, column):
    asked = []
    listed = frame._TableLister.list

    def noted(files, query, where, rows=None):
        asked.append(str(where))
        return listed(files, query, where, rows)

    monkeypatch.setattr(frame._TableLister, "list", noted)
    kept(sql)
    given = sql.sql(
        f"""select distinct {column} c, rand() r from {BEFORE} where id % 5 = 2 union
            select null, 0 union select cast({EACH_COLUMN[column]} as string) c, 0"""
    )
    kind = dict(sql.table(BEFORE).dtypes)[column]
    given = given.selectExpr(f"cast(c as {kind}) c", "r").dropDuplicates(["c"])
    given.createOrReplaceTempView("given")
    clauses = """when matched and t.id + s.r > 20 then update set ok = not coalesce(t.ok, false)
        when matched then delete"""
    found, narrow = [], []
    with settings(sql, {PRUNING: "false"}):  # which would find the same
        for on in (f"t.{column} = s.c", f"coalesce(t.{column}) = s.c"):
            asked.clear()
            merged = counts(sql, f"merge into {TABLE} t using given s on {on} {clauses}")
            found.append((merged, bag(mdt.open(path(sql)).scan().to_arrow())))
            narrow.append(any(f"Leaf(column='{column}', op='in'" in one for one in asked))
            mdt.open(path(sql)).restore(1)
    assert found[0] == found[1] and found[0][0][0] > 0
    assert narrow == [True, False]


@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = s.id and t.n >= 0"])
def test_a_source_that_reads_the_table_is_made_again_with_the_edits(sql, on):
    sql.sql(f"update {TABLE} set n = 0 where id = 5")
    source = f"(select id, n + 1 n from {TABLE} where id = 5)"
    text = f"merge into {TABLE} t using {source} s on {on} when matched then update set n = s.n"

    def add(_):
        for _ in range(3):
            assert counts(sql, text)[1] == 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))
    assert numbers(sql, "id = 5") == [6]


@pytest.mark.parametrize(
    ("text", "test"), [("10", "cast(s.c as bigint)"), ("abcd", "10 div (length(s.c) - 3)")]
)
def test_what_the_condition_leaves_out_is_no_error(sql, text, test):
    given = f"select * from values ('n', '{text}'), ('text', 'abc') as v(kind, c)"
    sql.sql(given).createOrReplaceTempView("given")
    on = f"s.kind = 'n' and t.id = {test} when matched and t.id > 1 then update set n = 77"
    assert counts(sql, f"merge into {TABLE} t using given s on {on}") == (1, 1, 0, 0)
    assert numbers(sql, "id = 10") == [77]


def test_rows_are_inserted_however_large_spark_takes_the_join_for(sql):
    given = sql.range(1_000).selectExpr("id * 2 id", "'Oslo' city", "1 n", "5L ts")
    given.createOrReplaceTempView("given")
    there = mdt.open(path(sql)).scan("id % 2 = 0 and city = 'Oslo'").count()
    update = "when matched then update set n = t.n + s.n"
    assert counts(sql, f"{BY_KEY} {update} {INSERT}") == (1_000, there, 0, 1_000 - there)
    assert mdt.open(path(sql)).check().ok


@pytest.mark.parametrize("rows", [150, 40])
def test_edits_of_a_size_that_nobody_knows_are_looked_at_once(sql, monkeypatch, rows):
    looked = []
    whole = type(sql.range(1)).limit

    def limit(self, count):
        looked.append(frame_input.estimated_bytes(self))
        return whole(self, count)

    monkeypatch.setattr(frame_input, "_PROBE_ROWS", 100)
    monkeypatch.setattr(type(sql.range(1)), "limit", limit)
    given = sql.sparkContext.parallelize([(n, "Oslo", n, 5) for n in range(1_000, 1_000 + rows)])
    columns = "id long, city string, n long, ts long"
    sql.createDataFrame(given, columns).createOrReplaceTempView("given")
    said = f"{BY_KEY} when matched then update set n = s.n {INSERT}"
    assert counts(sql, said) == (rows, 0, 0, rows)
    assert len(looked) == 1 and looked[0] >= frame_input._UNKNOWN_BYTES

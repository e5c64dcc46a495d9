"""MERGE of a small source in Spark's SQL: the source is evaluated once, and only rows of the table
that may match it are read.
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
    """Return the values of ``n`` in matching rows of the table."""
    return mdt.open(path(sql)).scan(where).to_arrow()["n"].to_pylist()


@pytest.mark.parametrize("column", EACH_COLUMN)
def test_a_small_source_is_evaluated_once_and_narrows_the_rows_that_are_read(
    sql, monkeypatch, column
):
    predicates = []
    original_list = frame._TableLister.list

    def record_and_list(files, query, where, rows=None):
        predicates.append(str(where))
        return original_list(files, query, where, rows)

    monkeypatch.setattr(frame._TableLister, "list", record_and_list)
    kept(sql)
    source = sql.sql(
        f"""select distinct {column} c, rand() r from {BEFORE} where id % 5 = 2 union
            select null, 0 union select cast({EACH_COLUMN[column]} as string) c, 0"""
    )
    kind = dict(sql.table(BEFORE).dtypes)[column]
    source = source.selectExpr(f"cast(c as {kind}) c", "r").dropDuplicates(["c"])
    source.createOrReplaceTempView("given")
    clauses = """when matched and t.id + s.r > 20 then update set ok = not coalesce(t.ok, false)
        when matched then delete"""
    outcomes, is_narrowed = [], []
    with settings(sql, {PRUNING: "false"}):  # it would narrow the scan in the same way
        for on in (f"t.{column} = s.c", f"coalesce(t.{column}) = s.c"):
            predicates.clear()
            merged = counts(sql, f"merge into {TABLE} t using given s on {on} {clauses}")
            outcomes.append((merged, bag(mdt.open(path(sql)).scan().to_arrow())))
            is_narrowed.append(
                any(f"Leaf(column='{column}', op='in'" in predicate for predicate in predicates)
            )
            mdt.open(path(sql)).restore(1)
    assert outcomes[0] == outcomes[1] and outcomes[0][0][0] > 0
    assert is_narrowed == [True, False]


@pytest.mark.parametrize("on", ["t.id = s.id", "t.id = s.id and t.n >= 0"])
def test_a_source_that_reads_the_table_is_evaluated_again_after_a_conflict(sql, on):
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
def test_source_rows_excluded_by_the_condition_raise_no_error(sql, text, test):
    source = f"select * from values ('n', '{text}'), ('text', 'abc') as v(kind, c)"
    sql.sql(source).createOrReplaceTempView("given")
    on = f"s.kind = 'n' and t.id = {test} when matched and t.id > 1 then update set n = 77"
    assert counts(sql, f"merge into {TABLE} t using given s on {on}") == (1, 1, 0, 0)
    assert numbers(sql, "id = 10") == [77]


def test_rows_are_inserted_whatever_size_spark_estimates_for_the_join(sql):
    source = sql.range(1_000).selectExpr("id * 2 id", "'Oslo' city", "1 n", "5L ts")
    source.createOrReplaceTempView("given")
    existing = mdt.open(path(sql)).scan("id % 2 = 0 and city = 'Oslo'").count()
    update = "when matched then update set n = t.n + s.n"
    assert counts(sql, f"{BY_KEY} {update} {INSERT}") == (1_000, existing, 0, 1_000 - existing)
    assert mdt.open(path(sql)).check().ok


@pytest.mark.parametrize("rows", [150, 40])
def test_edits_of_unknown_size_are_probed_once(sql, monkeypatch, rows):
    probed_bytes = []
    original_limit = type(sql.range(1)).limit

    def limit(self, count):
        probed_bytes.append(frame_input.estimated_bytes(self))
        return original_limit(self, count)

    monkeypatch.setattr(frame_input, "_PROBE_ROWS", 100)
    monkeypatch.setattr(type(sql.range(1)), "limit", limit)
    source = sql.sparkContext.parallelize([(n, "Oslo", n, 5) for n in range(1_000, 1_000 + rows)])
    columns = "id long, city string, n long, ts long"
    sql.createDataFrame(source, columns).createOrReplaceTempView("given")
    statement = f"{BY_KEY} when matched then update set n = s.n {INSERT}"
    assert counts(sql, statement) == (rows, 0, 0, rows)
    assert len(probed_bytes) == 1 and probed_bytes[0] >= frame_input._UNKNOWN_BYTES

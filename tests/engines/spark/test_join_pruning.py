"""The values of one side of a join prune the files of the other, also through other joins and
aggregates. The rows stay the same and fewer files are read.
"""

from datetime import date, timedelta

import pyarrow as pa
import pytest
from executed_plans import as_text, files_read, measured, optimized, plain, run, views
from sql_tables import settings

import mdt

FILES, ROWS = 12, 50
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
ALONE = {"mdt.services.auto": "false"}


def sales(day):
    ids = range(day * ROWS, (day + 1) * ROWS)
    prices = pa.array([None if i % 9 == 0 else i for i in ids], pa.decimal128(9, 2))
    days = pa.array([day] * ROWS, pa.int32())
    cities = [f"c{i % 7}" for i in ids]
    return pa.table({"id": ids, "day": days, "city": cities, "price": prices, "note": ["n"] * ROWS})


@pytest.fixture(scope="module")
def joined(spark, tmp_path_factory):
    """A session with the views ``sales``, with a file for each day and one row in a log file, and
    ``days``.
    """
    root = tmp_path_factory.mktemp("joined")
    table = mdt.create(
        root / "sales", sales(0).schema, "id", indexes=["bitmap(city)"], options=ALONE
    )
    for day in range(FILES):
        table.bulk_insert(sales(day))
    table.build_indexes()
    table.upsert(sales(3).slice(0, 1))
    numbers = pa.array(range(FILES + 2), pa.int32())
    rows = {
        "day": numbers,
        "name": [f"d{i}" for i in range(FILES + 2)],
        "big": numbers.cast("int64"),
    }
    days = mdt.create(root / "days", pa.table(rows).schema, "day")
    days.insert(pa.table(rows))
    with views(spark, sales=table, days=days) as session:
        yield session


JOIN = "select s.id from sales s join days d on s.day = d.day"
PRUNED = {
    "inner": (f"{JOIN} where d.name in ('d2', 'd5')", 2),
    "inner, other order": (
        "select s.id, d.name from days d join sales s on s.day = d.day where d.name = 'd2'",
        1,
    ),
    "in": ("select id from sales where day in (select day from days where name = 'd7')", 1),
    "exists": (
        """select id from sales s where exists
           (select 1 from days d where d.day = s.day and d.name = 'd7')""",
        1,
    ),
    "cast": ("select s.id from sales s join days d on s.day = d.big where d.name = 'd11'", 1),
    "below an aggregate": (
        """select s.day, n from (select day, count(note) n from sales group by day) s
           join days d on s.day = d.day where d.name = 'd4'""",
        1,
    ),
    "below a join": (
        """select s.id from sales s left join days e on s.day = e.day
           join days d on s.day = d.day where d.name = 'd4'""",
        1,
    ),
    "another name": (
        """select x from (select id, day x from sales where id >= 0) join days on x = day
           where name = 'd1'""",
        1,
    ),
    "nothing": (f"{JOIN} where d.name = 'd13'", 0),
    "values": ("select s.id from sales s join (values (3), (4)) v(day) on s.day = v.day", 3),
    "a scalar": ("select id from sales where day = (select max(day) - 2 from days)", 1),
    "a bound": (
        "select id from sales where day > (select max(day) - 4 from days where name < 'd2')",
        2,
    ),
}
WHOLE = {
    "left": "select s.id, d.name from sales s left join days d on s.day = d.day and d.name = 'd2'",
    "anti": """select id from sales s where not exists
               (select 1 from days d where d.day = s.day and d.name = 'd7')""",
    "full": """select s.id, d.name from sales s full join
               (select * from days where name = 'd1') d on s.day = d.day""",
    "no filter": JOIN,
    "a window": """select id, r from (select id, day, rank() over (order by id) r from sales) s
                   join days d on s.day = d.day where name = 'd3'""",
    "a limit": """select id from (select * from sales order by note, id limit 70) s
                  join days d on s.day = d.day where name = 'd1'""",
    "a number of each row": """select x from
        (select monotonically_increasing_id() x, day from sales) s
        join days d on s.day = d.day where name = 'd1'""",
}


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("which", PRUNED)
def test_only_files_with_values_of_the_other_side_are_read(joined, which, adaptive):
    query, files = PRUNED[which]
    with settings(joined, {"spark.sql.adaptive.enabled": adaptive}):
        rows, read = run(joined.sql(query))
        assert as_text(rows) == plain(joined, query)
    assert bool(rows) == (files > 0) and max(read) <= max(files, 1)


@pytest.mark.parametrize("which", WHOLE)
def test_nothing_is_pruned_if_the_result_needs_rows_without_a_match(joined, which):
    rows, read = run(joined.sql(WHOLE[which]))
    assert rows and as_text(rows) == plain(joined, WHOLE[which])
    assert max(read) == FILES + 1


def test_joins_without_a_broadcast_prune_no_files_and_allow_bloom_filters_of_spark(
    joined,
):
    bloom = "spark.sql.optimizer.runtime.bloomFilter"
    more = {f"{bloom}.enabled": "true", f"{bloom}.applicationSideScanSizeThreshold": "0"}
    with settings(joined, {BROADCAST: "-1"}):
        rows, read = run(joined.sql(PRUNED["inner"][0]))
        assert len(rows) == 2 * ROWS and max(read) == FILES + 1
        with settings(joined, more):
            frame = joined.sql(PRUNED["inner"][0])
            assert run(frame) == (rows, read)
            assert "might_contain" in optimized(frame).toString()


def test_an_index_selects_the_rows_with_the_values_of_the_other_side(joined):
    frame = joined.sql("select s.id from sales s join (values ('c3')) v(city) on s.city = v.city")
    rows = frame.collect()
    assert {row["id"] % 7 for row in rows} == {3}
    assert measured(frame, "numOutputRows") == [len(rows)]


def test_many_values_prune_by_their_range_and_long_values_are_accepted(joined):
    many = """select /*+ broadcast(r) */ s.id from sales s
        join (select cast(id + 300 as int) day from range(20000)) r on s.day = r.day where r.day > 2"""
    long = """select /*+ broadcast(r) */ s.id from sales s
        join (select repeat(concat('c', id), 3000) city from range(200)) r on s.city = r.city"""
    assert run(joined.sql(many)) == ([], [0])
    assert joined.sql(long).collect() == []


def test_union_branches_that_join_different_rows_are_pruned_separately(
    joined,
):
    branch = JOIN.replace("s.id", "s.note, count(*) n") + " where d.name = '{}' group by s.note"
    query = f"""select n from ({branch.format("d1")}) union all select n from ({branch.format("d2")})
                union all select count(*) from sales"""
    assert sorted(row[0] for row in joined.sql(query).collect()) == [ROWS, ROWS, FILES * ROWS]


def test_two_joins_prune_one_scan(joined):
    more = "join (values ('c1'), ('c2')) v(city) on s.city = v.city where d.name = 'd6'"
    rows, read = run(joined.sql(f"{JOIN} {more}"))
    assert {(row["id"] // ROWS, row["id"] % 7 in (1, 2)) for row in rows} == {(6, True)}
    assert max(read) == 1


@pytest.mark.parametrize(("optimize", "files"), [("none", 3), ("top, joins", 1)])
def test_a_session_can_switch_join_pruning_on_and_off(joined, tmp_path, optimize, files):
    table = mdt.create(tmp_path / "t", sales(0).schema, "id")
    for day in range(3):
        table.bulk_insert(sales(day))
    query = "select count(t.note) n from {t} t join days d on t.day = d.day where d.name = 'd1'"
    with settings(joined, {"spark.mdt.optimize": optimize}):
        rows, read = run(joined.sql(query, t=mdt.read(joined, table.path)))
    assert rows[0]["n"] == ROWS and max(read) == files


def test_a_pruning_predicate_on_an_aggregate_is_not_pushed_below_it(joined):
    query = """select s.m from (select day, max(day) m from sales group by day) s
               join days d on s.m = d.day where d.name = 'd3'"""
    with settings(joined, {"spark.sql.planChangeValidation": "true"}):
        assert [row["m"] for row in joined.sql(query).collect()] == [3]
        assert run(joined.sql(PRUNED["inner"][0]))[1][0] == 2


@pytest.mark.parametrize(
    ("side", "condition", "asks"), [("d", "d.name = 'd2'", True), ("s", "s.id < 60", False)]
)
def test_a_single_small_file_is_not_pruned_by_the_other_side(joined, side, condition, asks):
    """It would be read before the values of the other side are known."""
    query = f"select /*+ broadcast({side}) */ s.id, d.name from days d join sales s"
    frame = joined.sql(f"{query} on s.day = d.day where {condition}")
    assert (pruning_predicates(frame) > 0) == asks


def pruning_predicates(frame):
    """Return the number of dynamic pruning predicates in the optimized plan."""
    return int(optimized(frame).treeString().count("dynamicpruning#"))


# --- through other joins and aggregates ------------------------------------------------------

SOLD, KEYS, PARTS = 3000, 300, 6
DAY = date(1969, 12, 1)


def columns(numbers):
    """Return the join columns for a list of numbers. All but ``spread`` rise from file to file."""
    values = {
        "whole": (pa.int32(), lambda i: i - 150),
        "big": (pa.int64(), lambda i: (i - 150) * (2**55)),
        "day": (pa.date32(), lambda i: DAY + timedelta(i)),
        "name": (pa.string(), lambda i: f"n{i:03}"),
        "spread": (pa.int32(), lambda i: i * 7 % KEYS),
    }
    return {
        name: pa.array([None if i is None else value(i) for i in numbers], kind)
        for name, (kind, value) in values.items()
    }


@pytest.fixture(scope="module")
def sold(spark, tmp_path_factory):
    """A session with the views ``sold``, with PARTS files, and ``parts``. Row i of ``parts`` has
    the column values of number i.
    """
    root = tmp_path_factory.mktemp("sold")
    numbers = [None if i % 11 == 0 else i * KEYS // SOLD for i in range(SOLD)]
    rows = pa.table({"id": range(SOLD), "amount": range(SOLD), **columns(numbers)})
    table = mdt.create(root / "sold", rows.schema, "id", options=ALONE)
    for at in range(0, SOLD, SOLD // PARTS):
        table.bulk_insert(rows.slice(at, SOLD // PARTS))
    table.upsert(rows.slice(10, 40))
    kinds = [f"k{i // 6}" for i in range(KEYS)]
    rows = pa.table({"part": range(KEYS), "kind": kinds, **columns(list(range(KEYS)))})
    parts = mdt.create(root / "parts", rows.schema, "part")
    parts.insert(rows)
    with views(spark, sold=table, parts=parts) as session:
        yield session


FAR = {
    "an average, of a side made of a small one": (
        """select sum(s.amount) from sold s, parts p where p.whole = s.whole and p.kind = 'k3'
           and s.amount < (select 1.1 * avg(amount) from sold t where t.whole = p.whole)""",
        1,
    ),
    "below a join that sorts": (
        """select /*+ merge(t) */ count(*) n from sold s join sold t on s.id = t.id
           join parts p on s.name = p.name where p.kind = 'k9'""",
        1,
    ),
    "a semi-join below": (
        """select s.n from
           (select whole, day from sold where day in (select day from parts where kind = 'k5')) x
           join (select day, count(*) n from sold group by day) s on s.day = x.day""",
        0,
    ),
    "the right side of an outer join": (
        """select p.part, s.n from
           (select q.part, t.big from parts q join sold t on q.big = t.big where q.kind = 'k2') p
           left join (select big, sum(amount) n from sold group by big) s on p.big = s.big""",
        1,
    ),
    "the right side of an anti-join": (
        """select t.id from sold t join parts q on q.whole = t.whole and q.kind = 'k2'
           where not exists (select 1 from (select whole, max(amount) m from sold group by whole) s
           where s.whole = t.whole and s.m > t.amount)""",
        0,
    ),
    "a question that nobody answers": (
        """select /*+ merge(p) */ p.part, s.n from parts p
           join (select whole, count(*) n from sold group by whole) s on p.whole = s.whole
           where p.kind = 'k1'""",
        0,
    ),
    "two keys": (
        """select p.part, s.n from parts p
           join (select whole, name, sum(amount) n from sold group by whole, name) s
           on p.whole = s.whole and p.name = s.name where p.kind = 'k8'""",
        1,
    ),
    "both sides could ask": (
        """select count(*) n from (select s.whole, p.name from sold s
           join parts p on s.whole = p.whole where p.kind < 'k2') a
           join (select s.whole, p.day from sold s join parts p on s.whole = p.whole
           where p.kind > 'k4') b on a.whole = b.whole""",
        0,
    ),
}
"""Queries, and whether pruning surely skips files."""


@pytest.mark.parametrize("threshold", ["-1", "40KB", "10MB"])
@pytest.mark.parametrize("which", FAR)
def test_rows_do_not_depend_on_which_side_prunes(sold, which, threshold):
    query, leaves_out = FAR[which]
    with settings(sold, {BROADCAST: threshold}):
        frame = sold.sql(query)
        rows = as_text(frame.collect())
        assert rows == plain(sold, query)
        assert as_text(frame.collect()) == rows, "the same when the frame runs again"
    if leaves_out and threshold == "10MB":
        assert min(files_read(frame)[:-1]) < PARTS


def test_a_long_chain_of_joins_gets_a_bounded_number_of_pruning_predicates(sold):
    tables = ", ".join(f"parts p{i}" for i in range(14))
    joins = " and ".join(f"p{i}.part = p{i + 1}.part and p{i}.kind < 'k4'" for i in range(13))
    grouped = "(select big, count(*) n from sold group by big) s"
    query = f"select count(*), sum(n) from {grouped}, {tables} where s.big = p0.big and {joins}"
    frame = sold.sql(query)
    assert 0 < pruning_predicates(frame) < 300
    assert as_text(frame.collect()) == plain(sold, query)


@pytest.mark.parametrize("costs", ["true", "false"])
@pytest.mark.parametrize(
    ("ours", "theirs", "asks"), [("SPREAD", "spread", False), ("whole", "Whole", True)]
)
def test_no_pruning_predicate_is_added_for_a_column_spread_over_all_files(
    sold, costs, ours, theirs, asks
):
    join = f"sold s join parts p on s.{ours} = p.{theirs} where p.kind = 'k2'"
    query = f"select sum(s.amount) n from {join}"
    with settings(sold, {"spark.sql.cbo.enabled": costs, BROADCAST: "10MB"}):
        frame = sold.sql(query)
        assert (pruning_predicates(frame) > 0) == asks
        assert as_text(frame.collect()) == plain(sold, query)

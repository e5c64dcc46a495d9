"""ORDER BY … LIMIT, LIMIT, and count, min and max return the same rows and read few files or none."""

import math

import pyarrow as pa
import pytest
from executed_plans import nodes, run, views
from sql_tables import cases, lines, settings, stored

import mdt

FILES, ROWS = 8, 40


def rows(file):
    ids = list(range(file * ROWS, (file + 1) * ROWS))
    long = "x" * 70  # longer than stored bounds
    fares = [float("nan") if file == 7 and i % 5 == 0 else float(i) for i in ids]
    moments = [None if i % 6 == 0 else i for i in ids]
    columns = {
        "id": ids,
        "day": pa.array([20_000 + file] * ROWS, pa.date32()),
        "name": [f"{long}{file}é{i}" if i % 2 else f"n{file}{i % 7}" for i in ids],
        "price": pa.array(ids, pa.decimal128(9, 2)),
        "fare": [fare or -0.0 for fare in fares],
        "at": pa.array(moments, pa.timestamp("us", "UTC")),
        "ok": [i % 3 == 0 for i in ids],
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Eight files in the order of every column. Two rows of the last file and one of the third are
    deleted.
    """
    path = tmp_path_factory.mktemp("first") / "t"
    table = stored(path, rows(0), options={"mdt.services.auto": "false"})
    for file in range(1, FILES):
        table.bulk_insert(rows(file))
    table.delete({"id": [FILES * ROWS - 1, FILES * ROWS - 5, 2 * ROWS + 1]})
    return table


@pytest.fixture(scope="module")
def ordered(spark, table):
    with views(spark, ordered=table) as session:
        spark.createDataFrame(table.scan().to_arrow()).createOrReplaceTempView("plain")
        yield session


def assert_same_as_plain(spark, query):
    """Return the rows of a query and the number of files that it read. Asserts that the same query
    on plain rows returns the same.
    """
    frame = spark.sql(query.format("ordered"))
    expected = spark.sql(query.format("plain"))
    rows, files = run(frame)
    assert str(rows) == str(expected.collect()) and frame.columns == expected.columns
    return rows, sum(files)


TOP = cases(
    """
    id -> 1
    id desc -> 1
    day desc, id -> 1
    day, id desc -> 1
    price desc -> 1
    price -> 1
    at desc nulls last -> 1
    at desc nulls first, id -> 8
    at nulls last -> 1
    fare, id -> 1
    fare desc, id -> 2
    name, id -> 8
    name desc, id -> 8
    ok, id -> 8
    id + 1 -> 8
    """
)
AROUND = cases(
    """
    select id from {} order by id desc limit 5 offset 45 -> 2
    select i + 1 from (select id i, day d from {}) order by d desc, i limit 3 -> 1
    select id from {} where day >= date'1970-01-01' + 20004 order by id limit 3 -> 1
    select id from {} where id > 100 and id % 7 = 3 order by id limit 3 -> 6
    select id from {} where id > 100 order by id limit 43 -> 3
    select count(*) from (select * from {} order by id limit 12) where name > 'a' -> 1
    select a.id from (select id from {} order by id desc limit 3) a join plain b on a.id = b.id order by 1 -> 1
    select id from {} order by id limit 100000 -> 8
    select id from {} order by id limit 0 -> 0
    """
)
FIRST = "select id, cast(fare as string) f, name from {{}} order by {} limit 7"


@pytest.mark.parametrize(
    ("query", "most"), [*((FIRST.format(order), most) for order, most in TOP), *AROUND]
)
def test_order_by_with_limit_reads_few_files_and_returns_the_first_rows(ordered, query, most):
    """``most``: the maximum number of files that are read."""
    assert assert_same_as_plain(ordered, query)[1] <= int(most)


LIMITS = cases(
    """
    select * from ordered limit 10 -> 10 -> 1
    select id + 1 from ordered limit 100 -> 100 -> 3
    select id from ordered where day = date'1970-01-01' + 20002 limit 10 -> 10 -> 1
    select id from ordered where id > 50 limit 10 -> 10 -> 1
    select id from ordered where id % 2 = 0 limit 10 -> 10 -> 8
    select explode(sequence(1, count(day))) from (select * from ordered limit 41) -> 41 -> 2
    select * from ordered limit 1000 -> 317 -> 8
    """
)


@pytest.mark.parametrize(("query", "number", "most"), LIMITS)
def test_a_limit_reads_only_files_with_enough_rows(ordered, query, number, most):
    rows, files = run(ordered.sql(query))
    assert len(rows) == int(number) and sum(files) <= int(most)


FROM_METADATA = lines(
    """
    select count(*) from {}
    select count(1), count(id), count(day) from {}
    select min(id), min(price), min(ok), max(ok) from {}
    select min(name) from {}
    select count(*) + min(id) as both from {}
    select count(null) from {}
    select min(id), 'c' as c from {}
    select count(*), min(id) from {} where day > date'1970-01-01' + 20003
    select count(*), min(id) from {} where id < 80
    select count(*), min(id) from {} where name is not null and id >= 120
    select count(*), min(id) from {} where id < 0
    select count(*), min(id) from {} where rand() < 0.5 or id >= 0
    select count(*), min(id) from {} where rand() < 0.5 and id < 0
    """
)
FROM_ROWS = lines(
    """
    select min(day), max(price), max(at) from {}
    select max(name) from {}
    select max(id) from {}
    select count(at) from {}
    select max(fare) from {}
    select sum(id) from {}
    select count(distinct day) from {}
    select count(*) filter (where id > 3) from {}
    select min(day) = max(day) as same from {}
    select count(id + 1) from {}
    select count(*), min(id) from {} where id < 81
    select count(*), min(id) from {} where at > timestamp_micros(100)
    select count(*), min(id) from {} where id in (1, 2)
    select count(*), min(id) from {} where id % 2 = 0
    """
)
"""FROM_METADATA: totals that come from metadata, also with conditions that select whole files.
FROM_ROWS: totals that need rows.
"""


@pytest.mark.parametrize(
    ("query", "is_told"), [*((q, True) for q in FROM_METADATA), *((q, False) for q in FROM_ROWS)]
)
def test_totals_come_from_metadata_where_possible_and_equal_those_of_the_rows(
    ordered, query, is_told
):
    assert (not assert_same_as_plain(ordered, query)[1]) == is_told


def test_a_count_uses_the_version_that_the_rest_of_the_query_reads(ordered, tmp_path):
    table = stored(tmp_path / "t", rows(0))
    frame = mdt.read(ordered, table.path)
    frame.createOrReplaceTempView("growing")
    assert frame.count() == ROWS
    counts = ordered.sql("select (select count(*) from growing) n, count(name) m from growing")
    table.bulk_insert(rows(1))
    assert frame.count() == 2 * ROWS and mdt.read(ordered, table.path, as_of=1).count() == ROWS
    assert counts.collect()[0] in [(n, n) for n in (ROWS, 2 * ROWS)]
    ordered.catalog.dropTempView("growing")


def test_totals_from_metadata_are_local_rows_and_run_no_job(ordered):
    frame = ordered.sql("select count(*), min(id) from ordered")
    frame.collect()
    assert [node.nodeName() for node in nodes(frame)] == ["LocalTableScan"]


@pytest.mark.parametrize("what", ["none", "joins"])
def test_a_session_can_switch_these_optimizations_off(ordered, table, what):
    with settings(ordered, {"spark.mdt.optimize": what}):
        frame = mdt.read(ordered, table.path)
        for query in (frame.orderBy("id").limit(3), frame.selectExpr("count(*)")):
            assert sum(run(query)[1]) == FILES


def test_an_unknown_name_in_spark_mdt_optimize_is_refused(ordered, table):
    with (
        settings(ordered, {"spark.mdt.optimize": "tops"}),
        pytest.raises(mdt.errors.Invalid, match="top"),
    ):
        mdt.read(ordered, table.path)


@pytest.mark.parametrize("optimize", ["all", "top", "top, totals"])
def test_a_limit_counts_only_rows_that_satisfy_every_condition(ordered, table, optimize):
    with settings(ordered, {"spark.mdt.optimize": optimize}):
        frame = mdt.read(ordered, table.path)
    query = "select id from {t} where id >= (select max(id) - 9 from {t}) limit 5"
    assert len(ordered.sql(query, t=frame).collect()) == 5


@pytest.mark.parametrize("order", ["x desc", "x", "x desc nulls first", "x nulls last"])
def test_the_first_rows_are_right_with_infinities_nan_and_nulls(ordered, tmp_path, order):
    inf, nan = math.inf, math.nan
    table = None
    for file, values in enumerate([[inf, 1.0], [inf], [-inf], [None, 1.5], [nan], [-inf, nan]]):
        columns = {"x": pa.array(values, pa.float64()), "y": pa.array(values, pa.float32())}
        data = pa.table({"id": [10 * file + i for i in range(len(values))], **columns})
        if table is None:
            options = {"mdt.small.file.bytes": 0}
            table = mdt.create(tmp_path / "t", data.schema, "id", options=options)
        table.insert(data)
    frames = (mdt.read(ordered, table.path), ordered.createDataFrame(table.scan().to_arrow()))
    for limit in (1, 2, 3, 6):
        wide = f"select x from {{t}} order by {order} limit {limit}"
        for query in (wide, wide.replace("x", "y")):
            in_mdt, expected = (str(ordered.sql(query, t=frame).collect()) for frame in frames)
            assert in_mdt == expected, query

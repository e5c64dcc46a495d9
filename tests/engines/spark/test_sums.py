"""Sums and averages of decimals as whole numbers: the same answers as Spark's own, and only where bounds prove that they fit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sql_tables import settings

import mdt
from mdt.engines.spark import private

OPTIMIZE = "spark.mdt.optimize"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("price", pa.decimal128(15, 2)),
        ("share", pa.decimal128(12, 4)),
        ("wide", pa.decimal128(38, 6)),
        ("many", pa.int32()),
        ("long", pa.int64()),
    ]
)
LONG_MOST = 2**63 - 1


def rows(seed: int, first: int, count: int) -> pa.Table:
    chosen = random.Random(seed)

    def decimals(digits: int, scale: int) -> list[Decimal | None]:
        most = 10**digits - 1
        return [
            None if chosen.random() < 0.1 else Decimal(chosen.randint(-most, most)).scaleb(-scale) for _ in range(count)
        ]

    columns = [
        list(range(first, first + count)), [chosen.choice("abc") for _ in range(count)],
        decimals(8, 2), decimals(6, 4), decimals(13, 6),
        [chosen.choice([None, chosen.randint(-1000, 1000)]) for _ in range(count)],
        [chosen.randint(-(10**6), 10**6) for _ in range(count)],
    ]  # fmt: skip
    return pa.table([pa.array(v, t) for v, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


@contextmanager
def views(spark: SparkSession, tables: dict[str, mdt.Table], *, optimizes: str = "all") -> Iterator[None]:
    """Let names mean tables, read with some of what the optimizer does."""
    with settings(spark, {OPTIMIZE: optimizes, "spark.sql.shuffle.partitions": "2"}):
        for name, table in tables.items():
            mdt.read(spark, table.path).createOrReplaceTempView(name)
        yield
    for name in tables:
        spark.catalog.dropTempView(name)


def whole(spark: SparkSession, query: str) -> int:
    """Return how many sums of decimals of a query are sums of whole numbers."""
    told = private.java_frame(spark.sql(query)).queryExecution().optimizedPlan().toString()
    return int(told.count("MakeDecimal(sum("))


def agree(spark: SparkSession, tables: dict[str, mdt.Table], query: str) -> int:
    """Compare the rows of a query with and without whole numbers; return how many sums are such that Spark's own rule leaves."""
    with views(spark, tables, optimizes="joins,statistics,top,totals"):
        before = whole(spark, query)
        expected = sorted(map(repr, spark.sql(query).collect()))
        types = spark.sql(query).schema
    with views(spark, tables):
        assert spark.sql(query).schema == types
        assert sorted(map(repr, spark.sql(query).collect())) == expected, query
        return whole(spark, query) - before


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mdt.Table:
    """Two files, and a log file with which a tenth of the rows died."""
    options = {"mdt.services.auto": "false", "mdt.small.file.bytes": "0"}
    table = mdt.create(
        tmp_path_factory.mktemp("sums") / "t", SCHEMA, key=["id"], table_type="MERGE_ON_READ", options=options
    )
    table.bulk_insert(rows(1, 0, 400))
    table.bulk_insert(rows(2, 400, 400))
    table.upsert(rows(3, 350, 80))
    return table


def expression(chosen: random.Random, depth: int) -> str:
    """Return the SQL of a decimal expression."""
    if depth == 0:
        return chosen.choice(
            ["price", "share", "wide", "cast(many as decimal(10, 0))", "cast(long as decimal(19, 0))", "1.5", "-0.001", "cast(null as decimal(3, 1))"]
        )  # fmt: skip
    one, other = expression(chosen, depth - 1), expression(chosen, chosen.randrange(depth))
    return chosen.choice(
        [
            f"({one} + {other})", f"({one} - {other})", f"({one} * {other})", f"(- {one})", f"coalesce({one}, {other})",
            f"case when kind = 'a' then {one} when many > 0 then {other} end", f"if(long > 0, {one}, {other})",
            f"cast({one} as decimal(38, 10))", f"({one} * many)", f"(1 - {one})", f"cast({one} as decimal(20, 2))", f"abs({one})",
        ]
    )  # fmt: skip


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_random_sums_are_those_of_spark(spark: SparkSession, table: mdt.Table, ansi: str) -> None:
    chosen = random.Random(7)
    found = 0
    with settings(spark, {"spark.sql.ansi.enabled": ansi}):
        for _ in range(5):
            made = [expression(chosen, chosen.randrange(3)) for _ in range(12)]
            sums = ", ".join(f"{chosen.choice(['sum', 'avg', 'try_sum'])}({one})" for one in made)
            found += agree(spark, {"t": table}, f"select kind, {sums} from t where id % 3 < 2 group by kind")
    assert found > 20


QUERIES = {
    "select sum(price), avg(price), sum(price * (1 - share)) from t": 3,
    "select sum(price) from t where id < 0": 0,
    "select kind, sum(price) filter (where many > 0), count(*) from t group by kind having sum(price) > 0": 2,
    "select sum(p), avg(p) from (select price * 2 p from t where many > 0)": 2,
    "select sum(distinct price) from t": 0,
    "select kind, many, sum(price) from t group by rollup(kind, many)": 0,
    "select sum(price / 3), sum(round(price, 1)) from t": 0,
    "select sum(price) over (order by id) from t": 0,
    "select sum(m) from (select kind, max(price) m from t group by kind)": 0,
    "select kind, (select avg(price) from t u where u.kind = v.kind) from (select distinct kind from t) v": 1,
    "select sum(s) from (select many, sum(price) s from t group by many)": 1,
    "select sum(price) from (select price from t union all select price from t)": 0,
    "select id, sum(price) from t group by id order by id limit 3": 1,
}
"""How many sums are of whole numbers: an average counts once."""


@pytest.mark.parametrize("query", QUERIES)
def test_what_becomes_a_sum_of_whole_numbers(spark: SparkSession, table: mdt.Table, query: str) -> None:
    assert agree(spark, {"t": table}, query) == QUERIES[query]


def amounts(path: Path, values: list[int], *, digits: int = 38, **options: object) -> mdt.Table:
    schema = pa.schema([("id", pa.int64()), ("place", pa.string()), ("v", pa.decimal128(digits, 2))])
    table = mdt.create(path, schema, key=["id"], **options)  # type: ignore[arg-type]
    money = [Decimal(value).scaleb(-2) for value in values]
    table.bulk_insert(
        pa.table([list(range(len(values))), ["x"] * len(values), pa.array(money, schema.types[2])], schema=schema)
    )
    return table


@pytest.mark.parametrize(
    ("value", "count", "parts"),
    [
        (LONG_MOST // 4, 4, 1), (-(LONG_MOST // 4), 4, 1), (LONG_MOST // 4 + 1, 4, 2), (-(LONG_MOST // 4) - 1, 4, 2),
        (LONG_MOST, 9, 2), (-LONG_MOST, 9, 2), (LONG_MOST + 1, 2, 0), (-LONG_MOST - 1, 2, 0), (10**30, 3, 0),
    ],
)  # fmt: skip
def test_a_sum_that_may_not_fit_into_one_number_is_made_of_two_or_stays(
    spark: SparkSession, tmp_path: Path, value: int, count: int, parts: int
) -> None:
    table = amounts(tmp_path / "t", [value] * count)
    assert agree(spark, {"t": table}, "select sum(v) from t") == parts
    assert agree(spark, {"t": table}, "select place, avg(v), sum(v) from t group by place") == parts * 2
    with views(spark, {"t": table}):
        assert spark.sql("select sum(v) from t").first() == (Decimal(value * count).scaleb(-2),)


JOINED = {
    "u using (id)": (1, 1, 1),
    "u on t.id = u.id + 1": (1, 2, 1),
    "u on t.id + 1 = u.id + 1": (2, 2, 2),
    "u on t.place = u.place": (2, 2, 2),
    "u on t.id < u.id": (2, 2, 2),
    "scoped using (id)": (2, 2, 2),
    "scoped using (id, place)": (1, 1, 2),
    "repeated using (id)": (2, 2, 2),
    "(select place, count(*) n from u group by place) w using (place)": (1, 1, 2),
    "(select u.id, s.place from u join scoped s on u.id = s.id and u.place = s.place) w using (id)": (1, 1, 1),
    "(select place p from u where id = 1) w on t.place = w.p": (2, 2, 2),
}
"""In how many parts six rows of the largest value of which six fit into 64 bits are added up, joined with others: inner, left, right."""


def test_rows_that_a_join_multiplies_count(spark: SparkSession, tmp_path: Path) -> None:
    value = LONG_MOST // 6
    t = amounts(tmp_path / "t", [value] * 6)
    u = amounts(tmp_path / "u", [1] * 6)
    scoped = amounts(tmp_path / "scoped", [1] * 6, partition_by=["place"], scope="partition")
    scoped.insert(pa.table({"id": [0], "place": ["y"], "v": [Decimal("0.01")]}).cast(scoped.schema))
    repeated = amounts(tmp_path / "repeated", [1] * 6, options={"mdt.keys.repeat": "true"})
    repeated.insert(repeated.scan().to_arrow(), check=False)
    tables = {"t": t, "u": u, "scoped": scoped, "repeated": repeated}
    for joined, parts in JOINED.items():
        for kind, expected in zip(("", "left", "right", "full"), (*parts, 2), strict=True):
            query = f"select sum(t.v), count(*) from t {kind} join {joined}"
            assert agree(spark, tables, query) == expected, query
    assert agree(spark, tables, "select sum(v) from t where id in (select id from repeated)") == 1
    assert agree(spark, tables, "select sum(t.v) from t, u, u w, scoped, repeated") == 2


def test_bounds_are_those_of_the_version_that_is_read(spark: SparkSession, tmp_path: Path) -> None:
    table = amounts(tmp_path / "t", [1, 2], digits=30)
    before = table.history()["seq"][-1].as_py()
    query = "select sum(v) from t"
    frame = mdt.read(spark, table.path)
    table.upsert(pa.table({"id": [1], "place": ["x"], "v": [Decimal(10**20)]}).cast(table.schema))
    assert agree(spark, {"t": table}, query) == 0
    frame.createOrReplaceTempView("t")
    assert spark.sql(query).first() == (Decimal("100000000000000000000.01"),)
    mdt.read(spark, table.path, as_of=before).createOrReplaceTempView("t")
    assert spark.sql(query).first() == (Decimal("0.03"),)
    assert whole(spark, query) == 1


def test_columns_that_were_altered(spark: SparkSession, tmp_path: Path) -> None:
    """Of older files a new column has no bounds, so its sums stay decimals."""
    table = amounts(tmp_path / "t", [123, -456, 999], digits=12)
    added: dict[str, object] = {"add": {"w": "decimal(20, 2)"}, "defaults": {"w": Decimal("5.25")}}
    table.alter(widen={"v": "decimal(20, 2)"}, **added, beyond_hudi=True)  # type: ignore[arg-type]
    assert agree(spark, {"t": table}, "select sum(v), avg(v) from t") == 2
    assert agree(spark, {"t": table}, "select sum(w), sum(v * w) from t") == 0
    table.alter(rename={"v": "w2", "w": "v2"}, beyond_hudi=True)
    assert agree(spark, {"t": table}, "select sum(w2), sum(v2) from t") == 1
    table.update_where({"place": "'y'"})
    table.compact()
    assert agree(spark, {"t": table}, "select sum(w2), sum(v2) from t") == 2

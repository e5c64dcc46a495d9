"""The Star Schema Benchmark's generator keeps the paper's domains and shares, and its queries run
through mdt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from sqlglot import exp

from benchmarks.ssb import report, words
from benchmarks.ssb.generate import Star, retail_price
from benchmarks.ssb.measure import Figure, WrongAnswer, check
from benchmarks.ssb.queries import FILTERED, QUERIES, Query
from benchmarks.ssb.variants import LAYOUTS, VARIANTS, load
from indexes.predicate import columns, matches
from mdt.filters.where import parse_where

SCALE = 0.05


@cache
def star() -> Star:
    return Star(SCALE)


@cache
def flat() -> pa.Table:
    return star().flat


def distinct(*names: str) -> int:
    return len(flat().group_by(list(names)).aggregate([]))


def test_rows_follow_the_scale_and_dimensions_do_not_shrink() -> None:
    assert flat().num_rows == 300_000
    assert (len(star().customer), len(star().supplier), len(star().part)) == (
        30_000,
        2_000,
        200_000,
    )
    assert (len(Star(2.0).customer), len(Star(2.0).supplier), Star(2.0).rows) == (
        60_000,
        4_000,
        12_000_000,
    )


def test_same_seed_gives_the_same_rows() -> None:
    small = Star(0.001, seed=3)
    assert small.lineorder.equals(Star(0.001, seed=3).lineorder)
    assert not small.lineorder.equals(Star(0.001, seed=4).lineorder)


def test_flat_table_has_no_nulls() -> None:
    assert not any(column.null_count for column in flat().columns)


@pytest.mark.parametrize("prefix", ["c", "s"])
def test_cities_nations_and_regions_are_a_hierarchy(prefix: str) -> None:
    city, nation, region = (f"{prefix}_{name}" for name in ("city", "nation", "region"))
    assert (distinct(city), distinct(nation), distinct(region)) == (250, 25, 5)
    assert (distinct(city, nation), distinct(nation, region)) == (250, 25)
    seen = flat().group_by([nation, region]).aggregate([]).to_pylist()
    assert all(row[nation] in words.NATIONS[row[region]] for row in seen)
    assert all(
        row[city][:9].rstrip() == row[nation][:9].rstrip()
        for row in flat().group_by([city, nation]).aggregate([]).to_pylist()
    )


def test_brands_categories_and_manufacturers_are_a_hierarchy() -> None:
    assert (distinct("p_brand1"), distinct("p_category"), distinct("p_mfgr")) == (1000, 25, 5)
    seen = flat().group_by(["p_brand1", "p_category", "p_mfgr"]).aggregate([]).to_pylist()
    assert len(seen) == 1000
    assert all(
        r["p_brand1"].startswith(r["p_category"]) and r["p_category"].startswith(r["p_mfgr"])
        for r in seen
    )


def test_dates_are_the_days_of_seven_years() -> None:
    date = star().date
    assert len(date) == 2557
    assert date.slice(0, 1)["d_datekey"].to_pylist() == [19920101]
    assert date.slice(2556)["d_datekey"].to_pylist() == [19981231]
    last = date.slice(2556).to_pylist()[0]
    assert (last["d_yearmonth"], last["d_yearmonthnum"], last["d_weeknuminyear"]) == (
        "Dec1998",
        199812,
        53,
    )
    assert (last["d_dayofweek"], last["d_daynuminweek"], last["d_sellingseason"]) == (
        "Thursday",
        5,
        "Christmas",
    )
    assert pc.all(pc.equal(pc.divide(flat()["lo_orderdate"], 10_000), flat()["d_year"])).as_py()
    assert pc.min_max(flat()["d_weeknuminyear"]).as_py() == {"min": 1, "max": 53}


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [("lo_discount", 0, 10), ("lo_quantity", 1, 50), ("lo_tax", 0, 8), ("lo_linenumber", 1, 7)],
)
def test_small_numbers_fill_their_range(column: str, low: int, high: int) -> None:
    assert pc.min_max(flat()[column]).as_py() == {"min": low, "max": high}
    assert distinct(column) == high - low + 1


def test_money_follows_quantity_price_and_discount() -> None:
    fact = {
        name: column.to_numpy().astype(np.int64)
        for name, column in zip(flat().column_names, flat().columns, strict=True)
        if pa.types.is_integer(column.type)
    }
    price = retail_price(fact["lo_partkey"])
    np.testing.assert_array_equal(fact["lo_extendedprice"], fact["lo_quantity"] * price)
    np.testing.assert_array_equal(
        fact["lo_revenue"], fact["lo_extendedprice"] * (100 - fact["lo_discount"]) // 100
    )
    np.testing.assert_array_equal(fact["lo_supplycost"], price * 6 // 10)


def test_lines_of_an_order_share_its_date_customer_and_total() -> None:
    order = ["lo_orderkey"]
    orders = distinct(*order)
    assert (
        distinct(*order, "lo_orderdate", "lo_custkey", "lo_ordtotalprice", "lo_orderpriority")
        == orders
    )
    assert distinct(*order, "lo_linenumber") == flat().num_rows
    assert 3.9 < flat().num_rows / orders < 4.1


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_filter_selects_its_published_share(query: Query) -> None:
    found = pc.sum(matches(parse_where(query.where, flat().schema), flat())).as_py() or 0
    expected = query.factor * flat().num_rows
    # Four lines of an order share date and customer, so counts spread twice as far as independent
    # rows would.
    assert abs(found - expected) <= 0.05 * expected + 4 * 2 * np.sqrt(expected)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_query_is_one_select_on_the_flat_table(query: Query) -> None:
    parsed = sqlglot.parse_one(query.sql(), dialect="spark")
    assert isinstance(parsed, exp.Select)
    assert {column.name for column in parsed.find_all(exp.Column)} - {"total"} <= set(
        flat().column_names
    )
    assert columns(parse_where(query.where, flat().schema)) <= set(FILTERED)
    assert len(parsed.selects) == len(query.group) + 1


def test_variants_name_columns_of_the_flat_table() -> None:
    names = set(flat().column_names)
    assert all(set(key) <= names for key in LAYOUTS.values())
    assert set(FILTERED) <= names
    assert all(variant.stored.layout in LAYOUTS for variant in VARIANTS.values())


def equal(column: str, *values: object) -> pa.ChunkedArray:
    return pc.is_in(flat()[column], pa.array(values, flat()[column].type))


def between(column: str, low: int, high: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(flat()[column], low), pc.less_equal(flat()[column], high))


TRUTHS: dict[
    str, Callable[[], tuple[list[pa.ChunkedArray], Callable[[pa.Table], pa.ChunkedArray]]]
] = {
    "Q1.2": lambda: (
        [
            equal("d_yearmonthnum", 199401),
            between("lo_discount", 4, 6),
            between("lo_quantity", 26, 35),
        ],
        lambda rows: pc.multiply(rows["lo_extendedprice"], rows["lo_discount"].cast(pa.int64())),
    ),
    "Q3.2": lambda: (
        [
            equal("c_nation", "UNITED STATES"),
            equal("s_nation", "UNITED STATES"),
            between("d_year", 1992, 1997),
        ],
        lambda rows: rows["lo_revenue"],
    ),
    "Q4.2": lambda: (
        [
            equal("c_region", "AMERICA"),
            equal("s_region", "AMERICA"),
            equal("d_year", 1997, 1998),
            equal("p_mfgr", "MFGR#1", "MFGR#2"),
        ],
        lambda rows: pc.subtract(rows["lo_revenue"], rows["lo_supplycost"]),
    ),
}


@pytest.fixture(scope="module")
def sorted_table(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return load(VARIANTS["sorted"].stored, flat(), tmp_path_factory.mktemp("ssb") / "table", 20_000)


@pytest.mark.parametrize("name", TRUTHS)
def test_query_through_mdt_sums_what_pyarrow_sums(name: str, sorted_table: pa.Table) -> None:
    query = next(query for query in QUERIES if query.name == name)
    tests, measure = TRUTHS[name]()
    mask = tests[0]
    for test in tests[1:]:
        mask = pc.and_(mask, test)
    wanted = flat().filter(mask)
    found = sorted_table.table.scan(where=query.where, columns=query.columns).to_arrow()
    assert (len(found), query.total(found)) == (len(wanted), pc.sum(measure(wanted)).as_py())


def test_sorted_table_skips_files_of_other_months(sorted_table: pa.Table) -> None:
    plan = sorted_table.table.scan(where=QUERIES[1].where).explain()
    assert sorted_table.files >= 10
    assert plan.files_read <= 2


def test_wrong_rows_fail_the_run() -> None:
    check("Q", "stats", [(1, "a"), (2, "b")], [(2, "b"), (1, "a")])
    with pytest.raises(WrongAnswer, match="Q on stats"):
        check("Q", "stats", [(1, "a")], [(1, "b")])


def test_report_holds_every_figure_and_the_geometric_means(tmp_path: Path) -> None:
    first = Figure(
        "Q1.1",
        "none",
        10,
        0.1,
        2.0,
        5,
        5,
        1_000_000,
        1.5,
        arrow_seconds=1.0,
        speed_up={"none": 1.0},
    )
    other = replace(first, variant="stats", seconds=0.5, files=1, speed_up={"none": 4.0})
    rows = report.all_cells(
        [first, other, replace(first, query="Q1.2"), replace(other, query="Q1.2")]
    )
    assert all(len(row) == len(report.COLUMNS) for row in rows)
    assert [row[:5] for row in rows[-2:]] == [
        ["geometric mean", "none", "2.000", "1.50", "10 of 10"],
        ["geometric mean", "stats", "0.500", "1.50", "2 of 10"],
    ]
    assert Figure(**json.loads(report.line(first))) == first
    assert "| Q1.1 | stats | 0.500 | 1.50 | 1 of 5 |" in report.markdown(
        [first, other], "title", {}
    )

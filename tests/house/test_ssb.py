"""The Star Schema Benchmark: generated rows have the domains and shares of the paper, and queries
run through mdt.
"""

import json
from dataclasses import replace
from functools import cache, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot
from sqlglot import exp

from benchmarks.ssb import report, words
from benchmarks.ssb.generate import Star, retail_price
from benchmarks.ssb.measure import Figure, WrongAnswer, check
from benchmarks.ssb.queries import FILTERED, QUERIES
from benchmarks.ssb.variants import LAYOUTS, VARIANTS, load
from indexes.predicate import columns, matches
from mdt.filters.where import parse_where

SCALE = 0.05
EACH_QUERY = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)


@cache
def star():
    return Star(SCALE)


@cache
def flat():
    return star().flat


def groups(*names):
    """Return the distinct combinations of values of some columns."""
    return flat().group_by(list(names)).aggregate([]).to_pylist()


def test_the_number_of_rows_follows_the_scale_and_dimensions_do_not_shrink():
    sizes = [(len(data.customer), len(data.supplier), data.rows) for data in (star(), Star(2.0))]
    assert sizes == [(30_000, 2_000, 300_000), (60_000, 4_000, 12_000_000)]
    assert (flat().num_rows, len(star().part)) == (300_000, 200_000)
    assert not any(column.null_count for column in flat().columns)


def test_the_same_seed_gives_the_same_rows():
    small = Star(0.001, seed=3).lineorder
    assert small.equals(Star(0.001, seed=3).lineorder)
    assert not small.equals(Star(0.001, seed=4).lineorder)


@pytest.mark.parametrize("prefix", ["c", "s"])
def test_cities_nations_and_regions_are_a_hierarchy(prefix):
    city, nation, region = (f"{prefix}_{name}" for name in ("city", "nation", "region"))
    assert [len(groups(name)) for name in (city, nation, region)] == [250, 25, 5]
    combinations = groups(city, nation, region)
    assert len(combinations) == 250
    for row in combinations:
        assert row[nation] in words.NATIONS[row[region]]
        assert row[city][:9].rstrip() == row[nation][:9].rstrip()


def test_brands_categories_and_manufacturers_are_a_hierarchy():
    names = ("p_brand1", "p_category", "p_mfgr")
    assert [len(groups(name)) for name in names] == [1000, 25, 5]
    combinations = [tuple(row.values()) for row in groups(*names)]
    assert len(combinations) == 1000
    assert all(a.startswith(b) and b.startswith(c) for a, b, c in combinations)


def test_dates_are_the_days_of_seven_years():
    date = star().date.to_pylist()
    assert (len(date), date[0]["d_datekey"], date[-1]["d_datekey"]) == (2557, 19920101, 19981231)
    expected = {
        "d_yearmonth": "Dec1998",
        "d_yearmonthnum": 199812,
        "d_weeknuminyear": 53,
        "d_dayofweek": "Thursday",
        "d_daynuminweek": 5,
        "d_sellingseason": "Christmas",
    }
    assert expected.items() <= date[-1].items()
    assert pc.all(pc.equal(pc.divide(flat()["lo_orderdate"], 10_000), flat()["d_year"])).as_py()


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [("lo_discount", 0, 10), ("lo_quantity", 1, 50), ("lo_tax", 0, 8), ("lo_linenumber", 1, 7)],
)
def test_columns_of_small_numbers_have_every_value_of_their_range(column, low, high):
    assert sorted(flat()[column].unique().to_pylist()) == list(range(low, high + 1))


def test_amounts_of_money_follow_from_quantity_price_and_discount():
    names = "partkey", "quantity", "extendedprice", "discount", "revenue", "supplycost"
    part, quantity, extended, discount, revenue, cost = (
        flat()[f"lo_{name}"].to_numpy().astype(np.int64) for name in names
    )
    price = retail_price(part)
    np.testing.assert_array_equal(extended, quantity * price)
    np.testing.assert_array_equal(revenue, extended * (100 - discount) // 100)
    np.testing.assert_array_equal(cost, price * 6 // 10)


def test_lines_of_an_order_share_its_date_customer_and_total():
    orders = len(groups("lo_orderkey"))
    shared = ("lo_orderdate", "lo_custkey", "lo_ordtotalprice", "lo_orderpriority")
    assert len(groups("lo_orderkey", *shared)) == orders
    assert len(groups("lo_orderkey", "lo_linenumber")) == flat().num_rows
    assert 3.9 < flat().num_rows / orders < 4.1


@EACH_QUERY
def test_a_filter_selects_its_published_share_of_the_rows(query):
    selected = pc.sum(matches(parse_where(query.where, flat().schema), flat())).as_py() or 0
    expected = query.factor * flat().num_rows
    # The four lines of an order share date and customer, so counts vary twice as much as those of
    # independent rows.
    assert abs(selected - expected) <= 0.05 * expected + 4 * 2 * np.sqrt(expected)


@EACH_QUERY
def test_a_query_is_one_select_on_the_flat_table(query):
    parsed = sqlglot.parse_one(query.sql(), dialect="spark")
    assert isinstance(parsed, exp.Select)
    named = {column.name for column in parsed.find_all(exp.Column)}
    assert named - {"total"} <= set(flat().column_names)
    assert columns(parse_where(query.where, flat().schema)) <= set(FILTERED)
    assert len(parsed.selects) == len(query.group) + 1


def test_variants_use_columns_of_the_flat_table_and_known_layouts():
    names = set(flat().column_names)
    assert all(set(key) <= names for key in (*LAYOUTS.values(), FILTERED))
    assert all(variant.stored.layout in LAYOUTS for variant in VARIANTS.values())


def equal(column, *values):
    return pc.is_in(flat()[column], pa.array(values, flat()[column].type))


def between(column, low, high):
    return pc.and_(pc.greater_equal(flat()[column], low), pc.less_equal(flat()[column], high))


US = "UNITED STATES"
EXPECTED_SUMS = {
    "Q1.2": (
        lambda: (
            equal("d_yearmonthnum", 199401),
            between("lo_discount", 4, 6),
            between("lo_quantity", 26, 35),
        ),
        lambda rows: pc.multiply(rows["lo_extendedprice"], rows["lo_discount"].cast(pa.int64())),
    ),
    "Q3.2": (
        lambda: (equal("c_nation", US), equal("s_nation", US), between("d_year", 1992, 1997)),
        lambda rows: rows["lo_revenue"],
    ),
    "Q4.2": (
        lambda: (
            equal("c_region", "AMERICA"),
            equal("s_region", "AMERICA"),
            equal("d_year", 1997, 1998),
            equal("p_mfgr", "MFGR#1", "MFGR#2"),
        ),
        lambda rows: pc.subtract(rows["lo_revenue"], rows["lo_supplycost"]),
    ),
}


@pytest.fixture(scope="module")
def sorted_table(tmp_path_factory):
    return load(VARIANTS["sorted"].stored, flat(), tmp_path_factory.mktemp("ssb") / "table", 20_000)


@pytest.mark.parametrize("name", EXPECTED_SUMS)
def test_a_query_through_mdt_has_the_sum_that_pyarrow_computes(name, sorted_table):
    query = next(query for query in QUERIES if query.name == name)
    conditions, measure = EXPECTED_SUMS[name]
    expected = flat().filter(reduce(pc.and_, conditions()))
    selected = sorted_table.table.scan(where=query.where, columns=query.columns).to_arrow()
    assert (len(selected), query.total(selected)) == (
        len(expected),
        pc.sum(measure(expected)).as_py(),
    )


def test_a_sorted_table_skips_files_of_other_months(sorted_table):
    assert sorted_table.files >= 10
    assert sorted_table.table.scan(where=QUERIES[1].where).explain().files_read <= 2


def test_wrong_rows_fail_the_run():
    check("Q", "stats", [(1, "a"), (2, "b")], [(2, "b"), (1, "a")])
    with pytest.raises(WrongAnswer, match="Q on stats"):
        check("Q", "stats", [(1, "a")], [(1, "b")])


def test_the_report_has_every_figure_and_the_geometric_means():
    measured = (10, 0.1, 2.0, 5, 5, 1_000_000, 1.5)
    first = Figure("Q1.1", "none", *measured, arrow_seconds=1.0, speed_up={"none": 1.0})
    other = replace(first, variant="stats", seconds=0.5, files=1, speed_up={"none": 4.0})
    more = [replace(figure, query="Q1.2") for figure in (first, other)]
    rows = report.all_cells([first, other, *more])
    assert all(len(row) == len(report.COLUMNS) for row in rows)
    assert [row[:5] for row in rows[-2:]] == [
        ["geometric mean", "none", "2.000", "1.50", "10 of 10"],
        ["geometric mean", "stats", "0.500", "1.50", "2 of 10"],
    ]
    assert Figure(**json.loads(report.line(first))) == first
    line = "| Q1.1 | stats | 0.500 | 1.50 | 1 of 5 |"
    assert line in report.markdown([first, other], "title", {})

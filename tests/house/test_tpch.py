"""TPC-H: queries have the same answers in another engine, plain files and tables of mdt have the
same rows, and reports have the measured figures.
"""

import json
from dataclasses import replace
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
import typer
from sqlglot import exp

from benchmarks.tpch import report, skipping
from benchmarks.tpch.__main__ import micro, named, tpch
from benchmarks.tpch.front import CBO, chosen, emit, settings
from benchmarks.tpch.measure import (
    CLEAN,
    DIRTY,
    PLAIN,
    Figure,
    Run,
    Variant,
    WrongAnswer,
    check,
    told,
)
from benchmarks.tpch.queries import NAMES, queries
from benchmarks.tpch.tables import (
    LAYOUTS,
    NoGenerator,
    generate,
    generator,
    rows,
    write_dirty,
    write_plain,
    write_table,
)

SCALE = 0.01


@cache
def has_generator():
    try:
        return bool(generator())
    except NoGenerator:
        return False


needs_generator = pytest.mark.skipif(
    not has_generator(), reason="tpchgen-cli, of the extra `bench`, is not installed"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, SCALE)
    return {name: rows(folder, name, layout) for name, layout in LAYOUTS.items()}


def test_the_queries_are_22_selects_on_the_eight_tables():
    assert NAMES == tuple(f"Q{number}" for number in range(1, 23))
    for text in queries(1).values():
        parsed = sqlglot.parse_one(text, dialect="spark")
        common = {cte.alias for cte in parsed.find_all(exp.CTE)}
        assert isinstance(parsed, exp.Select)
        assert {table.name for table in parsed.find_all(exp.Table)} - common <= set(LAYOUTS)


def test_the_share_of_q11_and_the_number_of_files_follow_the_scale_factor():
    for scale, share in ((1, "0.0001"), (0.01, "0.01"), (100, "0.000001")):
        assert f"* {share}\n" in queries(scale)["Q11"]
    assert [LAYOUTS["lineitem"].files_at(scale) for scale in (2, 1, 0.5, 0.01)] == [128, 64, 32, 8]
    assert [LAYOUTS["nation"].files_at(scale) for scale in (1, 0.01)] == [1, 1]


@needs_generator
def test_generated_rows_are_sorted_and_equal_in_parquet_files_and_in_tables_of_mdt(made, tmp_path):
    sizes = [len(made[name]) for name in ("orders", "part", "nation")]
    assert sizes == [15_000, 2_000, 25]
    dates = made["lineitem"]["l_shipdate"].to_pylist()
    assert dates == sorted(dates)
    assert made["lineitem"].schema.field("l_tax").type == pa.decimal128(15, 2)
    data, layout = made["orders"], LAYOUTS["orders"]
    write_plain(data, tmp_path / "plain", 8)
    clean = write_table(data, tmp_path / "clean", layout, 8)
    dirty = write_dirty(data, tmp_path / "clean", tmp_path / "dirty")
    assert pq.read_table(tmp_path / "plain").equals(data)
    assert clean.scan().to_arrow().equals(data)
    assert 6 <= len(clean.files()) <= 12
    assert len(dirty.files()) == 2 * len(clean.files()), "every file has a log file"
    order = [(name, "ascending") for name in layout.sorted_by]
    assert dirty.scan().to_arrow().sort_by(order).equals(data)
    day = data["o_orderdate"][7_000].as_py()
    assert clean.scan(f"o_orderdate = date '{day}'").explain().files_read <= 2


@pytest.fixture(scope="module")
def loaded(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaded")
    for name, layout in LAYOUTS.items():
        write_plain(made[name], folder / PLAIN / name, 2)
        write_table(made[name], folder / CLEAN / name, layout, 2)
        write_dirty(made[name], folder / CLEAN / name, folder / DIRTY / name)
    return folder


def measured(spark, folder, tables, *variants, times=1):
    """Return a run of variants, each given by its name or as a Variant."""
    chosen_variants = [
        Variant(variant, variant) if isinstance(variant, str) else variant for variant in variants
    ]
    return Run(spark, folder, list(tables), chosen_variants, times, lambda step: None)


@needs_generator
def test_queries_on_tables_of_mdt_have_the_answers_of_duckdb(spark, made, loaded):
    run = measured(spark, loaded, LAYOUTS, DIRTY)
    run.open()
    with duckdb.connect() as connection, run.on(run.variants[0]):
        for name, table in made.items():
            connection.register(name, table)
        for name, text in queries(SCALE).items():
            expected = sorted(
                (round_numbers(row) for row in connection.sql(text).fetchall()), key=repr
            )
            assert sorted(map(round_numbers, spark.sql(text).collect()), key=repr) == expected, name


def round_numbers(row):
    """Return a row with numbers rounded to four digits.

    duckdb divides decimals as doubles, and Spark to a limited number of places.
    """
    return tuple(
        f"{float(value):.4g}" if isinstance(value, (int, float, Decimal)) else value
        for value in row
    )


@needs_generator
def test_queries_are_measured_on_every_variant(spark, loaded):
    with_cbo = Variant("dirty*", DIRTY, CBO)
    run = measured(spark, loaded, LAYOUTS, PLAIN, CLEAN, with_cbo, times=2)
    measurements = [figure for figures in tpch(run, ["Q6", "Q14"], SCALE) for figure in figures]
    expected = [(query, name) for query in ("Q6", "Q14") for name in ("plain", "mdt", "dirty*")]
    assert [(figure.query, figure.variant) for figure in measurements] == expected
    for figure in measurements:
        assert len(figure.runs) == 2  # rounded to four digits
        assert min(figure.runs) - 1e-4 <= figure.seconds <= max(figure.runs) + 1e-4
        assert (figure.times == 1) == (figure.variant == PLAIN) and figure.rows == 1


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    skipping.load(folder, 0.001, "snappy", dirty=True)
    return folder


def test_files_that_scans_read_are_counted_for_the_table_of_a_column(spark, events):
    run = measured(spark, events, skipping.TABLES, PLAIN, CLEAN, DIRTY)
    run.open()
    total = skipping.files_in(events, CLEAN, "events")
    assert skipping.files_in(events, PLAIN, "events") == 20
    assert skipping.files_in(events, DIRTY, "events") == 2 * total
    with run.on(run.variants[1]):
        for text, column, files in (
            ("select sum(value) from events", "value", total),
            ("select sum(value) from events where place < 3", "value", 1),
            (
                "select name, sum(value) from events join places using (place) group by name",
                "name",
                1,
            ),
        ):
            assert skipping.files_read(spark, text, column) == files


def test_workloads_have_the_same_answers_on_every_variant_and_count_the_files_read(spark, events):
    run = measured(spark, events, skipping.TABLES, PLAIN, CLEAN, DIRTY)
    with told(spark, {"spark.sql.codegen.wholeStage": "false"}):
        results = list(micro(run))
    assert [figures[0].query for figures in results] == [
        workload.name for workload in skipping.WORKLOADS
    ]
    for figure in (figure for figures in results for figure in figures):
        assert 0 <= figure.files <= figure.files_total
        assert figure.variant != PLAIN or figure.files == figure.files_total
    assert all(figures[0].rows for figures in results)


def test_one_place_in_a_hundred_passes_the_filters_of_the_dimension():
    made = skipping.data(1)
    places = made["places"]
    for column in ("near", "spread"):
        assert places.filter(
            pa.compute.equal(places[column], 7)
        ).num_rows * skipping.SELECTIVE == len(places)
    assert made["events"]["place"].to_numpy().max() == len(places) - 1


def test_wrong_rows_fail_the_run_and_doubles_may_differ_in_their_last_digits():
    right = [(2, None), (1, 0.3)]
    check("Q", "mdt", [(1, 0.1 + 0.2), (2, None)], right)
    check("Q", "mdt", [], [])
    for wrong, expected in (
        ([(1, 0.30001), (2, None)], right),
        ([(1, 0.3)], right),
        ([(1, 0.3), (2, 0.0)], right),
        ([(1, 0.3), (3, None)], right),
        ([(Decimal("1.00"),)], [(Decimal("1.01"),)]),
    ):
        with pytest.raises(WrongAnswer, match="Q on mdt"):
            check("Q", "mdt", wrong, expected)


def test_settings_hold_while_a_variant_is_measured(spark, events):
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    other = Variant("plain*", PLAIN, {name: "false", "spark.x": "1"})
    run = measured(spark, events, ["places"], PLAIN, other)
    run.open()
    with run.on(other):
        assert (spark.conf.get(name), spark.conf.get("spark.x")) == ("false", "1")
    assert (spark.conf.get(name), spark.conf.get("spark.x", None)) == (before, None)


def test_variants_and_settings_are_chosen_by_name():
    assert [variant.name for variant in chosen("mdt,dirty", {"a": "b"})] == [
        "plain",
        "mdt",
        "dirty",
        "mdt*",
        "dirty*",
    ]
    assert [variant.settings for variant in chosen("mdt", {"a": "b"})] == [{}, {}, {"a": "b"}]
    assert settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    assert named("Q3,skipping") == ["Q3", "skipping"] and len(named("")) == 23
    assert all(name.startswith("spark.sql.cbo.") for name in CBO)
    for wrong in (lambda: settings(["a"]), lambda: chosen("fast", {}), lambda: named("Q23")):
        with pytest.raises(typer.BadParameter):
            wrong()


def test_the_report_has_every_figure_and_the_geometric_means(tmp_path, capsys):
    first = Figure("Q1", "plain", 2.0, 1.0, rows=4)
    other = Figure("Q1", "mdt", 1.0, 0.5, 0.5, 0.5, rows=4, files=1, files_total=9)

    def measured():
        yield [first, other]
        yield [replace(first, query="Q2"), replace(other, query="Q2", seconds=4.0, times=2.0)]

    every = emit(measured(), tmp_path / "out")
    assert report.grid(every) == [
        [
            "query",
            "plain s",
            "plain cpu s",
            "mdt s",
            "mdt cpu s",
            "mdt / plain",
            "cpu",
            "mdt files",
        ],
        ["Q1", "2.000", "1.00", "1.000", "0.50", "0.50", "0.50", "1 of 9"],
        ["Q2", "2.000", "1.00", "4.000", "0.50", "2.00", "0.50", "1 of 9"],
        ["geometric mean", "2.000", "1.00", "2.000", "0.50", "1.00", "0.50", ""],
    ]
    assert (
        "| Q1 | 2.000 |" in report.markdown(every, "title")
        and report.terminal(every, "title").row_count == 3
    )
    lines = (tmp_path / "out").read_text().splitlines()
    assert capsys.readouterr().out.splitlines() == lines
    assert Figure(**json.loads(lines[1])) == other

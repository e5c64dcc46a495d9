"""TPC-DS: queries come from the generator, answers are compared with duckdb's, and a missing
environment is reported.
"""

import json
import sys
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from benchmarks.spark.environments import Missing
from benchmarks.tpcds import generate, tables
from benchmarks.tpcds.__main__ import named, tpcds
from benchmarks.tpcds.queries import NAMES, NUMBERS, agree, answer, queries, spark_text
from benchmarks.tpch.front import load
from benchmarks.tpch.measure import CLEAN, PLAIN, Run, Variant, WrongAnswer

TEXT = 'SELECT d_year, sum(d_dom) AS "the sum" FROM date_dim GROUP BY 1;\n'


@pytest.fixture
def generated(tmp_path):
    """The output folder of the generator, with one small table and the same query for every
    number.
    """
    folder = tmp_path / "made"
    (folder / "answers").mkdir(parents=True)
    days = pa.table({"d_date_sk": [3, 1, 2], "d_year": [1999, 1998, 1999], "d_dom": [4, 5, None]})
    pq.write_table(days, folder / "date_dim.parquet")
    (folder / "queries.json").write_text(
        json.dumps({str(number): TEXT for number in range(1, 100)})
    )
    for number in NUMBERS:
        sums = pa.table(
            {"d_year": [1998, 1999], "the sum": [5.0, 4.0 if number != NUMBERS[-1] else 4.5]}
        )
        pq.write_table(sums, folder / "answers" / f"{number}.parquet")
    return folder


def test_some_of_the_99_queries_are_available_and_chosen_by_name():
    assert (
        15 <= len(NAMES) <= 25
        and sorted(set(NUMBERS)) == list(NUMBERS)
        and set(NUMBERS) < set(range(1, 100))
    )
    assert named("") == list(NAMES) and named("Q42,Q3") == ["Q42", "Q3"]
    with pytest.raises(typer.BadParameter, match="Q100"):
        named("Q100")


def test_queries_of_the_generator_are_translated_to_the_dialect_of_spark(generated):
    assert spark_text(TEXT) == "SELECT d_year, sum(d_dom) AS `the sum` FROM date_dim GROUP BY 1"
    assert queries(generated) == dict.fromkeys(NAMES, spark_text(TEXT))
    assert answer(generated, NAMES[0]) == [(1998, 5.0), (1999, 4.0)]


def test_answers_agree_if_they_differ_only_in_order_and_in_type_or_rounding_of_numbers():
    day = date(2000, 2, 1)
    assert agree(
        [(None, Decimal("1.50"), "b"), (day, 3, "a")], [(day, 3.0, "a"), (None, 1.50001, "b")]
    )
    assert agree([], [])
    for wrong in (
        [(day, 3.01, "a")],
        [(day, 3, "b")],
        [(day, None, "a")],
        [(day, 3)],
        [],
        [(day, 3, "a")] * 2,
    ):
        assert not agree(wrong, [(day, 3, "a")])


def test_fact_tables_are_sorted_by_date_and_their_number_of_files_follows_the_scale():
    facts = {name: layout.order for name, layout in tables.LAYOUTS.items() if layout.order}
    assert len(facts) == 6 and all(columns[0].endswith("date_sk") for columns in facts.values())
    assert [tables.LAYOUTS["store_sales"].files_at(scale) for scale in (2, 1, 0.01)] == [64, 32, 8]


def test_an_answer_that_differs_from_duckdbs_fails_the_run(spark, generated, tmp_path, monkeypatch):
    layouts = {"date_dim": tables.LAYOUTS["date_dim"]}
    load(
        tmp_path, layouts, lambda name: tables.ordered(generated, name), 0.01, "snappy", dirty=False
    )
    assert pq.read_table(tmp_path / PLAIN / "date_dim")["d_date_sk"].to_pylist() == [1, 2, 3]
    progress = list[str]()
    run = Run(
        spark,
        tmp_path,
        list(layouts),
        [Variant(PLAIN, PLAIN), Variant(CLEAN, CLEAN)],
        1,
        progress.append,
    )
    results = list(tpcds(run, NAMES[:2], generated))
    assert [[figure.variant for figure in figures] for figures in results] == [[PLAIN, CLEAN]] * 2
    assert progress == list(NAMES[:2]) and results[0][1].rows == 2
    with pytest.raises(
        WrongAnswer, match=f"{NAMES[-1]}: Spark's rows of plain Parquet are not duckdb's"
    ):
        list(tpcds(run, NAMES[-1:], generated))


def test_tables_are_generated_once_in_an_environment_of_their_own(tmp_path, monkeypatch):
    created, script, folder = list[tuple[str, ...]](), tmp_path / "script.py", tmp_path / "made"
    script.write_text(
        "import sys, pathlib\nf = pathlib.Path(sys.argv[1])\nf.mkdir()\n(f /"
        " 'scale').write_text(sys.argv[2])\n"
    )
    monkeypatch.setattr(generate, "__file__", str(script))

    def make(python, *requirements):
        created.append(requirements)
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)

    monkeypatch.setattr(tables, "make", make)
    for _ in range(2):
        tables.generated(folder, 0.5, tmp_path / "environments")
    tables.generated(tmp_path / "other", 1.0, tmp_path / "environments")
    assert (folder / "scale").read_text() == "0.5" and (
        tmp_path / "other" / "scale"
    ).read_text() == "1"
    assert created == [tables.REQUIREMENTS]


def test_an_environment_that_cannot_be_created_raises_missing(tmp_path, monkeypatch):
    def make(python, *requirements):
        raise Missing(f"{requirements[0]} cannot be installed")

    monkeypatch.setattr(tables, "make", make)
    with pytest.raises(Missing, match=r"duckdb==1\.5\.5"):
        tables.generated(tmp_path / "made", 1.0, tmp_path)

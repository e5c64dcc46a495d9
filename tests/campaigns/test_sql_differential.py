"""Random Spark SQL queries: mdt tables, read in every way and with all kinds of settings, return the
same as plain Parquet files of the same rows.

Daily runs use a few dozen queries, nightly runs thousands. Each failure prints the tables, the query,
the settings, and the command that replays the case.
"""

import os
import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from counting import count
from reader import comparable
from sql_queries import COUNT, KEYS, Query, Writer, settings
from sql_tables import settings as held
from sql_worlds import PLAIN, WAYS, world

WORLDS, CASES = 3, 10
"""Numbers of pairs of tables and of queries on each pair in daily runs."""
PARTS_NIGHTLY, WORLDS_NIGHTLY, CASES_NIGHTLY = 4, 10, 50
"""Numbers of tests of about ten minutes, of pairs of tables in each, and of queries on each pair in
nightly runs.
"""
REPLAY = "MDT_SQL"
"""Environment variable <seed>:<world>:<case> that replays a single case. <seed>:<world> replays all of
its cases.
"""
SCALE = float(os.environ.get("MDT_SQL_WORLDS", "1"))
"""Factor for the numbers of pairs of tables."""
SHOWN = 5


def answer(spark, text):
    """Return the result of a query: ("rows", table) or ("error", name)."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return "rows", spark.sql(text).toArrow()
    except PySparkException as error:
        return "error", error.getCondition() or type(error).__name__
    except Py4JJavaError as error:  # errors before there is a stream of rows
        causes = [line for line in str(error).splitlines() if line.startswith("Caused by:")]
        return "error", (causes or str(error).splitlines())[-1]


def bag(table, exact):
    """Return the rows as a multiset. Both zeros are equal unless ``exact``."""
    return Counter(sequence(table, exact))


def sequence(table, exact):
    """Return the rows in order, in a comparable form."""
    columns = [
        [comparable(value if exact else _with_positive_zero(value)) for value in column.to_pylist()]
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def _with_positive_zero(value):
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _with_positive_zero(item) for name, item in value.items()}
    return value


def difference(query, expected, answer_found, every):
    """Return a description of what is wrong with an answer, or "". ``every``: all rows from which the
    query may choose, if it may.
    """
    if "error" in (expected[0], answer_found[0]):
        return (
            ""
            if expected == answer_found
            else f"{_described(answer_found)} instead of {_described(expected)}"
        )
    expected_rows, rows_found = expected[1], answer_found[1]
    if (
        expected_rows.schema.names != rows_found.schema.names
        or expected_rows.schema.types != rows_found.schema.types
    ):
        return f"columns {rows_found.schema} instead of {expected_rows.schema}"
    if query.compare == KEYS:
        keys = [
            sequence(table.select(range(query.keys)), exact=False)
            for table in (rows_found, expected_rows)
        ]
        if keys[0] != keys[1]:
            return (
                f"sort keys {keys[0][:SHOWN]} of {len(keys[0])} instead of {keys[1][:SHOWN]} of"
                f" {len(keys[1])}"
            )
    if query.compare == COUNT and len(expected_rows) != len(rows_found):
        return f"{len(rows_found)} rows instead of {len(expected_rows)}"
    allowed, counts_found = (
        bag((every if query.every else expected)[1], query.exact),
        bag(rows_found, query.exact),
    )
    lost = Counter() if query.every else allowed - counts_found
    extra = counts_found - allowed
    return f"lost {_shown(lost)}, extra {_shown(extra)}" if lost or extra else ""


def _shown(rows):
    return f"{rows.total()} {list(rows)[:SHOWN]}"


def _described(result):
    return f"error {result[1]}" if result[0] == "error" else f"{len(result[1])} rows"


def random_ways(draw):
    """Yield ways to read the tables, each with the name of a table to read as plain Parquet or ""."""
    for way in draw.sample(WAYS, 2):
        yield way, draw.choice(("", "", "", "b", "a"))


def run_case(spark, tables, seed):
    """Run the query of a seed in several ways. Return descriptions of wrong answers."""
    draw = random.Random(seed)
    query, values = Writer(tables, draw).query(), settings(draw)
    failures = []
    with held(spark, values):
        tables.use(PLAIN)
        expected = answer(spark, query.text)
        every = answer(spark, query.every) if query.every else expected
        count(
            "queries of SQL that end in"
            f" {_described(expected) if expected[0] == 'error' else 'rows' if len(expected[1]) else 'no rows'}"
        )
        if every[0] == "error":
            return []
        for way, plain in random_ways(draw):
            tables.use(way, plain)
            if text := difference(query, expected, answer(spark, query.text), every):
                failures.append(f"{way}{f', {plain} as plain Parquet' if plain else ''}: {text}")
    if failures:
        descriptions = "\n".join(failures)
        replay = f"{REPLAY}={seed} python -m pytest {__file__} -k random_queries"
        failures = [
            f"{descriptions}\n  {query.text}\n  {values}\n{tables.told()}\n  replay: {replay}"
        ]
    return failures


def run(spark, folder, worlds, cases):
    """Run queries on the tables numbered ``worlds`` of a new seed, or of the seed to replay. Fail with all
    wrong answers.
    """
    replayed = os.environ.get(REPLAY, "").split(":")
    seed = replayed[0] or str(random.randrange(1 << 30))
    print(f"seed {seed}")
    failures = []
    for number in [int(replayed[1])] if replayed[1:] else worlds:
        with world(spark, f"{seed}:{number}", folder / str(number)) as tables:
            for case in [int(replayed[2])] if replayed[2:] else range(cases):
                failures += run_case(spark, tables, f"{seed}:{number}:{case}")
    assert not failures, f"{len(failures)} wrong\n" + "\n\n".join(failures[:20])


@pytest.mark.timeout(900)
def test_random_queries_have_the_answers_of_plain_parquet(spark, tmp_path):
    run(spark, tmp_path, range(round(WORLDS * SCALE)), CASES)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS_NIGHTLY))
def test_many_random_queries_have_the_answers_of_plain_parquet(spark, tmp_path, part):
    worlds = round(WORLDS_NIGHTLY * SCALE)
    run(spark, tmp_path, range(part * worlds, (part + 1) * worlds), CASES_NIGHTLY)


@pytest.mark.nightly
def test_a_planner_that_omits_a_file_is_detected(spark, tmp_path, monkeypatch):
    from mdt.engines.spark import frame as frames  # imports pyspark, which takes a second

    real_plan = frames.plan

    def plan_without_last_file(metadata, snapshot, predicate, *more):
        query_plan = real_plan(metadata, snapshot, predicate, *more)
        return (
            query_plan
            if predicate is None
            else replace(query_plan, segments=query_plan.segments[:-1])
        )

    monkeypatch.setattr(frames, "plan", plan_without_last_file)
    with world(spark, "noticed", tmp_path) as tables:
        assert any(run_case(spark, tables, f"noticed:{case}") for case in range(20))


def test_the_comparison_distinguishes_wrong_from_correct_answers():
    rows = ("rows", pa.table({"o0": [1.0, 0.0, None], "o1": ["a", "b", "c"]}))
    negative = ("rows", pa.table({"o0": [1.0, -0.0, None], "o1": ["a", "b", "c"]}))
    reordered = ("rows", rows[1].take([2, 0, 1]))
    fewer, failed, two_rows = (
        ("rows", rows[1].slice(1)),
        ("error", "DIVIDE_BY_ZERO"),
        ("rows", rows[1].slice(0, 2)),
    )
    every = ("rows", pa.concat_tables([rows[1], pa.table({"o0": [0.0], "o1": ["d"]})]))
    tie = ("rows", pa.table({"o0": [1.0, 0.0, None], "o1": ["a", "d", "c"]}))
    all_rows, top, limited = Query(""), Query("", KEYS, 1, "every"), Query("", COUNT, every="every")
    correct = [
        (all_rows, reordered, rows),
        (all_rows, negative, rows),
        (top, tie, every),
        (limited, tie, every),
        (all_rows, rows, rows),
    ]
    assert not [
        difference(query, rows, found_answer, candidates)
        for query, found_answer, candidates in correct
        if difference(query, rows, found_answer, candidates)
    ]
    assert "lost 1" in difference(all_rows, rows, fewer, rows) and "extra 1" in difference(
        all_rows, fewer, rows, fewer
    )
    assert "extra" in difference(Query("", exact=True), rows, negative, rows)
    assert "sort keys" in difference(top, rows, reordered, every) and "sort keys" in difference(
        top, rows, two_rows, every
    )
    assert "extra" in difference(top, rows, tie, rows) and "2 rows instead of 3" in difference(
        limited, rows, two_rows, every
    )
    assert difference(all_rows, rows, failed, rows) == "error DIVIDE_BY_ZERO instead of 3 rows"
    assert "columns" in difference(all_rows, rows, ("rows", rows[1].select(["o1"])), rows)
    assert not difference(all_rows, failed, failed, failed)

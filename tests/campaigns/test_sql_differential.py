"""Random queries of Spark SQL: tables of ours, read in every way, answer as plain Parquet of the
same rows does, under all kinds of settings.

By day a few dozen queries, at night thousands. Each failure prints the tables, the query, the
settings, and the command that runs that case again.
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
"""By day: so many pairs of tables, so many queries on each."""
PARTS_NIGHTLY, WORLDS_NIGHTLY, CASES_NIGHTLY = 4, 10, 50
"""At night: so many tests of some ten minutes, pairs of tables in each, queries on each pair."""
REPLAY = "MDT_SQL"
"""Environment variable <seed>:<world>:<case> that runs a single case again; <seed>:<world>, all of
its cases.
"""
SCALE = float(os.environ.get("MDT_SQL_WORLDS", "1"))
"""So many times as many pairs of tables."""
SHOWN = 5


def answer(spark, text):
    """Return what a query gives: rows, or an error."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return "rows", spark.sql(text).toArrow()
    except PySparkException as error:
        return "error", error.getCondition() or type(error).__name__
    except Py4JJavaError as error:  # what fails before there is a stream of rows
        causes = [line for line in str(error).splitlines() if line.startswith("Caused by:")]
        return "error", (causes or str(error).splitlines())[-1]


def bag(table, exact):
    """Return the rows as a multiset; either zero is the same unless ``exact``."""
    return Counter(sequence(table, exact))


def sequence(table, exact):
    """Return the rows in their order, in a form that can be compared."""
    columns = [
        [comparable(value if exact else _one_zero(value)) for value in column.to_pylist()]
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def _one_zero(value):
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _one_zero(one) for name, one in value.items()}
    return value


def difference(query, expected, found, every):
    """Return what is wrong with an answer, or nothing. ``every``: the rows that the query may
    choose from, where it may.
    """
    if "error" in (expected[0], found[0]):
        return "" if expected == found else f"{_said(found)} instead of {_said(expected)}"
    wanted, got = expected[1], found[1]
    if wanted.schema.names != got.schema.names or wanted.schema.types != got.schema.types:
        return f"columns {got.schema} instead of {wanted.schema}"
    if query.compare == KEYS:
        keys = [sequence(table.select(range(query.keys)), exact=False) for table in (got, wanted)]
        if keys[0] != keys[1]:
            return (
                f"sort keys {keys[0][:SHOWN]} of {len(keys[0])} instead of {keys[1][:SHOWN]} of"
                f" {len(keys[1])}"
            )
    if query.compare == COUNT and len(wanted) != len(got):
        return f"{len(got)} rows instead of {len(wanted)}"
    allowed, found_rows = (
        bag((every if query.every else expected)[1], query.exact),
        bag(got, query.exact),
    )
    lost = Counter() if query.every else allowed - found_rows
    extra = found_rows - allowed
    return f"lost {_few(lost)}, extra {_few(extra)}" if lost or extra else ""


def _few(rows):
    return f"{rows.total()} {list(rows)[:SHOWN]}"


def _said(answered):
    return f"error {answered[1]}" if answered[0] == "error" else f"{len(answered[1])} rows"


def ways(draw):
    """Yield how the tables are read, and which of them is plain Parquet all the same."""
    for way in draw.sample(WAYS, 2):
        yield way, draw.choice(("", "", "", "b", "a"))


def run_case(spark, of, seed):
    """Run the query of a seed in several ways and return what is wrong."""
    draw = random.Random(seed)
    query, values = Writer(of, draw).query(), settings(draw)
    wrong = []
    with held(spark, values):
        of.use(PLAIN)
        expected = answer(spark, query.text)
        every = answer(spark, query.every) if query.every else expected
        count(
            "queries of SQL that end in"
            f" {_said(expected) if expected[0] == 'error' else 'rows' if len(expected[1]) else 'no rows'}"
        )
        if every[0] == "error":
            return []
        for way, plain in ways(draw):
            of.use(way, plain)
            if text := difference(query, expected, answer(spark, query.text), every):
                wrong.append(f"{way}{f', {plain} as plain Parquet' if plain else ''}: {text}")
    if wrong:
        said = "\n".join(wrong)
        replay = f"{REPLAY}={seed} python -m pytest {__file__} -k random_queries"
        wrong = [f"{said}\n  {query.text}\n  {values}\n{of.told()}\n  replay: {replay}"]
    return wrong


def run(spark, folder, worlds, cases):
    """Run queries on the tables numbered ``worlds`` of a new seed, or of the one to replay; fail
    with all that was wrong.
    """
    given = os.environ.get(REPLAY, "").split(":")
    seed = given[0] or str(random.randrange(1 << 30))
    print(f"seed {seed}")
    wrong = []
    for number in [int(given[1])] if given[1:] else worlds:
        with world(spark, f"{seed}:{number}", folder / str(number)) as of:
            for case in [int(given[2])] if given[2:] else range(cases):
                wrong += run_case(spark, of, f"{seed}:{number}:{case}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n\n".join(wrong[:20])


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
def test_a_planner_that_leaves_out_a_file_is_noticed(spark, tmp_path, monkeypatch):
    from mdt.engines.spark import frame as frames  # and so pyspark, which takes a second

    right = frames.plan

    def wrong(metadata, snapshot, predicate, *more):
        found = right(metadata, snapshot, predicate, *more)
        return found if predicate is None else replace(found, segments=found.segments[:-1])

    monkeypatch.setattr(frames, "plan", wrong)
    with world(spark, "noticed", tmp_path) as of:
        assert any(run_case(spark, of, f"noticed:{case}") for case in range(20))


def test_wrong_answers_are_told_from_right_ones():
    rows = ("rows", pa.table({"o0": [1.0, 0.0, None], "o1": ["a", "b", "c"]}))
    negative = ("rows", pa.table({"o0": [1.0, -0.0, None], "o1": ["a", "b", "c"]}))
    turned = ("rows", rows[1].take([2, 0, 1]))
    fewer, failed, two = (
        ("rows", rows[1].slice(1)),
        ("error", "DIVIDE_BY_ZERO"),
        ("rows", rows[1].slice(0, 2)),
    )
    every = ("rows", pa.concat_tables([rows[1], pa.table({"o0": [0.0], "o1": ["d"]})]))
    tie = ("rows", pa.table({"o0": [1.0, 0.0, None], "o1": ["a", "d", "c"]}))
    whole, top, limited = Query(""), Query("", KEYS, 1, "every"), Query("", COUNT, every="every")
    right = [
        (whole, turned, rows),
        (whole, negative, rows),
        (top, tie, every),
        (limited, tie, every),
        (whole, rows, rows),
    ]
    assert not [
        difference(query, rows, found, among)
        for query, found, among in right
        if difference(query, rows, found, among)
    ]
    assert "lost 1" in difference(whole, rows, fewer, rows) and "extra 1" in difference(
        whole, fewer, rows, fewer
    )
    assert "extra" in difference(Query("", exact=True), rows, negative, rows)
    assert "sort keys" in difference(top, rows, turned, every) and "sort keys" in difference(
        top, rows, two, every
    )
    assert "extra" in difference(top, rows, tie, rows) and "2 rows instead of 3" in difference(
        limited, rows, two, every
    )
    assert difference(whole, rows, failed, rows) == "error DIVIDE_BY_ZERO instead of 3 rows"
    assert "columns" in difference(whole, rows, ("rows", rows[1].select(["o1"])), rows)
    assert not difference(whole, failed, failed, failed)

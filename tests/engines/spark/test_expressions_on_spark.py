"""What updates set means what Spark's SQL means, value for value."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from counting import count
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mdt.errors import MdtError
from mdt.filters.expression import parse_expression

ROWS = pa.table(
    {
        "i": pa.array([7, -7, None, 0, 3], pa.int32()),
        "l": pa.array([1, 2, 3, None, -(2**63)], pa.int64()),
        "d": pa.array([0.5, None, -1.5, 2.0, 1e300], pa.float64()),
        "t": pa.array(["a", " B ", None, "", "Ärger"], pa.string()),
        "b": pa.array([True, False, None, True, False]),
    }
)
ATOMS = ["i", "l", "d", "1", "2", "-3", "0", "10", "1.5e0", "null"]
TEXTS = ["t", "'x'", "upper(t)", "trim(t)", "null"]
TESTS = ["i > 0", "t like 'a%'", "b", "d is null", "l in (1, 3) or not b", "i between -1 and 5"]


def number(draw: random.Random, depth: int) -> str:
    kind = draw.randrange(9 if depth else 1)
    one, other = (number(draw, depth - 1) if depth else draw.choice(ATOMS) for _ in range(2))
    if kind < 4:
        return draw.choice(ATOMS) if not depth else f"({one} {draw.choice('+-*/')} {other})"
    if kind == 4:
        return (
            f"case when {draw.choice(TESTS)} then {one} when {draw.choice(TESTS)} then {other} end"
        )
    if kind == 5:
        return f"coalesce({one}, {other})"
    if kind == 6:
        return f"if({draw.choice(TESTS)}, {one}, {other})"
    if kind == 7:
        return f"nullif({one}, {other})"
    return f"-({one})"


def text(draw: random.Random) -> str:
    parts = [draw.choice(TEXTS) for _ in range(2)]
    return draw.choice(
        [
            f"{parts[0]} || {parts[1]}",
            f"concat({parts[0]}, '-', {parts[1]})",
            f"length({parts[0]})",
            f"coalesce(lower({parts[0]}), 'none')",
        ]
    )


def as_told(values: list[object]) -> list[object]:
    return [
        (
            None
            if one is None
            else (
                repr(float(one))
                if isinstance(one, int | float) and not isinstance(one, bool)
                else one
            )
        )
        for one in values
    ]


@pytest.mark.timeout(300)
def test_random_expressions_have_sparks_values(spark: SparkSession) -> None:
    draw, frame = random.Random(11), spark.createDataFrame(ROWS).coalesce(1).persist()
    texts = [number(draw, draw.randrange(3)) for _ in range(80)] + [text(draw) for _ in range(20)]
    for one in dict.fromkeys(texts):
        try:
            found = parse_expression(one, ROWS.schema)(ROWS).to_pylist()
        except MdtError:
            with pytest.raises(PySparkException):
                frame.selectExpr(f"({one}) as v").toArrow()
            count("expressions refused, as Spark does")
            continue
        theirs = frame.selectExpr(f"({one}) as v").toArrow()["v"].to_pylist()
        assert as_told(found) == as_told(theirs), one
        count("expressions with the values of Spark")

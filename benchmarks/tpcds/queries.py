"""Which queries of TPC-DS are run, how their texts become Spark's, and whether an answer is
duckdb's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = tuple[Any, ...]
NUMBERS = (
    3,
    7,
    12,
    13,
    15,
    19,
    20,
    21,
    25,
    26,
    32,
    37,
    42,
    43,
    48,
    52,
    55,
    65,
    68,
    73,
    79,
    82,
    92,
    96,
    98,
)
NAMES = tuple(f"Q{number}" for number in NUMBERS)
TOLERANCE = 1e-4
"""Relative, of numbers: duckdb divides decimals as doubles, Spark to so many places."""


def spark_text(text: str) -> str:
    """Return a query of the extension in Spark's words: quoted names stand in backquotes, and there
    is no semicolon.
    """
    return text.strip().rstrip(";").replace('"', "`")


def queries(made: Path) -> dict[str, str]:
    """Return the text of each query by its name, from the folder of what was generated."""
    found = json.loads((made / "queries.json").read_text(encoding="utf-8"))
    return {f"Q{number}": spark_text(found[str(number)]) for number in NUMBERS}


def answer(made: Path, name: str) -> list[Row]:
    """Return duckdb's rows of a query."""
    table = pq.read_table(made / "answers" / f"{name[1:]}.parquet")
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def agree(found: Sequence[Row], expected: Sequence[Row]) -> bool:
    """Return whether two answers have the same rows, in any order: numbers to TOLERANCE, the rest
    exactly.
    """
    pairs = zip(sorted(found, key=_place), sorted(expected, key=_place), strict=False)
    return len(found) == len(expected) and all(
        len(one) == len(other) and all(map(_same, one, other)) for one, other in pairs
    )


def _place(row: Row) -> tuple[str, ...]:
    """Return what rows are sorted by: what must be equal first, then numbers."""
    exact = [str(value) for value in row if not _is_number(value)]
    return (*exact, *(f"{float(value):.3e}" for value in row if _is_number(value)))


def _same(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)

"""``python -m benchmarks advice``: whether the advice on indexes pays for queries that it has not
seen.

Half of the queries of the Star Schema Benchmark, and of three random workloads on trips, are
counted; the indexes that ``advise`` proposes are created.  The other half says how many bytes of
data files are read without indexes, with those, and with an index on every column that is tested,
and how many bytes the indexes have.  Bytes are those of the blocks of 1,024 rows that may hold a
match.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from benchmarks.ssb.generate import ROWS_A_SCALE, Star
from benchmarks.ssb.queries import FILTERED, QUERIES
from benchmarks.ssb.variants import LAYOUTS
from benchmarks.trips import Trips
from mdt.scan.index_use import bytes_read

QUERIES_COUNTED_MIN = 60
"""Of the first half; few queries are counted several times."""
RANDOM_WORKLOADS = 3
_TESTED = ("city", "rider", "status", "fare", "distance", "age", "note")


def run(rows: int, seed: int, emit: Callable[[str], object]) -> None:
    """Measure every workload; ``emit`` takes lines of JSON."""
    flat = Star(rows / ROWS_A_SCALE, seed).flat.sort_by(
        [(name, "ascending") for name in LAYOUTS["date"]]
    )
    where = [query.where for query in QUERIES]
    indexes = [f"bitmap({column})" for column in FILTERED]
    emit(
        json.dumps(
            {
                "workload": "ssb",
                **_measured(flat, LAYOUTS["date"], where[::2], where[1::2], indexes),
            }
        )
    )
    trips = Trips(rows, seed).load()
    for number in range(RANDOM_WORKLOADS):
        draw = np.random.default_rng(seed + number)
        filters = [
            _filter(draw, trips, *draw.choice(_TESTED, 2, replace=False, p=_shares(number)))
            for _ in range(120)
        ]
        every = [f"bitmap({column})" for column in _TESTED[:-1]] + [
            "text(note, tokenizer='ngram(3)')"
        ]
        emit(
            json.dumps(
                {
                    "workload": f"random {number}",
                    **_measured(trips, ("id",), filters[::2], filters[1::2], every),
                }
            )
        )


def _shares(number: int) -> Any:
    """Return how often each column is tested in a workload: some often, others hardly."""
    shares = np.random.default_rng(number).permutation(1 / np.arange(1, len(_TESTED) + 1) ** 2)
    return shares / shares.sum()


def _filter(draw: np.random.Generator, rows: pa.Table, *columns: str) -> str:
    """Return a filter of one or two tests that some row passes."""
    row = int(draw.integers(0, len(rows)))
    tests = []
    for column in columns[: int(draw.integers(1, 3))]:
        value = rows[column][row].as_py()
        if column == "note":
            tests.append(f"note like '%{value.split()[0]}%'")
        elif isinstance(value, str):
            tests.append(f"{column} = '{value}'")
        elif draw.random() < 0.5:
            tests.append(f"{column} between {value} and {value * 1.01}")
        else:
            tests.append(f"{column} > {value}")
    return " and ".join(tests)


def _measured(
    rows: pa.Table,
    key: Sequence[str],
    seen: Sequence[str],
    unseen: Sequence[str],
    every: Sequence[str],
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        table = mdt.create(
            folder, rows.schema, key=key, options={"mdt.usage.counts": True, "mdt.durable": False}
        )
        table.bulk_insert(rows)
        for _ in range(-(-QUERIES_COUNTED_MIN // len(seen))):
            for where in seen:
                table.scan(where).count()
        advice = [one for one in table.advise() if one.action == "create"]
        without, least = _bytes(table, unseen), _bytes(table, seen)
        table.create_index([one.index for one in advice])
        advised, taken = _bytes(table, unseen), sum(table.indexes()["bytes"].to_pylist())
        advised_seen, contrary = (
            _bytes(table, seen),
            len([one for one in table.advise() if one.action == "drop"]),
        )
        there = set(table.indexes()["index"].to_pylist())
        table.create_index([index for index in every if index not in there])
        every_read, every_taken = _bytes(table, unseen), sum(table.indexes()["bytes"].to_pylist())
    return {
        "rows": len(rows),
        "advised": len(advice),
        "of": len(every),
        "dropped_at_once": contrary,
        "predicted_saved": max((one.saved / one.read for one in advice), default=0.0),
        "saved_seen": 1 - advised_seen / least,
        "saved_unseen": 1 - advised / without,
        "saved_by_every_index": 1 - every_read / without,
        "mb_a_query_without": without / len(unseen) / 1e6,
        "mb_of_advised": taken / 1e6,
        "mb_of_every_index": every_taken / 1e6,
        "mb_predicted": sum(one.bytes for one in advice) / 1e6,
    }


def _bytes(table: mdt.Table, filters: Sequence[str]) -> int:
    """Return how many bytes of data files the queries read."""
    return sum(bytes_read(table.scan(where).plan) for where in filters)

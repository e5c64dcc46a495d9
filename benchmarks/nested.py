"""What a nested column costs reads of few rows: the same table flat, and with a struct, a list or a
map more.

CPU milliseconds of mdt alone, warm, other literals each time, the tables in turns; before and after
an upsert of a twentieth of the rows.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from benchmarks.trips import WrongAnswer, keys_of

WORDS = 5_000
RIDERS_SHARE = 10
NESTED = "more"
"""The column that is nested."""


def shapes(rows: int, draw: np.random.Generator) -> dict[str, pa.Table]:
    """Return the flat rows, and the same with a nested column of each kind."""
    numbers = np.arange(rows)
    words = np.array([f"w{i:x}" for i in range(WORDS)])
    flat = pa.table(
        {
            "id": keys_of(numbers),
            "ts": np.zeros(rows, np.int64),
            "fare": draw.random(rows),
            "rider": [f"r{i}" for i in draw.integers(0, rows // RIDERS_SHARE, rows)],
            "note": [" ".join(some) for some in words[draw.integers(0, WORDS, (rows, 5))]],
        }
    )
    ends = np.append(0, np.cumsum(draw.integers(0, 7, rows))).astype(np.int32)
    values = int(ends[-1])
    names = pa.array([f"k{i % 9}" for i in range(values)])
    zips, tags = draw.integers(0, 99_999, rows), pa.array(draw.integers(0, 99_999, values))
    kinds: dict[str, pa.Array] = {
        "struct": pa.StructArray.from_arrays(
            [pa.array(draw.random(rows)), pa.array(zips)], ["lat", "zip"]
        ),
        "list": pa.ListArray.from_arrays(ends, pa.array(draw.random(values))),
        "map": pa.MapArray.from_arrays(ends, names, tags),
    }
    return {"flat": flat} | {
        kind: flat.append_column(NESTED, column) for kind, column in kinds.items()
    }


def questions(rows: int) -> dict[str, Callable[[mdt.Table, int], pa.Table]]:
    """Return what is read by name: the table, and the number of the question, which chooses the
    literals.
    """

    def get(table: mdt.Table, n: int, count: int) -> pa.Table:
        numbers = [(n * 7919 + j * 3571) % rows for j in range(count)]
        found: pa.Table = table.get(keys_of(np.array(numbers)))
        return found

    return {
        "get 1": lambda table, n: get(table, n, 1),
        "get 100": lambda table, n: get(table, n, 100),
        "rider": (
            lambda table, n: table.scan(f"rider = 'r{n * 37 % (rows // RIDERS_SHARE)}'").to_arrow()
        ),
        "word": lambda table, n: table.scan(f"match(note, 'w{n * 11 % WORDS:x}')").to_arrow(),
    }


def run(rows: int, seed: int, times: int, emit: Callable[[str], None]) -> None:
    """Measure; one line of JSON for each read and kind.  Raises WrongAnswer unless every row is the
    one that was written.
    """
    draw = np.random.default_rng(seed)
    data, tables = shapes(rows, draw), dict[str, mdt.Table]()
    with tempfile.TemporaryDirectory() as folder:
        for kind, given in data.items():
            table = tables[kind] = mdt.create(
                f"{folder}/{kind}",
                given.schema,
                key=["id"],
                ordering="ts",
                table_type="MERGE_ON_READ",
                indexes=["bitmap(rider)", "text(note)"],
            )
            table.bulk_insert(given)
            table.warm()
        _measure("", data, tables, times, emit)
        some = draw.choice(rows, rows // 20, replace=False)
        for kind, given in data.items():
            part = given.take(some)
            tables[kind].upsert(part.set_column(1, "ts", pa.array(np.ones(len(part), np.int64))))
        _measure(" after an upsert", data, tables, times, emit)


def _measure(
    when: str,
    data: dict[str, pa.Table],
    tables: dict[str, mdt.Table],
    times: int,
    emit: Callable[[str], None],
) -> None:
    for what, ask in questions(len(data["flat"])).items():
        laps: dict[str, list[float]] = {kind: [] for kind in tables}
        for n in range(times):
            for kind, table in tables.items():
                began = time.process_time()
                found = ask(table, n)
                laps[kind].append(1e3 * (time.process_time() - began))
                _check(found, data[kind])
        for kind, took in laps.items():
            figure: dict[str, Any] = {"what": what + when, "kind": kind, "times": times}
            figure |= {
                "cpu_ms": round(statistics.median(took), 2),
                "mean_cpu_ms": round(statistics.mean(took), 2),
            }
            figure["by_flat"] = round(figure["cpu_ms"] / statistics.median(laps["flat"]), 2)
            emit(json.dumps(figure))


def _check(found: pa.Table, given: pa.Table) -> None:
    numbers = [int(key.removeprefix("id_")) for key in found["id"].to_pylist()]
    expected = given.take(numbers).drop_columns("ts")
    if found.select(expected.column_names).to_pylist() != expected.to_pylist():
        raise WrongAnswer(f"{len(found)} rows are not those that were written")

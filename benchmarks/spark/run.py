"""Loads, upserts and queries of `trips` on Spark: each engine in a process and an environment of
its own, every answer checked.

Each loads the same rows twice (the first is cold), takes the same upserts, answers eight
queries with other literals each time, compacts, and answers them again.  duckdb on the rows that
must be there says what is right.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.spark.environments import Missing, interpreter
from benchmarks.trips import STATUSES, Trips, WrongAnswer

ENGINES_DEFAULT = ("mdt", "mdt in tasks", "parquet", "delta", "iceberg", "hudi")
UPSERTS = (1_000, 50_000, 500_000)
"""Rows of upserts into 1 M rows and more; into fewer rows, fewer of them."""
_FILES = 8
_LOADS = 2
_CORES = 2
_MEMORY = "6g"
_WARM_TEXTS = 8
"""Choices of literals that a query is warmed by, in turns."""


@dataclass(kw_only=True)
class Work:
    """The files that engines load and upsert, and their queries.

    warm_seconds: How long each query is run before it is measured.
    """

    folder: Path
    warm_seconds: float = 0
    load: str = ""
    upserts: list[tuple[str, str]] = field(default_factory=list)
    queries: dict[str, list[str]] = field(default_factory=dict)
    warm_queries: dict[str, list[str]] = field(default_factory=dict)

    def stored(self, rows: pa.Table, name: str, files: int) -> str:
        """Return a new folder with rows in so many Parquet files."""
        folder = self.folder / name
        folder.mkdir()
        every = -(-len(rows) // files)
        for number in range(files):
            pq.write_table(
                rows.slice(number * every, every), folder / f"{number}.parquet", compression="zstd"
            )
        return str(folder)


@dataclass(kw_only=True)
class World(Work):
    """Work of many kinds, and the rows that must be there in the end."""

    trips: Trips
    repeat: int
    first: pa.Table = field(init=False)
    last: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        rows = self.first = self.trips.load()
        self.load = self.stored(rows, "load", _FILES)
        for count in sorted({min(count, self.trips.rows // 2) for count in UPSERTS}):
            for number in range(self.repeat if count < max(UPSERTS) else 1):
                batch = self.trips.small(count)
                path = self.stored(batch, f"upsert-{count}-{number}", 1)
                self.upserts.append((f"upsert {count:,}", path))
                rows = _upserted(rows, batch)
        self.last = rows
        both = queries(self.trips, 1 + self.repeat + _WARM_TEXTS)
        self.queries = {name: texts[: 1 + self.repeat] for name, texts in both.items()}
        self.warm_queries = {name: texts[1 + self.repeat :] for name, texts in both.items()}


def _upserted(rows: pa.Table, batch: pa.Table) -> pa.Table:
    kept = rows.filter(pc.invert(pc.is_in(rows["id"], batch["id"].combine_chunks())))
    return pa.concat_tables([kept, batch])


def queries(trips: Trips, count: int) -> dict[str, list[str]]:
    """Return eight kinds of query, each with ``count`` choices of literals: SQL that Spark and
    duckdb understand alike.
    """
    draw = np.random.default_rng(trips.seed + 2)
    keys = trips.some_keys(count)
    lows = [float(low) / 4 for low in draw.integers(0, 39_000, count)]
    kinds: dict[str, Callable[[int], str]] = {
        "count": lambda i: "select count(*) from trips",
        "aggregate": lambda i: (
            f"select count(fare), sum(fare + {i}), sum(ts), max(distance), sum(age), max(note) from"
            " trips"
        ),
        "group by city": lambda i: (
            f"select city, count(*), sum(fare + {i}) from trips group by city order by city"
        ),
        "one key": lambda i: f"select id, ts, fare from trips where id = '{keys[i]}'",
        "rider": lambda i: (
            f"select id, fare from trips where rider = 'rider_{draw.integers(trips.riders)}' order"
            " by id"
        ),
        "three equalities": lambda i: (
            f"select id, fare from trips where status = '{STATUSES[4]}' and age ="
            f" {draw.integers(100)} and city = 'city_{draw.integers(100)}' order by id"
        ),
        "range of fares": lambda i: (
            f"select count(*), sum(fare), sum(ts) from trips where fare >= {lows[i]} and fare <"
            f" {lows[i] + 7.25}"
        ),
        "top 10": lambda i: (
            f"select id, ts from trips where age <> {i} order by ts desc, id limit 10"
        ),
    }
    return {name: [text(i) for i in range(count)] for name, text in kinds.items()}


class Judge:
    """Answers of duckdb on the rows that must be there."""

    def __init__(self, rows: pa.Table) -> None:
        import duckdb

        self._base = duckdb.connect()
        self._base.register("trips", rows)
        self._known: dict[str, list[list[Any]]] = {}

    def check(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Raise WrongAnswer unless ``rows`` is the answer to a query."""
        if text not in self._known:
            self._known[text] = [list(row) for row in self._base.execute(text).fetchall()]
        right = self._known[text]
        if len(right) != len(rows) or not all(map(_alike, right, rows)):
            raise WrongAnswer(f"{text}: expected {right[:3]}, got {list(rows)[:3]}")


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b) if isinstance(a, float) else a == b
        for a, b in zip(one, other, strict=True)
    )


def run(
    engines: Iterable[str],
    rows: int,
    seed: int,
    repeat: int,
    warm_seconds: float,
    emit: Callable[[str], object],
    environments: Path,
    scratch: Path | None = None,
) -> None:
    """Measure each engine; ``emit`` takes lines of JSON: of each step medians of its warm runs, and
    the first.

    ``warm_seconds``: how long each query is run before it is measured.  ``environments``: the
    folder in which those of peers are made.  Engines that cannot be had are skipped with the
    reason.  Raises RuntimeError if one fails, WrongAnswer for a wrong answer.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        world = World(
            folder=Path(folder), trips=Trips(rows, seed), repeat=repeat, warm_seconds=warm_seconds
        )
        judges = {
            "": Judge(world.first),
            "after upserts": Judge(world.last),
            "compacted": Judge(world.last),
        }
        for engine in engines:
            try:
                python, jars = interpreter(engine, environments)
            except Missing as reason:
                emit(json.dumps({"engine": engine, "skipped": str(reason)}))
                continue
            for line in _figures(lines(world, engine, python, jars), judges):
                emit(json.dumps({"bench": "spark", "engine": engine, "rows": rows, **line}))


def lines(
    work: Work, engine: str, python: str, jars: Sequence[str], *, upserts_only: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield what a worker says.

    upserts_only: One load, and no compaction.
    """
    with tempfile.TemporaryDirectory(dir=work.folder) as folder:
        request = {
            "engine": engine,
            "folder": folder,
            "load": work.load,
            "loads": 1 if upserts_only else _LOADS,
            "compacts": not upserts_only,
            "upserts": work.upserts,
            "queries": work.queries,
            "warm_queries": work.warm_queries,
            "warm_seconds": work.warm_seconds,
            "jars": list(jars),
            "cores": _CORES,
            "memory": _MEMORY,
        }
        told = Path(folder) / "work.json"
        told.write_text(json.dumps(request), encoding="utf-8")
        call = [python, str(Path(__file__).with_name("worker.py")), str(told)]
        with subprocess.Popen(
            call,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_surroundings(python),
        ) as child:
            assert child.stdout is not None and child.stderr is not None, "both are pipes"
            for line in child.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            said = child.stderr.read()
        if child.returncode:
            raise RuntimeError(f"{engine} ended with status {child.returncode}: {said[-4000:]}")


def _surroundings(python: str) -> dict[str, str]:
    """Return the environment's variables: a worker that shares this interpreter finds this very
    package, in tasks too.
    """
    here = {"PYTHONPATH": str(Path(__file__).parents[2])} if python == sys.executable else {}
    return {**os.environ, "PYSPARK_PYTHON": python, **here}


def _figures(
    lines: Iterable[Mapping[str, Any]], judges: Mapping[str, Judge]
) -> Iterator[dict[str, Any]]:
    """Yield one line for each step: medians of its warm runs where there are some.  Raises
    WrongAnswer.
    """
    laps: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    sizes: dict[tuple[str, str], int] = {}
    version = ""
    for line in lines:
        if "spark" in line:
            version = line["spark"]
        elif "answer" in line:
            judges[line["when"]].check(line["answer"], line["rows"])
        elif "written" in line:
            pass  # :mod:`benchmarks.delta` shows it
        elif "bytes" in line:
            sizes[line["step"], line["when"]] = line["bytes"]
        else:
            laps.setdefault((line["step"], line["when"]), []).append(line)
    for step, when in dict.fromkeys([*laps, *sizes]):
        found: dict[str, Any] = {"step": step, "when": when, "spark": version}
        if all_laps := laps.get((step, when)):
            warm = [lap for lap in all_laps if lap["warm"]] or all_laps
            found |= {
                name: statistics.median(lap[name] for lap in warm)
                for name in ("seconds", "cpu_seconds")
            }
            found |= {"first_seconds": all_laps[0]["seconds"], "times": len(warm)}
        if (step, when) in sizes:
            found["bytes"] = sizes[step, when]
        yield found

"""Threads of the JVM that call Python come and go with queries: what Py4J keeps for each of them must go, too."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import mdt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 12
MOST = 4
"""So many connections may be there more after a few queries than before: those of threads that live, and of the last that have ended."""


def connections(spark: SparkSession) -> int:
    """Return how many threads of Python wait for calls of the JVM."""
    return sum(thread.name.startswith("Thread-") for thread in threading.enumerate())


def test_a_thread_that_planned_a_query_leaves_no_thread_of_python_behind(spark: SparkSession, tmp_path: Path) -> None:
    t = mdt.create(tmp_path / "t", pa.schema([("id", pa.string()), ("v", pa.int64())]), key=["id"])
    t.upsert({"id": ["a", "b"], "v": [1, 2]})
    frame = mdt.read(spark, t.path)
    assert frame.where("v > 1").toArrow().num_rows == 1
    before = connections(spark)
    for v in range(QUERIES):  # each is planned by a thread of its own
        assert frame.where(f"v > {v % 2}").toArrow().num_rows == 2 - v % 2
    assert connections(spark) <= before + MOST


def test_nothing_is_ended_while_its_thread_lives(spark: SparkSession, tmp_path: Path) -> None:
    """Queries of several threads at a time, each thread several times: a connection that was ended would fail the next call."""
    t = mdt.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key=["id"])
    t.upsert({"id": list(range(100))})
    frame = mdt.read(spark, t.path)
    found: list[int] = []

    def ask(low: int) -> None:
        found.extend(frame.where(f"id >= {low + n}").toArrow().num_rows for n in range(4))

    threads = [threading.Thread(target=ask, args=(low,)) for low in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(100 - low - n for low in range(0, 40, 10) for n in range(4))

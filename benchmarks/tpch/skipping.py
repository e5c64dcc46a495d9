"""Two small workloads that say how many files a scan reads: the top rows of a table, and a join
with few rows of a dimension.

``events`` stands in many files in the order of ``at``, and with it of ``place``, a key of the
dimension ``places``: ten events at a place in a row, so that a file has events of few places.
Neither is a partition column. ``tag`` is drawn, so every file has every value of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import mdt
from benchmarks.tpch.measure import CLEAN, DIRTY, PLAIN
from benchmarks.tpch.tables import Layout, write_dirty, write_plain, write_table
from mdt.engines.spark.private import java_session

TABLES = ("events", "places")
FILES, ROWS_A_FILE = 200, 10_000
"""At scale factor 1."""
FILES_MIN, ROWS_A_FILE_MIN = 20, 500
SELECTIVE = 100
"""One row of the dimension in so many passes the filter."""
FILES_METRIC = "number of files read"
EVENTS = Layout(("id",), FILES, ("at",))
PLACES = Layout(("place",), 1)


@dataclass(frozen=True)
class Workload:
    """One query, and the column by which the scans are known whose files are counted."""

    name: str
    sql: str
    marker: str = "value"


WORKLOADS = (
    Workload("top newest", "select * from events order by at desc limit 10"),
    Workload("top oldest", "select at, id, value from events order by at limit 10"),
    Workload("top of a filter", "select * from events where value < 500 order by at desc limit 10"),
    Workload("top by a drawn column", "select * from events order by tag, id limit 10"),
    Workload("extremes", "select count(*), min(at), max(at), min(tag), max(tag) from events", "at"),
    Workload(
        "join, near",
        "select count(*), sum(value) from events join places using (place) where near = 7",
    ),
    Workload(
        "join, spread",
        "select count(*), sum(value) from events join places using (place) where spread = 7",
    ),
    Workload(
        "semi-join, near",
        "select count(*), sum(value) from events where place in (select place from places where"
        " near = 7)",
    ),
)


def data(scale: float, seed: int = 7) -> dict[str, pa.Table]:
    """Return the rows of both tables."""
    draw = np.random.default_rng(seed)
    files, rows_a_file = _size(scale)
    rows = files * rows_a_file
    each = max(10, rows_a_file // 20)
    place = np.arange(rows) // each
    places = int(place[-1]) + 1
    events = {
        "id": pa.array(draw.permutation(rows)),
        "at": pa.array(
            1_700_000_000_000_000 + 1_000_000 * np.arange(rows), pa.timestamp("us", "UTC")
        ),
        "place": pa.array(place),
        "tag": pa.array(draw.integers(0, 1_000_000, rows)),
        "value": pa.array(draw.integers(0, 1000, rows)),
        "note": (
            pa.array([f"note {n}" for n in range(997)]).take(pa.array(draw.integers(0, 997, rows)))
        ),
    }
    number = np.arange(places)
    groups = max(1, places // SELECTIVE)
    dimension = {
        "place": pa.array(number),
        "near": pa.array(number // max(1, places // SELECTIVE)),
        "spread": pa.array(number % SELECTIVE),
        "name": pa.array([f"place {n % groups}" for n in range(places)]),
    }
    return {"events": pa.table(events), "places": pa.table(dimension)}


def load(folder: Path, scale: float, compression: str, dirty: bool) -> None:
    """Write both tables in every form below ``folder``."""
    made = data(scale)
    for name, layout in (("events", EVENTS), ("places", PLACES)):
        files = _size(scale)[0] if name == "events" else 1
        write_plain(made[name], folder / PLAIN / name, files, compression)
        write_table(made[name], folder / CLEAN / name, layout, files)
        if dirty:
            write_dirty(made[name], folder / CLEAN / name, folder / DIRTY / name)


def files_in(folder: Path, kind: str, name: str) -> int:
    """Return how many files a table has, log files included."""
    if kind == PLAIN:
        return len(list((folder / kind / name).glob("*.parquet")))
    return len(mdt.open(folder / kind / name).files())


def files_read(spark: SparkSession, sql: str, marker: str) -> int:
    """Run a query and return the files that those of its scans listed that read the column
    ``marker``, by Spark's own metric.
    """
    store: Any = java_session(spark).sharedState().statusStore()
    bus: Any = java_session(spark).sparkContext().listenerBus()
    spark.sql(sql).collect()
    # The figures of the last tasks arrive on a bus of events.
    bus.waitUntilEmpty()
    executions = store.executionsList()
    number = max(int(executions.apply(i).executionId()) for i in range(executions.size()))
    values, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
    found = 0
    for node in (nodes.apply(i) for i in range(nodes.size())):
        if node.name().startswith("Scan ") and _reads(node.desc(), marker):
            found += sum(
                _shown(values, node.metrics().apply(i)) for i in range(node.metrics().size())
            )
    return found


def _reads(description: str, column: str) -> bool:
    """Return whether a scan's description has a column, as Spark numbers them: ``value#12L``."""
    return f"{column}#" in description.replace("[", ",").replace(" ", ",").partition("Batched:")[0]


def _shown(values: Any, metric: Any) -> int:
    text = values.get(metric.accumulatorId())
    return (
        int(text.get().replace(",", ""))
        if metric.name() == FILES_METRIC and text.isDefined()
        else 0
    )


def _size(scale: float) -> tuple[int, int]:
    """Return files of the table of events, and rows in each."""
    return max(FILES_MIN, round(FILES * scale)), max(
        ROWS_A_FILE_MIN, round(ROWS_A_FILE * min(1.0, scale))
    )

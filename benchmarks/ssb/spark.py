"""A local Spark session for the benchmark, and what Spark itself says that a query read."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from mdt.engines.spark.private import java_session, jvm

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

FILES_METRIC = "number of files read"
CPU_TICK = 0.01
"""Seconds: the resolution of the JVM's processor time."""


@dataclass(frozen=True)
class Reading:
    """What the scans of one query opened: ``files``, and ``bytes`` that left the file system
    (footers included).
    """

    files: int
    bytes: int


@contextmanager
def session(folder: str, threads: int = 2) -> Iterator[SparkSession]:
    """Yield a local session that keeps its files in ``folder``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedStages": "1000000",
        "spark.ui.retainedJobs": "1000000",
        "spark.ui.retainedTasks": "10000000",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master(f"local[{threads}]").appName("mdt star schema benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class Timing:
    """Seconds of one run: by the clock, and of all processors in this process and in the JVM (to
    CPU_TICK).
    """

    wall: float
    cpu: float


def cpu_seconds(spark: SparkSession) -> float:
    """Return the processor seconds that this process and the JVM have used so far."""
    there: int = (
        jvm(spark).java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()
    )
    return time.process_time() + there / 1000


def timed(spark: SparkSession, sql: str) -> tuple[Timing, list[tuple[Any, ...]]]:
    """Return what a query cost, planning included, and its rows."""
    cpu, started = cpu_seconds(spark), time.perf_counter()
    rows = spark.sql(sql).collect()
    wall = time.perf_counter() - started
    return Timing(wall, cpu_seconds(spark) - cpu), [tuple(row) for row in rows]


def measured(spark: SparkSession, sql: str, group: str) -> tuple[Reading, list[tuple[Any, ...]]]:
    """Return what a query read, and its rows.  ``group``: a name for its jobs, used once."""
    context = spark.sparkContext
    context.setJobGroup(group, sql)
    frame = spark.sql(sql)
    rows = [tuple(row) for row in frame.collect()]
    java_context: Any = java_session(spark).sparkContext()
    # The figures of the last tasks arrive on a bus of events.
    java_context.listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), java_context.statusStore()
    jobs = [
        job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))
    ]
    stages = {stage for job in jobs for stage in job.stageIds}
    return (
        Reading(_files(frame), sum(store.lastStageAttempt(stage).inputBytes() for stage in stages)),
        rows,
    )


def _files(frame: DataFrame) -> int:
    """Return the files that the scans of the query that ran last listed after pruning, as Spark's
    own page shows them.

    The plan cannot tell: when no row matches, the adaptive planner drops the scans from it once
    they have run.
    """
    store: Any = java_session(frame.sparkSession).sharedState().statusStore()
    runs = store.executionsList()
    run = runs.apply(runs.size() - 1)
    values, metrics = store.executionMetrics(run.executionId()), run.metrics()
    counts = {
        m.accumulatorId()
        for m in map(metrics.apply, range(metrics.size()))
        if m.name() == FILES_METRIC
    }
    return sum(
        int(text.get().replace(",", ""))
        for number in counts
        if (text := values.get(number)).isDefined()
    )

"""What the executed plan of a frame says of its scans of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sql_tables import settings

from mdt.engines.spark import private

PRUNING = "spark.sql.optimizer.dynamicPartitionPruning.enabled"


def nodes(frame: DataFrame) -> list[Any]:
    """Return the nodes of the plan that a frame was executed by, stages of the adaptive plan
    included.
    """
    return list(_nodes(private.java_frame(frame).queryExecution().executedPlan()))


def files_read(frame: DataFrame) -> list[int]:
    """Return how many files each scan of an executed frame has read, from left to right."""
    scans = [node for node in nodes(frame) if node.nodeName().startswith("Scan parquet")]
    return [int(node.metrics().apply("numFiles").value()) for node in scans]


def run(frame: DataFrame) -> tuple[list[Any], list[int]]:
    """Return the rows of a frame, and how many files each scan has read."""
    rows = frame.collect()
    return rows, files_read(frame)


def plain(spark: SparkSession, query: str) -> list[str]:
    """Return the rows of a query of which no side of a join asks another."""
    with settings(spark, {PRUNING: "false"}):
        return sorted(map(repr, spark.sql(query).collect()))


def _nodes(node: Any) -> Iterator[Any]:
    name = node.nodeName()
    if name == "AdaptiveSparkPlan":
        yield from _nodes(node.executedPlan())
    elif name.endswith("QueryStage"):
        yield from _nodes(node.plan())
    else:
        yield node
        children = node.children()
        for at in range(children.size()):
            yield from _nodes(children.apply(at))

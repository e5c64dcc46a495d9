"""Figures from the plans of frames about their file scans, and temporary views over tables for such
frames.
"""

from contextlib import contextmanager

from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark import private

PRUNING = "spark.sql.optimizer.dynamicPartitionPruning.enabled"


@contextmanager
def views(spark, **tables):
    """Register tables as temporary views of the session within the context."""
    mdt.spark.enable(spark)
    for name, table in tables.items():
        mdt.read(spark, table.path).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in tables:
        spark.catalog.dropTempView(name)


def optimized(frame):
    """Return the optimized logical plan of a frame."""
    return private.java_frame(frame).queryExecution().optimizedPlan()


def nodes(frame):
    """Return the nodes of the executed plan of a frame, including the stages of adaptive plans."""
    return list(_nodes(private.java_frame(frame).queryExecution().executedPlan()))


def measured(frame, metric):
    """Return a metric of each file scan of an executed frame, from left to right."""
    scans = [node for node in nodes(frame) if node.nodeName().startswith("Scan parquet")]
    return [int(node.metrics().apply(metric).value()) for node in scans]


def files_read(frame):
    """Return how many files each scan of an executed frame has read."""
    return measured(frame, "numFiles")


def run(frame):
    """Return the rows of a frame, and the number of files that each scan has read."""
    rows = frame.collect()
    return rows, files_read(frame)


def as_text(rows):
    """Return rows as sorted text, so that NaN equals NaN."""
    return sorted(map(repr, rows))


def plain(spark, query):
    """Return the rows of a query without dynamic partition pruning between the sides of a join."""
    with settings(spark, {PRUNING: "false"}):
        return as_text(spark.sql(query).collect())


def _nodes(node):
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

"""What the plan of a frame says of its scans of files, and tables as views for such frames."""

from contextlib import contextmanager

from sql_tables import settings

import mdt
import mdt.spark
from mdt.engines.spark import private

PRUNING = "spark.sql.optimizer.dynamicPartitionPruning.enabled"


@contextmanager
def views(spark, **tables):
    """Let a session know tables as temporary views meanwhile."""
    mdt.spark.enable(spark)
    for name, table in tables.items():
        mdt.read(spark, table.path).createOrReplaceTempView(name)
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark
    for name in tables:
        spark.catalog.dropTempView(name)


def optimized(frame):
    """Return the plan of a frame that the optimizer has made."""
    return private.java_frame(frame).queryExecution().optimizedPlan()


def nodes(frame):
    """Return the nodes of the plan that a frame was executed by, stages of the adaptive plan
    included.
    """
    return list(_nodes(private.java_frame(frame).queryExecution().executedPlan()))


def measured(frame, metric):
    """Return a metric of each scan of files of an executed frame, from left to right."""
    scans = [node for node in nodes(frame) if node.nodeName().startswith("Scan parquet")]
    return [int(node.metrics().apply(metric).value()) for node in scans]


def files_read(frame):
    """Return how many files each scan of an executed frame has read."""
    return measured(frame, "numFiles")


def run(frame):
    """Return the rows of a frame, and how many files each scan has read."""
    rows = frame.collect()
    return rows, files_read(frame)


def as_text(rows):
    """Return rows in a fixed order, in which NaN equals NaN."""
    return sorted(map(repr, rows))


def plain(spark, query):
    """Return the rows of a query of which no side of a join asks another."""
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

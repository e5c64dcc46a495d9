"""Metrics of plans in Spark's UI, for tests that set ``spark.mdt.explain=metrics``."""

from mdt.engines.spark.private import java_session


def figures(spark, frame):
    """Run ``frame`` and return the metrics of each of its explained scans as Spark's UI shows them.
    Asserts that the metrics of Spark's own scans agree with them.
    """
    java = java_session(spark)
    store = java.sharedState().statusStore()
    java.sparkContext().listenerBus().waitUntilEmpty()
    before = newest(store)
    frame.collect()
    java.sparkContext().listenerBus().waitUntilEmpty()
    number = newest(store)
    assert number == before + 1
    values, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
    named = [nodes.apply(i) for i in range(nodes.size())]
    explained = [shown(node, values) for node in named if node.name() == "TableScan"]
    scans = [shown(node, values) for node in named if node.name().startswith("Scan parquet")]
    if explained:
        assert sorted(metrics["files read"] for metrics in explained) == sorted(
            metrics["number of files read"] for metrics in scans
        )
    return explained


def newest(store):
    """Return the number of the newest execution. Spark keeps only some of them."""
    executions = store.executionsList()
    return max(
        (int(executions.apply(i).executionId()) for i in range(executions.size())), default=-1
    )


def shown(node, values):
    metrics = node.metrics()
    each = [metrics.apply(i) for i in range(metrics.size())]
    return {
        metric.name(): values.apply(metric.accumulatorId())
        for metric in each
        if values.contains(metric.accumulatorId())
    }


def number(metrics, name):
    return int(metrics[name].replace(",", ""))


def reads(spark, frame, kind):
    """Return how many footers or deletion vectors a query finds in executors, and how many it reads
    there.
    """
    (metrics,) = figures(spark, frame)
    return number(metrics, f"{kind} found in executors"), number(
        metrics, f"{kind} read by executors"
    )

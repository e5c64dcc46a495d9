"""What Spark's UI shows of plans: for tests that ask for ``spark.mdt.explain=metrics``."""

from mdt.engines.spark.private import java_session


def figures(spark, frame):
    """Run ``frame`` and return the metrics of each explained scan in it, as Spark's UI shows them;
    Spark's scans agree with them.
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
        assert sorted(one["files read"] for one in explained) == sorted(
            one["number of files read"] for one in scans
        )
    return explained


def newest(store):
    """Return the number of the newest execution; Spark keeps some of them."""
    executions = store.executionsList()
    return max(
        (int(executions.apply(i).executionId()) for i in range(executions.size())), default=-1
    )


def shown(node, values):
    metrics = node.metrics()
    each = [metrics.apply(i) for i in range(metrics.size())]
    return {
        one.name(): values.apply(one.accumulatorId())
        for one in each
        if values.contains(one.accumulatorId())
    }


def number(found, name):
    return int(found[name].replace(",", ""))


def reads(spark, frame, what):
    """Return how many footers, or deletion vectors, a query finds in executors, and how many it
    reads.
    """
    (found,) = figures(spark, frame)
    return number(found, f"{what} found in executors"), number(found, f"{what} read by executors")

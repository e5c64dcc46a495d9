// The scan of a table and the figures of its plan, as metrics of a node: Spark's UI shows those of every node, and which ones
// the node of a scan has is Spark's to say. So this one stands above it; rows and batches pass through as they are.
package mdt.spark;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;

public class ExplainedScan extends SparkPlan {
    private static final String[] FOOTERS = {"footers found in executors", "footers read by executors"};
    private static final ThreadLocal RUNNING = new ThreadLocal(); // the one whose scan is being made in this thread
    private final SparkPlan scan;
    private scala.collection.immutable.Map metrics; // null: not asked for yet

    public ExplainedScan(SparkPlan scan) {
        this.scan = scan;
    }

    /** Returns whether a node is a scan of a table whose figures are to be told. */
    static boolean explains(Object node) {
        return index(node) != null && index(node).source.told && index(node).pin != null;
    }

    private static MdtFileIndex index(Object node) {
        if (!(node instanceof FileSourceScanExec)) {
            return null;
        }
        Object found = ((FileSourceScanExec) node).relation().location();
        return found instanceof MdtFileIndex ? (MdtFileIndex) found : null;
    }

    /** Returns the figures of the plan; it was made for the optimizer, or is kept until the files are listed. Null without. */
    private Figures figures() {
        if (!explains(scan)) {
            return null;
        }
        MdtFileIndex index = index(scan);
        try {
            return index.source.ask(index.pin, index.pin.key, ((FileSourceScanExec) scan).dataFilters()).figures;
        } catch (py4j.Py4JException failure) {
            return null; // it will say so again when the files are to be read
        }
    }

    /** Spark wants to know which ones there are before the query runs. */
    public synchronized scala.collection.immutable.Map metrics() {
        if (metrics == null) {
            Figures figures = figures();
            metrics = figures == null ? Scala.none() : figures.metrics(sparkContext());
            for (int i = 0; figures != null && index(scan).source.footerBytes > 0 && i < FOOTERS.length; i++) {
                metrics = (scala.collection.immutable.Map) metrics.updated(
                        FOOTERS[i], SQLMetrics.createMetric(sparkContext(), FOOTERS[i]));
            }
        }
        return metrics;
    }

    private void tell() {
        Figures figures = figures();
        if (figures != null) {
            SQLMetric[] told = figures.set(metrics());
            String execution = sparkContext().getLocalProperty(SQLExecution$.MODULE$.EXECUTION_ID_KEY());
            SQLMetrics.postDriverMetricUpdates(sparkContext(), execution, Scala.seq(told));
        }
    }

    /** Returns what tasks of the scan that is being made count footers by, null if nobody asks. */
    static SQLMetric[] footers() {
        ExplainedScan running = (ExplainedScan) RUNNING.get();
        if (running == null || !running.metrics().contains(FOOTERS[0])) {
            return null;
        }
        return new SQLMetric[] {
            (SQLMetric) running.metrics().apply(FOOTERS[0]), (SQLMetric) running.metrics().apply(FOOTERS[1])
        };
    }

    private RDD executed(boolean columnar) {
        RUNNING.set(this);
        RDD rows;
        try {
            rows = columnar ? scan.executeColumnar() : scan.execute();
        } finally {
            RUNNING.remove();
        }
        tell();
        return rows;
    }

    public RDD doExecute() {
        return executed(false);
    }

    public RDD doExecuteColumnar() {
        return executed(true);
    }

    public scala.collection.immutable.Seq output() {
        return scan.output();
    }

    public Partitioning outputPartitioning() {
        return scan.outputPartitioning();
    }

    public scala.collection.immutable.Seq outputOrdering() {
        return scan.outputOrdering();
    }

    public boolean supportsColumnar() {
        return scan.supportsColumnar();
    }

    public boolean supportsRowBased() {
        return scan.supportsRowBased();
    }

    public Option vectorTypes() {
        return scan.vectorTypes();
    }

    /** To Spark, which reuses results of equal plans, it is the scan. */
    public QueryPlan doCanonicalize() {
        return scan.canonicalized();
    }

    public scala.collection.immutable.Seq children() {
        return Scala.seq(new Object[] {scan});
    }

    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq children) {
        return new ExplainedScan((SparkPlan) children.apply(0));
    }

    public int productArity() {
        return 1;
    }

    public Object productElement(int at) {
        return scan;
    }

    public boolean canEqual(Object other) {
        return other instanceof ExplainedScan;
    }

    public boolean equals(Object other) {
        return other instanceof ExplainedScan && ((ExplainedScan) other).scan.equals(scan);
    }

    public int hashCode() {
        return scan.hashCode() + 1;
    }
}

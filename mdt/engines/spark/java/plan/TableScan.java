// A node above Spark's scan of a table that adds work to it. Rows and batches pass through unchanged.
//
// 1. Before files are listed, it adds the values of other sides of joins (JoinPruning) to the conditions. Spark
//    computes a node's subqueries before running it.
// 2. It shows the plan's figures as its metrics in Spark's UI, because the metrics of the scan node itself are fixed.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.package$AttributeSeq;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

public class TableScan extends SparkPlan {
    private static final String[] COUNTED = { // in the order of Recent
        "footers found in executors", "footers read by executors",
        "deletion vectors found in executors", "deletion vectors read by executors"
    };
    private static final ThreadLocal RUNNING = new ThreadLocal(); // the node whose scan is being created in this thread
    private final SparkPlan scan;
    private final Seq questions; // to other sides of joins
    private final Object[] metricsLock = new Object[0]; // Spark holds the monitor of a node while it waits for subqueries, which ask for all metrics
    private Map metrics; // null: not requested yet; guarded by metricsLock

    public TableScan(SparkPlan scan, Seq questions) {
        this.scan = scan;
        this.questions = questions;
    }

    /** Returns true if a node is Spark's scan of a table. */
    static boolean isOurs(Object node) {
        return index(node) != null && index(node).pin != null;
    }

    /** Returns the conditions of the scan that is being created in this thread, including values that are now known. */
    static Seq conditions(Seq conditions) {
        TableScan running = (TableScan) RUNNING.get();
        return running == null ? conditions : running.with(conditions);
    }

    private Seq with(Seq conditions) {
        List allConditions = new ArrayList(Scala.list(conditions));
        for (Object question : Scala.list(questions)) {
            Expression condition = Answered.condition((Expression) question);
            if (condition != null) {
                allConditions.add(condition);
            }
        }
        return Scala.seq(allConditions);
    }

    private static MdtFileIndex index(Object node) {
        if (!(node instanceof FileSourceScanExec)) {
            return null;
        }
        Object location = ((FileSourceScanExec) node).relation().location();
        return location instanceof MdtFileIndex ? (MdtFileIndex) location : null;
    }

    /**
     * Returns the plan with its figures. It was made for the optimizer, or is kept until the files are listed. Null
     * without figures.
     */
    private Answer answer(boolean running) {
        MdtFileIndex index = index(scan);
        if (index == null || !index.hasMetrics()) {
            return null;
        }
        try {
            Seq conditions = ((FileSourceScanExec) scan).dataFilters();
            return index.source.ask(index.pin, index.pin.key, running ? with(conditions) : conditions, MdtFileIndex.ALL);
        } catch (py4j.Py4JException failure) {
            return null; // the error will recur when the files are read
        }
    }

    /** Spark needs the names before the query runs. */
    public Map metrics() {
        synchronized (metricsLock) {
            if (metrics == null) {
                metrics = counted();
            }
            return metrics;
        }
    }

    private Map counted() {
        Answer answer = answer(false);
        boolean hasFigures = answer != null && answer.figures != null;
        Map metricsByName = hasFigures ? answer.figures.metrics(sparkContext()) : Scala.none();
        for (int i = 0; hasFigures && i < COUNTED.length; i++) {
            if (i < 2 ? index(scan).source.footerBytes > 0 : answer.hasDead()) {
                metricsByName = Scala.with(metricsByName, COUNTED[i], SQLMetrics.createMetric(sparkContext(), COUNTED[i]));
            }
        }
        return metricsByName;
    }

    private void tell() {
        Answer answer = answer(true);
        if (answer != null && answer.figures != null) {
            List updated = answer.figures.set(metrics());
            String execution = sparkContext().getLocalProperty(SQLExecution$.MODULE$.EXECUTION_ID_KEY());
            SQLMetrics.postDriverMetricUpdates(sparkContext(), execution, Scala.seq(updated));
        }
    }

    /** Returns the counters of Recent for the scan that is being created, or null if they are not requested. */
    static SQLMetric[] counters() {
        TableScan running = (TableScan) RUNNING.get();
        SQLMetric[] counters = new SQLMetric[COUNTED.length];
        boolean hasCounter = false;
        for (int i = 0; running != null && i < counters.length; i++) {
            if (running.metrics().contains(COUNTED[i])) {
                counters[i] = (SQLMetric) running.metrics().apply(COUNTED[i]);
                hasCounter = true;
            }
        }
        return hasCounter ? counters : null;
    }

    private RDD executed(boolean columnar) {
        Object before = RUNNING.get();
        RUNNING.set(this);
        RDD rows;
        try {
            rows = columnar ? scan.executeColumnar() : scan.execute();
        } finally {
            RUNNING.set(before);
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

    public Seq output() {
        return scan.output();
    }

    public Partitioning outputPartitioning() {
        return scan.outputPartitioning();
    }

    public Seq outputOrdering() {
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

    /** Spark reuses results of equal plans: without questions a node is equal to its scan. */
    public QueryPlan doCanonicalize() {
        return questions.isEmpty() ? scan.canonicalized()
                : new TableScan((SparkPlan) scan.canonicalized(), QueryPlan.normalizePredicates(questions, new package$AttributeSeq(output())));
    }

    public Seq children() {
        return Scala.seq(scan);
    }

    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq children) {
        return new TableScan((SparkPlan) children.apply(0), questions);
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int position) {
        return position == 0 ? (Object) scan : questions;
    }

    public boolean canEqual(Object other) {
        return other instanceof TableScan;
    }

    public boolean equals(Object other) {
        return other instanceof TableScan && ((TableScan) other).scan.equals(scan)
                && ((TableScan) other).questions.equals(questions);
    }

    public int hashCode() {
        return scan.hashCode() + 1;
    }
}

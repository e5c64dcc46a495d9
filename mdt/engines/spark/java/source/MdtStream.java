// spark.readStream.format("mdt"): the commits of a table in batches. Python, which keeps the table open while the query
// runs, determines the end of a batch and its rows. The plan of its frame becomes a part of the query's plan, with
// relations marked as streaming, as Spark requires. Filters and columns of the query therefore reach them and prune
// files.
package mdt.spark;

import java.util.function.Function;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class MdtStream implements Source, SupportsTriggerAvailableNow {
    private final SparkSession session;
    private final Function stream; // receives requests in Python
    private final StructType columns;
    private String last; // of a query that reads the available rows and then ends

    MdtStream(SparkSession session, Function stream, StructType columns) {
        this.session = session;
        this.stream = stream;
        this.columns = columns;
    }

    public StructType schema() {
        return columns;
    }

    /** Options limit the size of a batch, unless Spark asks for everything. */
    public ReadLimit getDefaultReadLimit() {
        return new ReadLimit() {};
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
        Object[] extra = {limit instanceof ReadAllAvailable, last};
        String[] answers = Python.texts(Python.ask(stream, "offset", session, null, json(start), extra));
        return answers.length == 0 ? null : new MdtOffset(answers[0]);
    }

    public void prepareForTriggerAvailableNow() {
        last = Python.texts(Python.ask(stream, "newest", session, null, null, null))[0];
    }

    /** An older interface. Spark uses latestOffset. */
    public Option getOffset() {
        throw new UnsupportedOperationException("streams of mdt support only latestOffset");
    }

    public org.apache.spark.sql.Dataset getBatch(Option start, org.apache.spark.sql.execution.streaming.Offset end) {
        String startJson = start.isEmpty() ? null : json((Offset) start.get());
        Dataset rows = (Dataset) Python.ask(
                stream, "batch", session, null, end.json(), new Object[] {startJson, columns.json()});
        LogicalPlan streaming = streaming(rows.queryExecution().analyzed());
        return streaming == null ? session.internalCreateDataFrame(rows.queryExecution().toRdd(), columns, true)
                : Dataset.ofRows(session, streaming);
    }

    /**
     * Returns a plan whose leaves are marked as streaming, or null if they are not relations: rows that cannot be read.
     */
    private static LogicalPlan streaming(LogicalPlan plan) {
        for (Object leaf : Scala.list(plan.collectLeaves())) {
            if (!(leaf instanceof LogicalRelation)) {
                return null;
            }
        }
        return (LogicalPlan) plan.transformUp(new Replacement() {
            Object of(Object node) {
                return node instanceof LogicalRelation ? Scala.copied((LogicalRelation) node, "isStreaming", true) : null;
            }
        });
    }

    /** Nothing to do: cleaning decides how long rows are available. */
    public void commit(org.apache.spark.sql.execution.streaming.Offset end) {}

    public void commit(Offset end) {}

    public void stop() {}

    private static String json(Offset offset) {
        return offset == null ? null : offset.json();
    }
}

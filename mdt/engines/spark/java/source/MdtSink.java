// df.writeStream.format("mdt"): each batch is a write with the number of the batch, so that repeating it changes
// nothing.
package mdt.spark;

import java.util.function.Function;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.Sink;
import scala.collection.immutable.Map;

final class MdtSink implements Sink {
    private static final String QUERY = "sql.streaming.queryId"; // in the properties of a stream's thread

    private final Map options;
    private final String mode;
    private Function sink; // in Python; keeps the table open after the first batch

    MdtSink(Map options, String mode) {
        this.options = options;
        this.mode = mode;
    }

    public void addBatch(long number, org.apache.spark.sql.Dataset rows) {
        SparkSession session = (SparkSession) rows.sparkSession();
        Dataset batchRows = session.internalCreateDataFrame(((Dataset) rows).queryExecution().toRdd(), rows.schema(), false);
        if (sink == null) {
            sink = (Function) Python.ask("sink", session, null, null, null);
        }
        Object[] batch = {session.sparkContext().getLocalProperty(QUERY), number, batchRows};
        Python.ask(sink, "write", session, options, mode, batch);
    }

    public String toString() {
        return "mdt";
    }
}

// df.writeStream.format("mdt"): each batch is one write of a table, which has the number of the batch: repeated, it changes nothing.
package mdt.spark;

import java.util.function.Function;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.Sink;

final class MdtSink implements Sink {
    private static final String QUERY = "sql.streaming.queryId"; // what Spark calls it in the properties of a stream's thread

    private final SparkSession session;
    private final scala.collection.immutable.Map options;
    private final String mode;
    private Function sink; // of Python, which keeps the table open from the first batch on

    MdtSink(SparkSession session, scala.collection.immutable.Map options, String mode) {
        this.session = session;
        this.options = options;
        this.mode = mode;
    }

    public void addBatch(long number, Dataset rows) {
        org.apache.spark.sql.classic.SparkSession own = (org.apache.spark.sql.classic.SparkSession) rows.sparkSession();
        org.apache.spark.sql.classic.Dataset found = own.internalCreateDataFrame(
                ((org.apache.spark.sql.classic.Dataset) rows).queryExecution().toRdd(), rows.schema(), false);
        if (sink == null) {
            sink = Python.sink(own);
        }
        Python.batch(sink, own, options, mode, own.sparkContext().getLocalProperty(QUERY), number, found);
    }

    public String toString() {
        return "mdt";
    }
}

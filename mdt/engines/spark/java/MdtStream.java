// spark.readStream.format("mdt"): the commits of a table, one batch after the other. Python knows how far a batch goes and
// which rows it has; its frame becomes one that says of itself that it streams, as Spark wants it.
package mdt.spark;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class MdtStream implements Source, SupportsTriggerAvailableNow {
    private final SparkSession session;
    private final scala.collection.immutable.Map options;
    private final StructType columns;
    private String last; // of a query that reads what there is when it begins, and ends

    MdtStream(SparkSession session, scala.collection.immutable.Map options, StructType columns) {
        this.session = session;
        this.options = options;
        this.columns = columns;
    }

    public StructType schema() {
        return columns;
    }

    /** Whatever is no order to read everything: how much a batch has, the options say. */
    public ReadLimit getDefaultReadLimit() {
        return new ReadLimit() {};
    }

    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
            org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
        String found = Python.offset(session, options, json(start), limit instanceof ReadAllAvailable, last);
        return found.isEmpty() ? null : new MdtOffset(found);
    }

    public void prepareForTriggerAvailableNow() {
        last = Python.newest(session, options);
    }

    /** Of older ways to ask; Spark takes latestOffset. */
    public Option getOffset() {
        throw new UnsupportedOperationException("a stream of mdt is asked for its latestOffset");
    }

    public Dataset getBatch(Option start, Offset end) {
        String from = start.isEmpty() ? null : json((org.apache.spark.sql.connector.read.streaming.Offset) start.get());
        org.apache.spark.sql.classic.Dataset rows = Python.batch(session, options, from, end.json(), columns.json());
        return ((org.apache.spark.sql.classic.SparkSession) session)
                .internalCreateDataFrame(rows.queryExecution().toRdd(), columns, true);
    }

    /** What was read need not be kept: cleaning knows what the table keeps. */
    public void commit(Offset end) {}

    public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {}

    public void stop() {}

    private static String json(org.apache.spark.sql.connector.read.streaming.Offset offset) {
        return offset == null ? null : offset.json();
    }
}

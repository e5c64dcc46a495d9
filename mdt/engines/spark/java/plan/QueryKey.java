// Names of queries: relations that ask with equal keys must be answered from one version of the table.
package mdt.spark;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;

final class QueryKey {
    private static final String UNPINNED = "call:"; // Python knows this prefix: nothing is remembered of such a query
    private static final AtomicLong CALLS = new AtomicLong();

    private QueryKey() {}

    /** Returns the key of what runs in this thread: of Spark's root execution, else of this call alone. */
    static String running(SparkContext context) {
        String id = context.getLocalProperty("spark.sql.execution.root.id");
        if (id == null) {
            id = context.getLocalProperty("spark.sql.execution.id");
        }
        return id != null ? "execution:" + id : unpinned();
    }

    /** Returns a key that comes but once. */
    static String unpinned() {
        return UNPINNED + CALLS.incrementAndGet();
    }
}

// Keys of queries: relations with equal keys must be read at one version of the table.
package mdt.spark;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;

final class QueryKey {
    private static final String UNPINNED = "call:"; // Python knows this prefix and keeps no state for such a query
    private static final AtomicLong CALLS = new AtomicLong();

    private QueryKey() {}

    /** Returns the key for the current thread: of Spark's root execution, or for this call only. */
    static String running(SparkContext context) {
        String id = context.getLocalProperty("spark.sql.execution.root.id");
        if (id == null) {
            id = context.getLocalProperty("spark.sql.execution.id");
        }
        return id != null ? "execution:" + id : unpinned();
    }

    /** Returns a key that is used once. */
    static String unpinned() {
        return UNPINNED + CALLS.incrementAndGet();
    }
}

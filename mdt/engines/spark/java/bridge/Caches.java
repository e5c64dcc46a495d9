// What Spark has cached of a table, in whichever session and by whichever name or path, is read anew after a write, as it is of Spark's own files.
// Spark finds relations by their roots; what it does by itself after an INSERT finds those of one session only.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CacheManager;
import scala.collection.immutable.Map;

final class Caches {
    private Caches() {}

    /** Lets Spark read anew what it has cached of the tables in a plan. */
    static void renew(SparkSession session, LogicalPlan plan) {
        for (Iterator i = new IndexSearch(plan).roots.iterator(); i.hasNext(); ) {
            renew(session, (String) i.next());
        }
    }

    /** As above, of the table that options name. */
    static void renew(SparkSession session, Map options) {
        if (!of(session).isEmpty()) {
            renew(session, Python.read(session, options, null));
        }
    }

    static void renew(SparkSession session, String root) {
        if (of(session).isEmpty()) {
            return;
        }
        try { // Roots are compared, which have their schemes, and no file is looked for: a store may be none of Hadoop's.
            FileSystem any = FileSystem.getLocal(session.sparkContext().hadoopConfiguration());
            of(session).recacheByPath((org.apache.spark.sql.classic.SparkSession) session, new Path(root), any);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static CacheManager of(SparkSession session) {
        return ((org.apache.spark.sql.classic.SparkSession) session).sharedState().cacheManager();
    }
}

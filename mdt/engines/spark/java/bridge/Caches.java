// Refreshes Spark's cache of a table after a write, for all sessions, names and paths, as Spark does for its own files.
// Spark finds cached relations by their root paths. Its own refresh after an INSERT covers a single session only.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CacheManager;
import scala.collection.immutable.Map;

final class Caches {
    private Caches() {}

    /** Recaches the cached tables in a plan. */
    static void renew(SparkSession session, LogicalPlan plan) {
        for (Object root : new IndexSearch(plan).roots) {
            renew(session, (String) root);
        }
    }

    /** Recaches the table that options name. */
    static void renew(SparkSession session, Map options) {
        if (!of(session).isEmpty()) {
            renew(session, Python.read(session, options, null));
        }
    }

    static void renew(SparkSession session, String root) {
        if (of(session).isEmpty()) {
            return;
        }
        try { // Roots with schemes are compared and no file is opened, because Hadoop may not know the store.
            FileSystem localFiles = FileSystem.getLocal(session.sparkContext().hadoopConfiguration());
            of(session).recacheByPath((org.apache.spark.sql.classic.SparkSession) session, new Path(root), localFiles);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static CacheManager of(SparkSession session) {
        return ((org.apache.spark.sql.classic.SparkSession) session).sharedState().cacheManager();
    }
}

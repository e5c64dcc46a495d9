// How large a frame is that Python gave as Arrow, of which Spark knows nothing: createDataFrame makes a plan of small data, and an RDD of more.
package mdt.spark;

import java.util.List;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import scala.collection.Iterator;

final class GivenBytes {
    private GivenBytes() {}

    /** Returns the bytes of Arrow that a frame is made of, or of which it is a part; -1 where it is made of anything else. */
    static long of(Dataset rows) {
        LogicalPlan plan = rows.queryExecution().analyzed();
        while (plan instanceof Project || plan instanceof Filter || plan instanceof SubqueryAlias) {
            plan = (LogicalPlan) ((UnaryNode) plan).child();
        }
        if (!(plan instanceof LogicalRDD)) {
            return -1;
        }
        RDD rdd = ((LogicalRDD) plan).rdd();
        if (!"arrow".equals(rdd.name())) { // as Spark calls it; other functions may make much of a few bytes
            return -1;
        }
        for (List before = Scala.list(rdd.dependencies()); !before.isEmpty(); before = Scala.list(rdd.dependencies())) {
            if (before.size() != 1 || !(before.get(0) instanceof OneToOneDependency)) {
                return -1;
            }
            rdd = ((Dependency) before.get(0)).rdd();
        }
        Partition[] parts = rdd.partitions();
        long bytes = 0;
        for (int i = 0; i < parts.length; i++) {
            if (!(parts[i] instanceof ParallelCollectionPartition)) {
                return -1;
            }
            for (Iterator batches = ((ParallelCollectionPartition) parts[i]).iterator(); batches.hasNext(); ) {
                Object batch = batches.next();
                if (!(batch instanceof byte[])) {
                    return -1;
                }
                bytes += ((byte[]) batch).length;
            }
        }
        return bytes;
    }
}

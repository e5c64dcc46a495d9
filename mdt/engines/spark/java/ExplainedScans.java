// Puts an ExplainedScan above each scan of a table whose session asks for figures. Spark makes a physical plan of a logical one by
// strategies, those of users first: this one lets Spark's own for scans of files do its work, and adds the node.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;

public class ExplainedScans extends SparkStrategy {
    public scala.collection.immutable.Seq apply(LogicalPlan plan) {
        List leaves = Scala.list(plan.collectLeaves());
        MdtFileIndex index = leaves.size() == 1 ? MdtFileIndex.of(leaves.get(0)) : null;
        if (index == null || !index.source.told) {
            return Scala.seq(new Object[0]); // the next strategy is asked
        }
        List found = Scala.list(FileSourceStrategy$.MODULE$.apply(plan));
        List explained = new ArrayList();
        for (int i = 0; i < found.size(); i++) {
            explained.add(((SparkPlan) found.get(i)).transformUp(new Replacement() {
                Object of(Object node) {
                    return ExplainedScan.explains(node) ? new ExplainedScan((SparkPlan) node) : null;
                }
            }));
        }
        return Scala.seq(explained);
    }
}

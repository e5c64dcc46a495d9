// Whether a part of a streaming query may need what Spark keeps in its state: groups, rows to be joined, keys that were seen. Of a batch
// alone such a part has not all rows, and only the query's own planner can make a physical plan of it.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Stateful extends AbstractFunction1 {
    private boolean found = false;

    private Stateful() {}

    /** Returns whether more than filters and projections stands above a stream in a plan. */
    static boolean is(LogicalPlan plan) {
        Stateful search = new Stateful();
        plan.foreach(search);
        return search.found;
    }

    public Object apply(Object node) {
        LogicalPlan one = (LogicalPlan) node;
        found |= one.isStreaming() && !(one instanceof Filter || one instanceof Project || one.children().isEmpty());
        return BoxedUnit.UNIT;
    }
}

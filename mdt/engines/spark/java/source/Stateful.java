// Whether a part of a streaming query may need what Spark keeps in its state: groups, rows to be joined, keys that were seen. Of a batch
// alone such a part has not all rows, and only the query's own planner can make a physical plan of it.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Stateful extends AbstractFunction1 {
    private boolean found = false;

    private Stateful() {}

    /** Returns whether more than filters, projections and joins with tables stands above a stream in a plan. */
    static boolean is(LogicalPlan plan) {
        Stateful search = new Stateful();
        plan.foreach(search);
        return search.found;
    }

    /** Returns whether a node of a plan may be one that keeps a state. */
    static boolean keeps(LogicalPlan node) {
        boolean joins = node instanceof Join && !(((Join) node).left().isStreaming() && ((Join) node).right().isStreaming());
        return node.isStreaming() && !(joins || node instanceof Filter || node instanceof Project || node.children().isEmpty());
    }

    public Object apply(Object node) {
        found |= keeps((LogicalPlan) node);
        return BoxedUnit.UNIT;
    }
}

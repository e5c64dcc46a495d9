// Collects the columns that a plan refers to, its join columns, and whether it has or will have a join: "exists (select
// …)" and "in (select …)" are conditions until Spark has ordered the joins.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.trees.TreePattern$;

final class References {
    AttributeSet all = AttributeSet$.MODULE$.empty();
    AttributeSet keys = AttributeSet$.MODULE$.empty();
    boolean joins = false;

    References(LogicalPlan plan) {
        for (Object item : Nodes.of(plan)) {
            LogicalPlan node = (LogicalPlan) item;
            joins |= node instanceof Join;
            if (node instanceof Join && ((Join) node).condition().isDefined()) {
                keys = keys.$plus$plus(((Expression) ((Join) node).condition().get()).references());
            }
            all = all.$plus$plus(node.references());
        }
        joins |= plan.containsPattern(TreePattern$.MODULE$.EXISTS_SUBQUERY()) || plan.containsPattern(TreePattern$.MODULE$.LIST_SUBQUERY());
        if (plan instanceof Subquery && !isTotal(((Subquery) plan).child())) {
            joins = true; // becomes a side of a join, which uses all of its columns
            all = all.$plus$plus(plan.outputSet());
        }
    }

    /** Returns true if a plan is one row of aggregates, so that a subquery remains a value. */
    private static boolean isTotal(LogicalPlan plan) {
        return plan instanceof Aggregate && ((Aggregate) plan).groupingExpressions().isEmpty();
    }
}

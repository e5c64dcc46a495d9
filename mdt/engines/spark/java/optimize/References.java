// Collects the columns that nodes of a plan refer to, those by which it joins, and whether it has a join, or will have one: "exists (select …)" and
// "in (select …)" are conditions until Spark has ordered the joins.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class References extends AbstractFunction1 {
    AttributeSet all = AttributeSet$.MODULE$.empty();
    AttributeSet keys = AttributeSet$.MODULE$.empty();
    boolean joins = false;

    References(LogicalPlan plan) {
        plan.foreach(this);
        joins |= plan.containsPattern(TreePattern$.MODULE$.EXISTS_SUBQUERY()) || plan.containsPattern(TreePattern$.MODULE$.LIST_SUBQUERY());
        if (plan instanceof Subquery && !isTotal(((Subquery) plan).child())) {
            joins = true; // it becomes a side of one, which looks at all of its columns
            all = all.$plus$plus(plan.outputSet());
        }
    }

    /** Returns whether a plan is one row of sums, and so is a subquery that stays a value. */
    private static boolean isTotal(LogicalPlan plan) {
        return plan instanceof Aggregate && ((Aggregate) plan).groupingExpressions().isEmpty();
    }

    public Object apply(Object node) {
        joins |= node instanceof Join;
        if (node instanceof Join && ((Join) node).condition().isDefined()) {
            keys = keys.$plus$plus(((Expression) ((Join) node).condition().get()).references());
        }
        all = all.$plus$plus(((LogicalPlan) node).references());
        return BoxedUnit.UNIT;
    }
}

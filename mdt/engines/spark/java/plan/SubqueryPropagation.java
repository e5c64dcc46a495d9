// Lets Spark's own rule for empty relations work inside subqueries. An optimizer rule is handed a plan; a subquery is a plan
// within an expression of it, "where n = (select …)", which that rule does not look into.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

final class SubqueryPropagation extends Replacement {
    /** Returns a plan without what its empty relations leave empty: a join with nothing, a union of one branch. */
    static LogicalPlan propagated(LogicalPlan plan) {
        LogicalPlan inner = (LogicalPlan) plan.transformAllExpressions(new SubqueryPropagation());
        return PropagateEmptyRelation$.MODULE$.apply(inner);
    }

    Object of(Object node) {
        if (!(node instanceof PlanExpression) || !(((PlanExpression) node).plan() instanceof LogicalPlan)) {
            return null; // no subquery, or one that has been made a physical plan already
        }
        PlanExpression subquery = (PlanExpression) node;
        return subquery.withNewPlan(propagated((LogicalPlan) subquery.plan()));
    }
}

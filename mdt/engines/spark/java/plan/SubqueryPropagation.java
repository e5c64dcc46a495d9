// Applies Spark's own rule for empty relations inside subqueries. A subquery is a plan within an expression, "where n =
// (select …)", which that rule does not visit.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

final class SubqueryPropagation extends Replacement {
    /** Returns a plan simplified for its empty relations, such as a join with nothing, or a union of one branch. */
    static LogicalPlan propagated(LogicalPlan plan) {
        LogicalPlan inner = (LogicalPlan) plan.transformAllExpressions(new SubqueryPropagation());
        return PropagateEmptyRelation$.MODULE$.apply(inner);
    }

    Object of(Object node) {
        if (!(node instanceof PlanExpression) || !(((PlanExpression) node).plan() instanceof LogicalPlan)) {
            return null; // not a subquery, or already a physical plan
        }
        PlanExpression subquery = (PlanExpression) node;
        return subquery.withNewPlan(propagated((LogicalPlan) subquery.plan()));
    }
}

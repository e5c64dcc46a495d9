// The rule that adds decimals up as whole numbers of 64 bits. Spark does so itself for decimals of up to 8 digits (DecimalAggregates): the
// ten digits more that a sum may have then fit. Of longer ones it makes an object for each step of each row, since any of them might be
// large. The metadata table knows better: between which bounds the values of a column lie, how many rows there are, and that a key has one
// row, so that a join by it has no more rows than its other side. Where sum and steps fit by that, sum(price * (1 - discount)) becomes
// a sum of long integers, and a decimal once for each group.
//
// DuckDB narrows numbers by statistics, too ("statistics propagation"); PostgreSQL's and Spark's sums go by types alone.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class SumsRule extends Rule {
    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery || !new IndexSearch((LogicalPlan) plan).has(MdtFileIndex.SUMS)) {
            return plan;
        }
        return ((LogicalPlan) plan).transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                return node instanceof Aggregate && !((Aggregate) node).isStreaming() ? narrowed((Aggregate) node) : null;
            }
        });
    }

    /** Returns an aggregate with sums of whole numbers, null where it has none that can be. A stream's state keeps the types that it began with. */
    private static LogicalPlan narrowed(Aggregate aggregate) {
        SumsReplacement sums = new SumsReplacement(aggregate.child(), new Bounds(aggregate));
        LogicalPlan made = (LogicalPlan) aggregate.transformExpressions(sums);
        return sums.any ? made : null;
    }
}

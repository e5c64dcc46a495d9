// An optimizer rule that replaces nodes in queries over mdt relations with a feature of MdtFileIndex enabled.
// Subqueries are visited as parts of their query, whose version they share, and not separately.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public abstract class QueryRule extends Rule {
    private final String feature;

    QueryRule(String feature) {
        this.feature = feature;
    }

    /** Returns the replacement of a node, or null to keep it. */
    abstract LogicalPlan replaced(Object node);

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery || !new IndexSearch((LogicalPlan) plan).has(feature)) {
            return plan;
        }
        return ((LogicalPlan) plan).transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                return replaced(node);
            }
        });
    }
}

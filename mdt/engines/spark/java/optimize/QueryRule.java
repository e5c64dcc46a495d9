// A rule of the optimizer for queries with relations of ours for which something is done, as MdtFileIndex names it: it puts other nodes in the
// places of some. Subqueries are looked at as parts of their query, whose version they share, and not by themselves.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public abstract class QueryRule extends Rule {
    private final String what;

    QueryRule(String what) {
        this.what = what;
    }

    /** Returns what takes the place of a node, null if it stays. */
    abstract LogicalPlan replaced(Object node);

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery || !new IndexSearch((LogicalPlan) plan).has(what)) {
            return plan;
        }
        return ((LogicalPlan) plan).transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                return replaced(node);
            }
        });
    }
}

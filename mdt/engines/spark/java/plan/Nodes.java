// All nodes of a plan, or of an expression, as a list. Catalyst's foreach calls this function with every node.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Nodes extends AbstractFunction1 {
    private final List all = new ArrayList();

    private Nodes() {}

    static List of(TreeNode tree) {
        Nodes nodes = new Nodes();
        tree.foreach(nodes);
        return nodes.all;
    }

    static List withSubqueries(LogicalPlan plan) {
        Nodes nodes = new Nodes();
        plan.foreachWithSubqueries(nodes);
        return nodes.all;
    }

    public Object apply(Object node) {
        all.add(node);
        return BoxedUnit.UNIT; // the result of a Scala function without a result
    }
}

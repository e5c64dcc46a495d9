// Collects the relations of ours in a plan: their pins, null among them where one has none yet, and the roots of their tables.
// Catalyst's method foreach takes a function of one argument, which is this, and calls it with every node.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class IndexSearch extends AbstractFunction1 {
    final Set pins = new HashSet();
    final Set roots = new HashSet();
    private final Set does = new HashSet();

    /** Searches a plan, its subqueries included. */
    IndexSearch(LogicalPlan plan) {
        plan.foreachWithSubqueries(this);
    }

    /** Returns whether something is done for one of them. */
    boolean has(String what) {
        return does.contains(what);
    }

    public Object apply(Object node) {
        MdtFileIndex index = MdtFileIndex.of(node);
        if (index != null) {
            pins.add(index.pin);
            roots.add(index.source.root);
            does.addAll(index.source.does);
        }
        return BoxedUnit.UNIT; // what a Scala function without a result returns
    }
}

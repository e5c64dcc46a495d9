// Finds the questions of one side of a join in the other: those to the same keys.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Questions extends AbstractFunction1 {
    private final List keys;
    private boolean found = false;

    /** keys: of the side that is asked. */
    Questions(List keys) {
        this.keys = keys;
    }

    boolean in(LogicalPlan plan) {
        plan.foreach(this);
        return found;
    }

    public Object apply(Object node) {
        if (node instanceof Filter) {
            List all = Scala.list(((Filter) node).splitConjunctivePredicates(((Filter) node).condition()));
            for (int i = 0; i < all.size(); i++) {
                found |= all.get(i) instanceof DynamicPruningSubquery && asks((DynamicPruningSubquery) all.get(i));
            }
        }
        return BoxedUnit.UNIT;
    }

    private boolean asks(DynamicPruningSubquery question) {
        int number = ((Integer) question.broadcastKeyIndices().apply(0)).intValue();
        Expression asked = (Expression) question.buildKeys().apply(number);
        for (int i = 0; i < keys.size(); i++) {
            if (asked.semanticEquals((Expression) keys.get(i))) {
                return true;
            }
        }
        return false;
    }
}

// Finds the questions of one side of a join to the other.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Questions extends AbstractFunction1 {
    private AttributeSet columns = AttributeSet$.MODULE$.empty(); // of every node of the side that is asked
    private boolean searching = false;
    private boolean found = false;

    private Questions() {}

    /** Returns whether there is a question in one plan to a part of another. */
    static boolean are(LogicalPlan asking, LogicalPlan asked) {
        Questions search = new Questions();
        asked.foreach(search);
        search.searching = true;
        asking.foreach(search);
        return search.found;
    }

    public Object apply(Object node) {
        if (!searching) {
            columns = columns.$plus$plus(((LogicalPlan) node).outputSet());
        } else if (node instanceof Filter) {
            List all = Scala.list(((Filter) node).splitConjunctivePredicates(((Filter) node).condition()));
            for (int i = 0; i < all.size(); i++) {
                found |= all.get(i) instanceof DynamicPruningSubquery && asks((DynamicPruningSubquery) all.get(i));
            }
        }
        return BoxedUnit.UNIT;
    }

    private boolean asks(DynamicPruningSubquery question) {
        int number = ((Integer) question.broadcastKeyIndices().apply(0)).intValue();
        return ((Expression) question.buildKeys().apply(number)).references().subsetOf(columns);
    }
}

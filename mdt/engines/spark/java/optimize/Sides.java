// What sides of a join are, as far as one may ask the other for its values.
//
// A part of a streaming query may need what Spark keeps in its state: groups, rows to be joined, keys that were seen. Of a batch alone such
// a part has not all rows, and only the query's own planner can make a physical plan of it.
package mdt.spark;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

final class Sides {
    private static final int LEAVES_MAX = 12; // a question holds a copy of what it asks, with the questions in it, and so on: Spark plans each

    private Sides() {}

    /** Returns whether a plan, with what it asks, is so large that it takes longer to plan it again than can be gained. */
    static boolean isLarge(LogicalPlan plan) {
        int leaves = 0;
        for (Iterator i = Nodes.withSubqueries(plan).iterator(); i.hasNext(); ) {
            leaves += ((LogicalPlan) i.next()).children().isEmpty() ? 1 : 0;
        }
        return leaves > LEAVES_MAX;
    }

    /**
     * Returns whether a side is likely to have fewer values than the column that the other side has them in: it is filtered, cut, an
     * aggregate of all, or was made in the session.
     */
    static boolean isSelective(LogicalPlan side) {
        for (Iterator i = Nodes.of(side).iterator(); i.hasNext(); ) {
            LogicalPlan node = (LogicalPlan) i.next();
            if (node instanceof Filter && filters((Filter) node) || node instanceof GlobalLimit || node instanceof LocalLimit
                    || node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty()
                    || node.children().isEmpty() && !(node instanceof LogicalRelation)) {
                return true;
            }
        }
        return false;
    }

    private static boolean filters(Filter filter) {
        List conditions = conditions(filter);
        for (int i = 0; i < conditions.size(); i++) {
            if (!(conditions.get(i) instanceof IsNotNull) && !(conditions.get(i) instanceof DynamicPruning)) {
                return true;
            }
        }
        return false;
    }

    private static List conditions(Filter filter) {
        return Scala.list(filter.splitConjunctivePredicates(filter.condition()));
    }

    /** Returns whether there is a question in one plan to a part of another. */
    static boolean asks(LogicalPlan asking, LogicalPlan asked) {
        AttributeSet columns = AttributeSet$.MODULE$.empty(); // of every node of the side that is asked
        for (Iterator i = Nodes.of(asked).iterator(); i.hasNext(); ) {
            columns = columns.$plus$plus(((LogicalPlan) i.next()).outputSet());
        }
        for (Iterator i = Nodes.of(asking).iterator(); i.hasNext(); ) {
            Object node = i.next();
            for (Iterator k = node instanceof Filter ? conditions((Filter) node).iterator() : null; k != null && k.hasNext(); ) {
                Object condition = k.next();
                if (condition instanceof DynamicPruningSubquery && asks((DynamicPruningSubquery) condition, columns)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static boolean asks(DynamicPruningSubquery question, AttributeSet columns) {
        int number = ((Integer) question.broadcastKeyIndices().apply(0)).intValue();
        return ((Expression) question.buildKeys().apply(number)).references().subsetOf(columns);
    }

    /** Returns whether more than filters, projections and joins with tables stands above a stream in a plan. */
    static boolean haveState(LogicalPlan plan) {
        for (Iterator i = Nodes.of(plan).iterator(); i.hasNext(); ) {
            if (keepsState((LogicalPlan) i.next())) {
                return true;
            }
        }
        return false;
    }

    /** Returns whether a node of a plan may be one that keeps a state. */
    static boolean keepsState(LogicalPlan node) {
        boolean joins = node instanceof Join && !(((Join) node).left().isStreaming() && ((Join) node).right().isStreaming());
        return node.isStreaming() && !(joins || node instanceof Filter || node instanceof Project || node.children().isEmpty());
    }
}

// Properties of the sides of a join that decide whether one may ask the other for its values.
//
// Parts of a streaming query may need state that Spark keeps: groups, rows to be joined, keys that were seen. For a
// single batch such a part does not have all rows, and only the query's own planner can make a physical plan of it.
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
    private static final int LEAVES_MAX = 12; // a question contains a copy of the side that it asks, with its questions, and Spark plans each copy

    private Sides() {}

    /**
     * Returns true if a plan, with its questions, is so large that planning it again would take longer than it saves.
     */
    static boolean isLarge(LogicalPlan plan) {
        int leaves = 0;
        for (Iterator i = Nodes.withSubqueries(plan).iterator(); i.hasNext(); ) {
            leaves += ((LogicalPlan) i.next()).children().isEmpty() ? 1 : 0;
        }
        return leaves > LEAVES_MAX;
    }

    /**
     * Returns true if a side probably has fewer values than the column of the other side: it is filtered, limited, a
     * total aggregate, or local data.
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

    /** Returns true if a plan has a question to a part of another plan. */
    static boolean asks(LogicalPlan askingSide, LogicalPlan askedSide) {
        AttributeSet columns = AttributeSet$.MODULE$.empty(); // of every node of the asked side
        for (Iterator i = Nodes.of(askedSide).iterator(); i.hasNext(); ) {
            columns = columns.$plus$plus(((LogicalPlan) i.next()).outputSet());
        }
        for (Iterator i = Nodes.of(askingSide).iterator(); i.hasNext(); ) {
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

    /** Returns true if a plan has more than filters, projections and joins with tables above a stream. */
    static boolean haveState(LogicalPlan plan) {
        for (Iterator i = Nodes.of(plan).iterator(); i.hasNext(); ) {
            if (keepsState((LogicalPlan) i.next())) {
                return true;
            }
        }
        return false;
    }

    /** Returns true if a node of a plan may keep state. */
    static boolean keepsState(LogicalPlan node) {
        boolean joins = node instanceof Join && !(((Join) node).left().isStreaming() && ((Join) node).right().isStreaming());
        return node.isStreaming() && !(joins || node instanceof Filter || node instanceof Project || node.children().isEmpty());
    }
}

// Properties of the sides of a join that decide whether one may ask the other for its values.
//
// Parts of a streaming query may need state that Spark keeps: groups, rows to be joined, keys that were seen. For a
// single batch such a part does not have all rows, and only the query's own planner can make a physical plan of it.
package mdt.spark;

import java.util.Collections;
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
        for (Object node : Nodes.withSubqueries(plan)) {
            leaves += ((LogicalPlan) node).children().isEmpty() ? 1 : 0;
        }
        return leaves > LEAVES_MAX;
    }

    /**
     * Returns true if a side probably has fewer values than the column of the other side: it is filtered, limited, a
     * total aggregate, or local data.
     */
    static boolean isSelective(LogicalPlan side) {
        for (Object item : Nodes.of(side)) {
            LogicalPlan node = (LogicalPlan) item;
            if (node instanceof Filter && filters((Filter) node) || node instanceof GlobalLimit || node instanceof LocalLimit
                    || node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty()
                    || node.children().isEmpty() && !(node instanceof LogicalRelation)) {
                return true;
            }
        }
        return false;
    }

    private static boolean filters(Filter filter) {
        for (Object condition : conditions(filter)) {
            if (!(condition instanceof IsNotNull) && !(condition instanceof DynamicPruning)) {
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
        for (Object node : Nodes.of(askedSide)) {
            columns = columns.$plus$plus(((LogicalPlan) node).outputSet());
        }
        for (Object node : Nodes.of(askingSide)) {
            List conditions = node instanceof Filter ? conditions((Filter) node) : Collections.EMPTY_LIST;
            for (Object condition : conditions) {
                if (condition instanceof DynamicPruningSubquery && asks((DynamicPruningSubquery) condition, columns)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static boolean asks(DynamicPruningSubquery question, AttributeSet columns) {
        int number = (Integer) question.broadcastKeyIndices().apply(0);
        return ((Expression) question.buildKeys().apply(number)).references().subsetOf(columns);
    }

    /** Returns true if a plan has more than filters, projections and joins with tables above a stream. */
    static boolean haveState(LogicalPlan plan) {
        for (Object node : Nodes.of(plan)) {
            if (keepsState((LogicalPlan) node)) {
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

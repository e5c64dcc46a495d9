// The rule for ORDER BY … LIMIT and for LIMIT alone. Statistics of files may prove that enough rows sort before a
// bound, so that no row after it is among the first: "order by ts desc limit 10" becomes "where ts >= 1763900000 order
// by ts desc limit 10", and files, row groups and pages are pruned as by any condition. Without an order, any files
// with enough matching rows suffice.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

public class TopPruning extends QueryRule {
    TopPruning() {
        super(MdtFileIndex.TOP);
    }

    LogicalPlan replaced(Object node) {
        if (!(node instanceof LocalLimit) || !(((LocalLimit) node).limitExpr() instanceof Literal)) {
            return null;
        }
        LocalLimit limit = (LocalLimit) node;
        int count = (Integer) ((Literal) limit.limitExpr()).value();
        LogicalPlan below = below(limit.child(), count);
        return below == null ? null : limit.copy(limit.limitExpr(), below);
    }

    /** Returns the pruned input of a limit, or null if nothing can be pruned. */
    private static LogicalPlan below(LogicalPlan plan, int count) {
        LogicalPlan node = plan;
        while (node instanceof Project) {
            node = ((Project) node).child();
        }
        if (!(node instanceof Sort)) {
            return fewer(plan, count);
        }
        Sort sort = (Sort) node;
        LogicalPlan bounded = sort.global() ? bounded(sort.child(), (SortOrder) sort.order().apply(0), count) : null;
        return bounded == null ? null : over(plan, sort, (LogicalPlan) sort.withNewChildren(Scala.seq(bounded)));
    }

    /** Returns the projections of a plan above another node in place of one. */
    private static LogicalPlan over(LogicalPlan plan, LogicalPlan node, LogicalPlan replacement) {
        if (plan == node) {
            return replacement;
        }
        Project project = (Project) plan;
        return project.copy(project.projectList(), over(project.child(), node, replacement));
    }

    /** Returns a plan whose relation has only rows up to the bound. order: in terms of the plan's columns. */
    private static LogicalPlan bounded(LogicalPlan plan, SortOrder order, int count) {
        if (plan instanceof Project) {
            Project project = (Project) plan;
            if (!Lineage.allDeterministic(project.projectList())) {
                return null;
            }
            SortOrder below = (SortOrder) Lineage.unnamed(order, project.projectList());
            LogicalPlan child = bounded(project.child(), below, count);
            return child == null ? null : project.copy(project.projectList(), child);
        }
        Filter filter = plan instanceof Filter ? (Filter) plan : null;
        LogicalPlan leaf = filter == null ? plan : filter.child();
        MdtFileIndex index = MdtFileIndex.of(leaf);
        boolean canBound = index != null && index.pin != null && index.does(MdtFileIndex.TOP) && JsonValue.can(order.child().dataType())
                && index.pin.isFirst("top " + count + " " + order.sql() + " " + leaf.output());
        Expression bound = canBound ? bound(index, filter, order, count) : null;
        return bound == null ? null : new Filter(filter == null ? bound : new And(filter.condition(), bound), leaf);
    }

    /** Returns the condition of rows up to the bound, or null if none is known. */
    private static Expression bound(MdtFileIndex index, Filter filter, SortOrder order, int count) {
        boolean descending = order.direction() == Descending$.MODULE$;
        boolean nullsFirst = order.nullOrdering() == NullsFirst$.MODULE$;
        JsonNode answer = index.source.bound(index.pin, EmptyReplacement.normalized(filter), order.child(), descending, nullsFirst, count);
        if (answer == null || answer.isNull()) {
            return null;
        }
        Expression key = order.child();
        Literal last = new Literal(JsonValue.value(answer, key.dataType()), key.dataType());
        Expression comparison = descending ? (Expression) new GreaterThanOrEqual(key, last) : new LessThanOrEqual(key, last);
        return nullsFirst ? new Or(new IsNull(key), comparison) : comparison;
    }

    /** Returns a plan of projections and a filter whose relation has only enough files. Null if it has other nodes. */
    private static LogicalPlan fewer(LogicalPlan plan, int count) {
        if (plan instanceof Project) {
            Project project = (Project) plan;
            LogicalPlan child = fewer(project.child(), count);
            return child == null ? null : project.copy(project.projectList(), child);
        }
        Filter filter = plan instanceof Filter ? (Filter) plan : null;
        LogicalPlan leaf = filter == null ? plan : filter.child();
        MdtFileIndex index = MdtFileIndex.of(leaf);
        if (index == null || index.pin == null || index.rows != MdtFileIndex.ALL || !index.does(MdtFileIndex.TOP)) {
            return null;
        }
        if (filter != null && (!filter.deterministic() || SubqueryExpression.hasSubquery(filter.condition()))) {
            return null; // tested by Spark after the scan, and not passed to it
        }
        LogicalPlan limited = MeasuredRelation.with((LogicalRelation) leaf, index.of(count, EmptyReplacement.normalized(filter)));
        return filter == null ? limited : filter.copy(filter.condition(), limited);
    }
}

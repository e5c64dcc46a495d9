// The path from a join key down to the relation that its values come from, and the question to put there.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.collection.immutable.Seq;

final class Lineage {
    private final AskedSide side;

    /** side: the side that has the values. */
    Lineage(AskedSide side) {
        this.side = side;
    }

    /**
     * Returns a plan whose relation of the key's values has a question. Null if there is no mdt relation, or if the
     * rows removed by the join affect other rows.
     */
    LogicalPlan asking(LogicalPlan plan, Expression key) {
        if (key.references().isEmpty() || !key.deterministic() || !key.references().subsetOf(plan.outputSet())) {
            return null;
        }
        if (plan instanceof Filter) {
            return belowFilter((Filter) plan, key);
        }
        if (plan instanceof Project) {
            Project project = (Project) plan;
            LogicalPlan child = allDeterministic(project.projectList())
                    ? asking(project.child(), unnamed(key, project.projectList())) : null;
            return child == null ? null : project.copy(project.projectList(), child);
        }
        if (Sides.keepsState(plan)) {
            return null; // the next batch may need other rows
        }
        if (plan instanceof Aggregate) {
            return belowAggregate((Aggregate) plan, key);
        }
        if (plan instanceof Join) {
            return belowJoin((Join) plan, key);
        }
        MdtFileIndex index = MdtFileIndex.of(plan);
        boolean ours = index != null && index.pin != null && index.does(MdtFileIndex.JOINS);
        return ours && AskedSide.paysFor(plan) && MeasuredRelation.mayPrune(plan, key) ? asked(null, plan, key) : null;
    }

    /** Returns a relation, below a filter or null, with the question. */
    private LogicalPlan asked(Filter filter, LogicalPlan relation, Expression key) {
        Expression question = Internals.dynamicPruning(key, side.plan, Scala.seq(side.keys), side.number);
        return filter == null ? new Filter(question, relation)
                : filter.copy(new And(filter.condition(), question), relation);
    }

    private LogicalPlan belowFilter(Filter filter, Expression key) {
        if (!filter.deterministic()) {
            return null;
        }
        if (MdtFileIndex.of(filter.child()) == null) {
            LogicalPlan child = asking(filter.child(), key);
            return child == null ? null : filter.copy(filter.condition(), child);
        }
        return asking(filter.child(), key) == null ? null : asked(filter, filter.child(), key);
    }

    /** All rows of a group have the same grouping values, so that only whole groups are removed. */
    private LogicalPlan belowAggregate(Aggregate aggregate, Expression key) {
        Expression below = unnamed(key, aggregate.aggregateExpressions());
        List grouping = Scala.list(aggregate.groupingExpressions());
        if (AggregateExpression.containsAggregate(below)) {
            return null;
        }
        for (Object item : Scala.list(below.collectLeaves())) {
            Expression leaf = (Expression) item;
            boolean grouped = leaf.foldable();
            for (Object expression : grouping) {
                grouped |= ((Expression) expression).semanticEquals(leaf);
            }
            if (!grouped) {
                return null;
            }
        }
        LogicalPlan child = allDeterministic(aggregate.aggregateExpressions()) ? asking(aggregate.child(), below) : null;
        return child == null ? null : (LogicalPlan) aggregate.withNewChildren(Scala.seq(child));
    }

    private LogicalPlan belowJoin(Join join, Expression key) {
        JoinType type = join.joinType();
        boolean inner = type.equals(Inner$.MODULE$);
        boolean leftStays = inner || type.equals(LeftOuter$.MODULE$) || type.equals(LeftSemi$.MODULE$)
                || type.equals(LeftAnti$.MODULE$);
        if (join.condition().isDefined() && !((Expression) join.condition().get()).deterministic()) {
            return null;
        }
        LogicalPlan left = leftStays ? asking(join.left(), key) : null;
        LogicalPlan right = inner && left == null ? asking(join.right(), key) : null;
        if (left == null && right == null) {
            return null;
        }
        return join.copy(left == null ? join.left() : left, right == null ? join.right() : right, type,
                join.condition(), join.hint());
    }

    /** Returns a key in terms of the inputs of a list of named expressions. */
    static Expression unnamed(Expression key, Seq namedExpressions) {
        final List names = Scala.list(namedExpressions);
        return (Expression) key.transform(new Replacement() {
            Object of(Object node) {
                for (int i = 0; node instanceof AttributeReference && i < names.size(); i++) {
                    NamedExpression name = (NamedExpression) names.get(i);
                    if (name instanceof Alias && name.exprId().equals(((AttributeReference) node).exprId())) {
                        return ((Alias) name).child();
                    }
                }
                return null;
            }
        });
    }

    static boolean allDeterministic(Seq expressions) {
        for (Object expression : Scala.list(expressions)) {
            if (!((Expression) expression).deterministic()) {
                return false;
            }
        }
        return true;
    }
}

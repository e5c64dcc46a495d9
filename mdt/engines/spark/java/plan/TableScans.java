// A strategy that puts a TableScan above each scan of a table with questions to the other side of a join, or with
// figures. Spark uses strategies, the user's first, to turn a logical plan into a physical one. This one calls Spark's
// own strategy for file scans, without the questions, and adds the node.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.types.BinaryType;
import scala.collection.immutable.Seq;

public class TableScans extends SparkStrategy {
    public Seq apply(LogicalPlan plan) {
        MdtFileIndex index = MdtFileIndex.of(relation(plan));
        if (index == null || !(index.hasMetrics() || index.does(MdtFileIndex.JOINS))) {
            return Scala.seq(); // left to the next strategy
        }
        List questions = new ArrayList();
        LogicalPlan withoutQuestions = without(plan, questions);
        if (questions.isEmpty() && !index.hasMetrics()) {
            return Scala.seq();
        }
        final Seq questionSeq = Scala.seq(questions);
        List plans = Scala.list(FileSourceStrategy$.MODULE$.apply(withoutQuestions));
        List scans = new ArrayList();
        for (Object scan : plans) {
            scans.add(((SparkPlan) scan).transformUp(new Replacement() {
                Object of(Object node) {
                    return TableScan.isOurs(node) ? new TableScan((SparkPlan) node, questionSeq) : null;
                }
            }));
        }
        return Scala.seq(scans);
    }

    /** Returns the relation if there are only filters and projections above it, or another node. */
    private static LogicalPlan relation(LogicalPlan plan) {
        LogicalPlan node = plan;
        while (node instanceof Filter || node instanceof Project) {
            node = (LogicalPlan) node.children().apply(0);
        }
        return node;
    }

    /** Returns a plan without questions, and adds them to a list. */
    private static LogicalPlan without(LogicalPlan plan, List questions) {
        if (plan instanceof Project) {
            return (LogicalPlan) plan.withNewChildren(Scala.seq(without(((Project) plan).child(), questions)));
        }
        if (!(plan instanceof Filter)) {
            return plan;
        }
        Filter filter = (Filter) plan;
        boolean lowest = MdtFileIndex.of(filter.child()) != null;
        LogicalPlan child = without(filter.child(), questions);
        List conditions = Scala.list(filter.splitConjunctivePredicates(filter.condition()));
        Expression remaining = null;
        for (Object item : conditions) {
            Expression condition = (Expression) item;
            if (condition instanceof DynamicPruningSubquery) { // tested again by the join
                questions.add(condition);
                continue;
            }
            if (lowest && hasValue(condition)) {
                questions.add(condition);
            }
            remaining = remaining == null ? condition : new And(remaining, condition);
        }
        return remaining == null ? child : filter.copy(remaining, child);
    }

    /** Returns true if a condition waits only for scalar subqueries, which Spark runs before the scan. */
    private static boolean hasValue(Expression condition) {
        List leaves = Scala.list(condition.collectLeaves());
        boolean anyValue = false;
        for (Object leaf : leaves) {
            if (leaf instanceof SubqueryExpression && !(leaf instanceof ScalarSubquery)) {
                return false;
            }
            boolean isValue = leaf instanceof ScalarSubquery;
            if (isValue && ((ScalarSubquery) leaf).dataType() instanceof BinaryType) {
                return false; // probably a Bloom filter of Spark
            }
            anyValue |= isValue;
        }
        return anyValue && condition.deterministic();
    }
}

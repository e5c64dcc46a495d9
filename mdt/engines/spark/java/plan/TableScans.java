// Puts a TableScan above each scan of a table that asks the other side of a join, or whose session asks for figures. Spark makes a
// physical plan of a logical one by strategies, those of users first: this one lets Spark's own for scans of files do its work,
// without the questions, and adds the node.
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
            return Scala.seq(new Object[0]); // the next strategy is asked
        }
        List questions = new ArrayList();
        LogicalPlan without = without(plan, questions);
        if (questions.isEmpty() && !index.hasMetrics()) {
            return Scala.seq(new Object[0]);
        }
        final Seq asked = Scala.seq(questions);
        List found = Scala.list(FileSourceStrategy$.MODULE$.apply(without));
        List scans = new ArrayList();
        for (int i = 0; i < found.size(); i++) {
            scans.add(((SparkPlan) found.get(i)).transformUp(new Replacement() {
                Object of(Object node) {
                    return TableScan.isOurs(node) ? new TableScan((SparkPlan) node, asked) : null;
                }
            }));
        }
        return Scala.seq(scans);
    }

    /** Returns the relation below filters and projections alone, or something else. */
    private static LogicalPlan relation(LogicalPlan plan) {
        LogicalPlan node = plan;
        while (node instanceof Filter || node instanceof Project) {
            node = (LogicalPlan) node.children().apply(0);
        }
        return node;
    }

    /** Returns a plan without questions, which are added to a list. */
    private static LogicalPlan without(LogicalPlan plan, List questions) {
        if (plan instanceof Project) {
            return (LogicalPlan) plan.withNewChildren(Scala.seq(new Object[] {without(((Project) plan).child(), questions)}));
        }
        if (!(plan instanceof Filter)) {
            return plan;
        }
        Filter filter = (Filter) plan;
        boolean lowest = MdtFileIndex.of(filter.child()) != null;
        LogicalPlan child = without(filter.child(), questions);
        List all = Scala.list(filter.splitConjunctivePredicates(filter.condition()));
        Expression left = null;
        for (int i = 0; i < all.size(); i++) {
            Expression one = (Expression) all.get(i);
            if (one instanceof DynamicPruningSubquery) { // which the join tests again
                questions.add(one);
                continue;
            }
            if (lowest && hasValue(one)) {
                questions.add(one);
            }
            left = left == null ? one : new And(left, one);
        }
        return left == null ? child : filter.copy(left, child);
    }

    /** Returns whether a condition waits for subqueries of one value, which Spark runs before the scan, and for no others. */
    private static boolean hasValue(Expression condition) {
        List leaves = Scala.list(condition.collectLeaves());
        boolean found = false;
        for (int i = 0; i < leaves.size(); i++) {
            if (leaves.get(i) instanceof SubqueryExpression && !(leaves.get(i) instanceof ScalarSubquery)) {
                return false;
            }
            boolean isValue = leaves.get(i) instanceof ScalarSubquery;
            if (isValue && ((ScalarSubquery) leaves.get(i)).dataType() instanceof BinaryType) {
                return false; // a Bloom filter of Spark's, most likely
            }
            found |= isValue;
        }
        return found && condition.deterministic();
    }
}

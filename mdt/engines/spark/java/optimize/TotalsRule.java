// The rule that answers count, min and max of a whole table, or of rows that a condition takes files of as wholes, from the metadata
// table: no file is opened and no job runs.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Option;

public class TotalsRule extends Rule {
    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery || !new IndexSearch((LogicalPlan) plan).has(MdtFileIndex.TOTALS)) {
            return plan;
        }
        return ((LogicalPlan) plan).transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                return node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty()
                        ? answered((Aggregate) node) : null;
            }
        });
    }

    /** Returns one row with what an aggregate gives, null where the files must be read. */
    private static LogicalPlan answered(Aggregate aggregate) {
        Expression[] made = (Expression[]) Scala.list(aggregate.aggregateExpressions()).toArray(new Expression[0]);
        LogicalPlan node = aggregate.child();
        while (node instanceof Project) {
            Project project = (Project) node;
            if (!Lineage.allDeterministic(project.projectList())) {
                return null;
            }
            for (int i = 0; i < made.length; i++) {
                made[i] = Lineage.unnamed(made[i], project.projectList());
            }
            node = project.child();
        }
        Filter filter = node instanceof Filter ? (Filter) node : null;
        MdtFileIndex index = MdtFileIndex.of(filter == null ? node : filter.child());
        if (index == null || index.pin == null || index.rows != MdtFileIndex.ALL || !index.does(MdtFileIndex.TOTALS)) {
            return null;
        }
        Aggregates asked = new Aggregates();
        for (int i = 0; i < made.length; i++) {
            made[i].foreach(asked);
        }
        JsonNode told = asked.possible ? index.source.totals(index.pin, EmptyReplacement.normalized(filter), asked.columns) : null;
        return told == null || told.isNull() ? null : row(made, told);
    }

    private static LogicalPlan row(Expression[] made, JsonNode told) {
        TotalsReplacement answers = new TotalsReplacement(told);
        for (int i = 0; i < made.length; i++) {
            made[i] = (Expression) made[i].transform(answers);
        }
        if (!answers.complete) {
            return null;
        }
        List one = new ArrayList();
        one.add(InternalRow.empty());
        LocalRelation nothing = new LocalRelation(Scala.seq(new Object[0]), Scala.seq(one), false, Option.empty());
        return ConvertToLocalRelation$.MODULE$.apply(new Project(Scala.seq(made), nothing));
    }
}

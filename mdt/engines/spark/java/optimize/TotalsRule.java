// The rule that answers count, min and max of a whole table, or of rows that a condition selects by whole files, from
// the table's metadata: no file is opened and no job runs.
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
import scala.Option;

public class TotalsRule extends QueryRule {
    TotalsRule() {
        super(MdtFileIndex.TOTALS);
    }

    LogicalPlan replaced(Object node) {
        return node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty() ? answered((Aggregate) node) : null;
    }

    /** Returns the row of an aggregate, or null if files must be read. */
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
        List columns = new ArrayList();
        for (int i = 0; i < made.length; i++) {
            List some = Totals.columns(made[i]);
            if (some == null) {
                return null;
            }
            columns.addAll(some);
        }
        JsonNode told = index.source.totals(index.pin, EmptyReplacement.normalized(filter), columns);
        return told == null || told.isNull() ? null : row(made, told);
    }

    private static LogicalPlan row(Expression[] made, JsonNode told) {
        for (int i = 0; i < made.length; i++) {
            made[i] = (Expression) made[i].transform(new Totals(told));
            if (Lineage.holdsAggregate(made[i])) {
                return null; // a value is missing from the answer
            }
        }
        List one = new ArrayList();
        one.add(InternalRow.empty());
        LocalRelation nothing = new LocalRelation(Scala.seq(new Object[0]), Scala.seq(one), false, Option.empty());
        return ConvertToLocalRelation$.MODULE$.apply(new Project(Scala.seq(made), nothing));
    }
}

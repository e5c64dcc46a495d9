// The rule that answers count, min and max of a whole table, or of rows that a condition selects by whole files, from
// the table's metadata: no file is opened and no job runs.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
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
        Expression[] expressions = (Expression[]) Scala.list(aggregate.aggregateExpressions()).toArray(new Expression[0]);
        LogicalPlan node = aggregate.child();
        while (node instanceof Project) {
            Project project = (Project) node;
            if (!Lineage.allDeterministic(project.projectList())) {
                return null;
            }
            for (int i = 0; i < expressions.length; i++) {
                expressions[i] = Lineage.unnamed(expressions[i], project.projectList());
            }
            node = project.child();
        }
        Filter filter = node instanceof Filter ? (Filter) node : null;
        MdtFileIndex index = MdtFileIndex.of(filter == null ? node : filter.child());
        if (index == null || index.pin == null || index.rows != MdtFileIndex.ALL || !index.does(MdtFileIndex.TOTALS)) {
            return null;
        }
        List columns = new ArrayList();
        for (Expression expression : expressions) {
            List aggregated = Totals.columns(expression);
            if (aggregated == null) {
                return null;
            }
            columns.addAll(aggregated);
        }
        JsonNode answer = index.source.totals(index.pin, EmptyReplacement.normalized(filter), columns);
        return answer == null || answer.isNull() ? null : row(expressions, answer);
    }

    private static LogicalPlan row(Expression[] expressions, JsonNode answer) {
        for (int i = 0; i < expressions.length; i++) {
            expressions[i] = (Expression) expressions[i].transform(new Totals(answer));
            if (AggregateExpression.containsAggregate(expressions[i])) {
                return null; // a value is missing from the answer
            }
        }
        LocalRelation nothing = new LocalRelation(Scala.seq(), Scala.seq(InternalRow.empty()), false, Option.empty());
        return ConvertToLocalRelation$.MODULE$.apply(new Project(Scala.seq(expressions), nothing));
    }
}

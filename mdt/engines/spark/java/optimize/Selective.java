// Whether a side of a join is likely to have fewer values than the column that the other side has them in: it is filtered, cut, an
// aggregate of all, or was made in the session.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Selective extends AbstractFunction1 {
    private boolean found = false;

    private Selective() {}

    static boolean is(LogicalPlan plan) {
        Selective search = new Selective();
        plan.foreach(search);
        return search.found;
    }

    public Object apply(Object node) {
        found |= node instanceof Filter && filters((Filter) node)
                || node instanceof GlobalLimit
                || node instanceof LocalLimit
                || node instanceof Aggregate && ((Aggregate) node).groupingExpressions().isEmpty()
                || ((LogicalPlan) node).children().isEmpty() && !(node instanceof LogicalRelation);
        return BoxedUnit.UNIT;
    }

    private static boolean filters(Filter filter) {
        List conditions = Scala.list(filter.splitConjunctivePredicates(filter.condition()));
        for (int i = 0; i < conditions.size(); i++) {
            Expression one = (Expression) conditions.get(i);
            if (!(one instanceof IsNotNull) && !(one instanceof DynamicPruning)) {
                return true;
            }
        }
        return false;
    }
}

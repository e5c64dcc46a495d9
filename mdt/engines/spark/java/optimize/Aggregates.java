// Collects the columns of the aggregates in an expression, and whether all of these may be answered by the metadata table.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Aggregates extends AbstractFunction1 {
    final List columns = new ArrayList();
    boolean possible = true;

    public Object apply(Object node) {
        if (node instanceof AggregateExpression) {
            AggregateExpression one = (AggregateExpression) node;
            Expression of = argument(one);
            boolean counts = one.aggregateFunction() instanceof Count;
            possible &= of != null && one.filter().isEmpty() && !(counts && one.isDistinct());
            if (of instanceof AttributeReference) {
                possible &= counts || Told.can(of.dataType()) && !Told.isFloating(of.dataType());
                columns.add(((AttributeReference) of).name());
            }
        }
        return BoxedUnit.UNIT;
    }

    /** Returns the column that an aggregate is of, or a value that is not null; null for any other aggregate. */
    static Expression argument(AggregateExpression one) {
        Object function = one.aggregateFunction();
        boolean known = function instanceof Count || function instanceof Min || function instanceof Max;
        List children = Scala.list(one.aggregateFunction().children());
        if (!known || children.size() != 1) {
            return null;
        }
        Expression of = (Expression) children.get(0);
        boolean counted = function instanceof Count && of instanceof Literal && ((Literal) of).value() != null;
        return counted || of instanceof AttributeReference ? of : null;
    }
}

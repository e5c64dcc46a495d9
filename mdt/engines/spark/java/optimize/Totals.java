// Aggregates of a query over a whole table, or over the rows of whole files, from the table's metadata: count, min and
// max.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataTypes;

final class Totals extends Replacement {
    private final JsonNode told;

    /** told: Python's answer, with a value for each aggregate. */
    Totals(JsonNode told) {
        this.told = told;
    }

    /**
     * Returns the names of the columns of the aggregates in an expression, or null if one of them cannot be answered.
     */
    static List columns(Expression made) {
        List columns = new ArrayList();
        for (Iterator i = Nodes.of(made).iterator(); i.hasNext(); ) {
            Object node = i.next();
            if (node instanceof AggregateExpression) {
                AggregateExpression one = (AggregateExpression) node;
                Expression of = argument(one);
                boolean counts = one.aggregateFunction() instanceof Count;
                if (of == null || one.filter().isDefined() || counts && one.isDistinct()
                        || !counts && (!Told.can(of.dataType()) || Told.isFloating(of.dataType()))) {
                    return null;
                }
                if (of instanceof AttributeReference) {
                    columns.add(((AttributeReference) of).name());
                }
            }
        }
        return columns;
    }

    /** Returns the column of an aggregate, or a literal that is not null. Null for other aggregates. */
    private static Expression argument(AggregateExpression one) {
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

    /** Returns the value of an aggregate, or null if it is not in the answer. */
    Object of(Object node) {
        if (!(node instanceof AggregateExpression)) {
            return null;
        }
        AggregateExpression one = (AggregateExpression) node;
        Expression of = argument(one);
        String name = of instanceof Literal ? null : ((AttributeReference) of).name();
        if (one.aggregateFunction() instanceof Count) {
            JsonNode nulls = name == null ? null : told.get("nulls").get(name);
            long rows = told.get("rows").asLong() - (nulls == null ? 0 : nulls.asLong());
            return name != null && nulls == null ? null : new Literal(Long.valueOf(rows), DataTypes.LongType);
        }
        JsonNode value = told.get(one.aggregateFunction() instanceof Min ? "least" : "most").get(name);
        return value == null ? null : new Literal(Told.value(value, of.dataType()), of.dataType());
    }
}

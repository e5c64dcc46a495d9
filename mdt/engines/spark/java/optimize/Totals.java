// Aggregates of a query over a whole table, or over the rows of whole files, from the table's metadata: count, min and
// max.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
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
    private final JsonNode answer;

    /** answer: Python's answer, with a value for each aggregate. */
    Totals(JsonNode answer) {
        this.answer = answer;
    }

    /**
     * Returns the names of the columns of the aggregates in an expression, or null if one of them cannot be answered.
     */
    static List columns(Expression expression) {
        List columns = new ArrayList();
        for (Object node : Nodes.of(expression)) {
            if (node instanceof AggregateExpression) {
                AggregateExpression aggregate = (AggregateExpression) node;
                Expression argument = argument(aggregate);
                boolean counts = aggregate.aggregateFunction() instanceof Count;
                if (argument == null || aggregate.filter().isDefined() || counts && aggregate.isDistinct()
                        || !counts && (!JsonValue.can(argument.dataType()) || JsonValue.isFloating(argument.dataType()))) {
                    return null;
                }
                if (argument instanceof AttributeReference) {
                    columns.add(((AttributeReference) argument).name());
                }
            }
        }
        return columns;
    }

    /** Returns the column of an aggregate, or a literal that is not null. Null for other aggregates. */
    private static Expression argument(AggregateExpression aggregate) {
        Object function = aggregate.aggregateFunction();
        boolean isSupported = function instanceof Count || function instanceof Min || function instanceof Max;
        List children = Scala.list(aggregate.aggregateFunction().children());
        if (!isSupported || children.size() != 1) {
            return null;
        }
        Expression child = (Expression) children.get(0);
        boolean counted = function instanceof Count && child instanceof Literal && ((Literal) child).value() != null;
        return counted || child instanceof AttributeReference ? child : null;
    }

    /** Returns the value of an aggregate, or null if it is not in the answer. */
    Object of(Object node) {
        if (!(node instanceof AggregateExpression)) {
            return null;
        }
        AggregateExpression aggregate = (AggregateExpression) node;
        Expression argument = argument(aggregate);
        String name = argument instanceof Literal ? null : ((AttributeReference) argument).name();
        if (aggregate.aggregateFunction() instanceof Count) {
            JsonNode nulls = name == null ? null : answer.get("nulls").get(name);
            long rows = answer.get("rows").asLong() - (nulls == null ? 0 : nulls.asLong());
            return name != null && nulls == null ? null : new Literal(rows, DataTypes.LongType);
        }
        JsonNode value = answer.get(aggregate.aggregateFunction() instanceof Min ? "least" : "most").get(name);
        return value == null ? null : new Literal(JsonValue.value(value, argument.dataType()), argument.dataType());
    }
}

// Puts values in the places of aggregates, those that Python has told.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataTypes;

final class TotalsReplacement extends Replacement {
    boolean complete = true; // whether all were told
    private final JsonNode told;

    TotalsReplacement(JsonNode told) {
        this.told = told;
    }

    Object of(Object node) {
        if (!(node instanceof AggregateExpression)) {
            return null;
        }
        AggregateExpression one = (AggregateExpression) node;
        Expression of = Aggregates.argument(one);
        if (one.aggregateFunction() instanceof Count) {
            long rows = told.get("rows").asLong();
            JsonNode nulls = of instanceof Literal ? null : told.get("nulls").get(((AttributeReference) of).name());
            complete &= of instanceof Literal || nulls != null;
            return new Literal(Long.valueOf(rows - (nulls == null ? 0 : nulls.asLong())), DataTypes.LongType);
        }
        String side = one.aggregateFunction() instanceof Min ? "least" : "most";
        JsonNode value = told.get(side).get(((AttributeReference) of).name());
        complete &= value != null;
        return value == null ? null : new Literal(Told.value(value, of.dataType()), of.dataType());
    }
}

// The answer of the other side of a join, or of a scalar subquery, as a condition for the planner in Python.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.math.Ordering;

final class Answered {
    private static final int VALUES_MAX = 10000; // more values are sent as their range, and so are longer ones
    private static final long BYTES_MAX = 1 << 20;

    private Answered() {}

    /** Returns the condition for an answered question, or null if there is no answer or no broadcast. */
    static Expression condition(Expression question) {
        if (!(question instanceof DynamicPruningExpression)) {
            return withValues(question);
        }
        Object[] answers = values(question);
        if (answers == null) {
            return null;
        }
        Expression key = ((InSubqueryExec) ((DynamicPruningExpression) question).child()).child();
        DataType type = key.dataType();
        if (type instanceof StringType && !type.equals(DataTypes.StringType)) { // these are not compared by bytes
            return null;
        }
        List values = new ArrayList(Arrays.asList(answers));
        values.removeAll(Collections.singleton(null)); // null equals nothing
        if (values.size() <= VALUES_MAX && bytes(values) <= BYTES_MAX) {
            List literals = new ArrayList(values.size());
            for (Object value : values) {
                literals.add(new Literal(value, type));
            }
            return new In(key, Scala.seq(literals));
        }
        return type instanceof AtomicType ? between(key, values, type) : null;
    }

    /** Returns the values of an answered question, or null if there is no answer or no broadcast. */
    private static Object[] values(Expression question) {
        if (!(((DynamicPruningExpression) question).child() instanceof InSubqueryExec)) {
            return null;
        }
        InSubqueryExec subquery = (InSubqueryExec) ((DynamicPruningExpression) question).child();
        return subquery.values().isEmpty() ? null : (Object[]) subquery.values().get();
    }

    private static long bytes(List values) {
        long total = 0;
        for (Object value : values) {
            total += value instanceof UTF8String ? ((UTF8String) value).numBytes() : value instanceof byte[] ? ((byte[]) value).length : 0;
        }
        return total;
    }

    /** Returns a condition with the values of its subqueries substituted. */
    private static Expression withValues(Expression condition) {
        return (Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                return node instanceof ScalarSubquery ? ((ScalarSubquery) node).toLiteral() : null;
            }
        });
    }

    private static Expression between(Expression key, List values, DataType type) {
        Ordering order = TypeUtils.getInterpretedOrdering(type);
        Literal least = new Literal(Collections.min(values, order), type);
        Literal most = new Literal(Collections.max(values, order), type);
        return new And(new GreaterThanOrEqual(key, least), new LessThanOrEqual(key, most));
    }
}

// The test of every row of a scan by the values that another side of a join has. A row without a match is lost in that join anyway;
// here it is lost before it is grouped, sorted, or sent over the network for what comes before the join.
//
// Conditions of Spark must be known when a query is planned, these values are known when it runs: so a set is put into the plan, which
// TableScan fills before tasks are made.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

final class RowTest {
    private RowTest() {}

    /** Returns where the values of a question are to be put, null for values whose equality is not that of their bits. */
    static KnownValues values(Expression question) {
        DataType type = ((DynamicPruningSubquery) question).pruningKey().dataType();
        if (type.equals(DataTypes.StringType)) {
            return new KnownTexts((Expression) question.canonicalized());
        }
        return isWhole(type) ? new KnownNumbers((Expression) question.canonicalized()) : null;
    }

    /** Returns whether values of a type are whole numbers, days or times. */
    static boolean isWhole(DataType type) {
        return type instanceof LongType || type instanceof IntegerType || type instanceof ShortType
                || type instanceof ByteType || type instanceof DateType || type instanceof TimestampType
                || type instanceof TimestampNTZType;
    }

    /** Returns the condition that the key of a question is among values; null is not. */
    static Expression condition(Expression question, KnownValues values) {
        Class as = values instanceof KnownTexts ? java.util.function.Predicate.class : java.util.function.LongPredicate.class;
        return new Invoke(new Literal(values, new ObjectType(as)), "test", DataTypes.BooleanType,
                Scala.seq(new Object[] {((DynamicPruningSubquery) question).pruningKey()}), Scala.seq(new Object[0]), true, false, true);
    }
}

// New values of struct fields: SET address.zip = 5, address.street = 's' is a single new value of the column address
// that keeps its other fields. They are null in rows with a null struct.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class FieldValues {
    private final Attribute column;
    private final List assignments = new ArrayList(); // of struct fields at any depth

    FieldValues(Attribute column) {
        this.column = column;
    }

    /** Returns the column of a struct field, or null for other expressions. */
    static Attribute columnOf(Expression field) {
        Expression each = field;
        while (each instanceof GetStructField) {
            each = ((GetStructField) each).child();
        }
        return each instanceof Attribute ? (Attribute) each : null;
    }

    void add(Expression field, Expression value) {
        assignments.add(new Assignment(field, value));
    }

    /** Returns the value of the whole column. */
    Expression whole(SQLConf conf) {
        return with(column, conf);
    }

    /** Returns a struct with new values. */
    private Expression with(Expression struct, SQLConf conf) {
        StructField[] fields = ((StructType) struct.dataType()).fields();
        List parts = new ArrayList();
        for (int place = 0; place < fields.length; place++) {
            parts.add(Literal$.MODULE$.apply(fields[place].name()));
            parts.add(field(new GetStructField(struct, place, Option.apply(fields[place].name())), conf));
        }
        return new CreateNamedStruct(Scala.seq(parts));
    }

    private Expression field(Expression oldValue, SQLConf conf) {
        List inside = new ArrayList();
        boolean isWhole = false;
        for (Object item : assignments) {
            Expression key = ((Assignment) item).key();
            if (isWithin(key, oldValue)) {
                inside.add(item);
                isWhole |= key.semanticEquals(oldValue);
            }
        }
        if (!isWhole) {
            return inside.isEmpty() ? oldValue : with(oldValue, conf);
        }
        Assignment first = (Assignment) inside.get(0);
        String name = first.key().sql();
        if (inside.size() > 1) {
            throw new Invalid(name + " is set twice");
        }
        return Assignments.cast(first.value(), name, oldValue.dataType(), conf);
    }

    /** Returns true if a struct field is another one, or a part of it. */
    private static boolean isWithin(Expression field, Expression other) {
        Expression each = field;
        while (each instanceof GetStructField && !each.semanticEquals(other)) {
            each = ((GetStructField) each).child();
        }
        return each instanceof GetStructField;
    }
}

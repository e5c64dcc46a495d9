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
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class FieldValues {
    private final Attribute column;
    private final List paths = new ArrayList(); // for each field: its position in each struct on the path from the column
    private final List keys = new ArrayList();
    private final List values = new ArrayList();

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
        List path = new ArrayList();
        for (Expression each = field; each instanceof GetStructField; each = ((GetStructField) each).child()) {
            path.add(0, ((GetStructField) each).ordinal());
        }
        paths.add(path);
        keys.add(field);
        values.add(value);
    }

    /** Returns the value of the whole column. */
    Expression whole(SQLConf conf) {
        List indexes = new ArrayList();
        for (int i = 0; i < paths.size(); i++) {
            indexes.add(i);
        }
        return with(column, indexes, 0, conf);
    }

    /** Returns a struct with new values. indexes: numbers of the values in it; depth: of the struct below the column. */
    private Expression with(Expression struct, List indexes, int depth, SQLConf conf) {
        StructField[] fields = ((StructType) struct.dataType()).fields();
        List parts = new ArrayList();
        for (int place = 0; place < fields.length; place++) {
            List inside = new ArrayList();
            for (Object index : indexes) {
                List path = (List) paths.get((Integer) index);
                if ((Integer) path.get(depth) == place) {
                    inside.add(index);
                }
            }
            parts.add(Literal$.MODULE$.apply(fields[place].name()));
            parts.add(field(new GetStructField(struct, place, Option.apply(fields[place].name())), inside, depth, conf));
        }
        return new CreateNamedStruct(Scala.seq(parts));
    }

    private Expression field(Expression oldValue, List indexes, int depth, SQLConf conf) {
        if (indexes.isEmpty()) {
            return oldValue;
        }
        int first = (Integer) indexes.get(0);
        boolean isWhole = false;
        for (Object index : indexes) {
            isWhole |= ((List) paths.get((Integer) index)).size() == depth + 1;
        }
        if (!isWhole) {
            return with(oldValue, indexes, depth + 1, conf);
        }
        String name = ((Expression) keys.get(first)).sql();
        if (indexes.size() > 1) {
            throw new Invalid(name + " is set twice");
        }
        return Assignments.cast((Expression) values.get(first), name, oldValue.dataType(), conf);
    }
}

// The SET list of an UPDATE, or of a clause of a MERGE: column name -> expression of the column's type, cast as INSERT
// casts.
package mdt.spark;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class Assignments {
    private Assignments() {}

    /**
     * Combines assignments to struct fields into values of whole columns. Refuses elements of arrays and maps, and
     * values that do not fit the type of their column.
     */
    static Map of(scala.collection.immutable.Seq assignmentSeq, Target target) {
        SQLConf conf = target.session().sessionState().conf();
        Map valuesByColumn = new LinkedHashMap();
        Map fields = new LinkedHashMap();
        for (Object item : Scala.list(assignmentSeq)) {
            Assignment each = (Assignment) item;
            Expression key = target.named(each.key());
            Attribute column = FieldValues.columnOf(key);
            if (column == null) {
                throw new Unsupported(each.key().sql()
                        + " is a part of an array or a map; set the whole column instead");
            }
            Object before = key == column
                    ? valuesByColumn.put(column.name(), cast(each.value(), column.name(), column.dataType(), conf)) : null;
            if (key != column) {
                if (!fields.containsKey(column.name())) {
                    fields.put(column.name(), new FieldValues(column));
                }
                ((FieldValues) fields.get(column.name())).add(key, each.value());
            }
            if (before != null || valuesByColumn.containsKey(column.name()) && fields.containsKey(column.name())) {
                throw new Invalid("the column " + column.name() + " is set twice");
            }
        }
        for (Object item : fields.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            valuesByColumn.put(each.getKey(), ((FieldValues) each.getValue()).whole(conf));
        }
        return valuesByColumn;
    }

    /**
     * Returns the assignments without fixed columns, whose new values must equal the old. equal: known equalities, of
     * EqualTo.
     */
    static Map settable(Map assignments, Target target, List fixed, List equal) {
        Map settable = new LinkedHashMap(assignments);
        for (Object item : fixed) {
            String name = (String) item;
            Expression value = (Expression) settable.remove(name);
            if (value != null && !isSame(target.column(name), value, equal)) {
                throw new Invalid("the column " + name + " belongs to the key or the partition and "
                        + "cannot be changed: remove it, or require in ON that it is equal");
            }
        }
        return settable;
    }

    private static boolean isSame(Attribute column, Expression value, List equal) {
        if (value.semanticEquals(column)) {
            return true;
        }
        for (Object item : equal) {
            EqualTo pair = (EqualTo) item;
            if (pair.left().semanticEquals(column) && pair.right().semanticEquals(value)) {
                return true;
            }
        }
        return false;
    }

    /** Returns a value cast to the type of a column, or of a struct field. */
    static Expression cast(Expression value, String name, DataType target, SQLConf conf) {
        DataType source = value.dataType();
        if (source.catalogString().equals(target.catalogString())) {
            return value;
        }
        String policy = conf.storeAssignmentPolicy().toString();
        boolean fits = policy.equals("LEGACY") ? Cast$.MODULE$.canCast(source, target)
                : policy.equals("STRICT") ? Cast$.MODULE$.canUpCast(source, target) : Cast$.MODULE$.canANSIStoreAssign(source, target);
        boolean isNested = target instanceof StructType || target instanceof ArrayType || target instanceof MapType;
        if (!fits || isNested && !source.catalogString().equals("void")) {
            throw new Invalid(value.sql() + " is " + source.catalogString() + ", but the column "
                    + name + " requires " + target.catalogString());
        }
        Object mode = policy.equals("LEGACY") ? EvalMode$.MODULE$.LEGACY() : EvalMode$.MODULE$.ANSI();
        return new Cast(value, target, Option.apply(conf.sessionLocalTimeZone()), (scala.Enumeration.Value) mode);
    }
}

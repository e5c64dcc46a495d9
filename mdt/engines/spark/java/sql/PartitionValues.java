// The values that SQL says of partitions, which its parser gives as texts, in columns of a table: what they are there, as Spark casts them
// for its own tables, and the texts that Python reads: 2026-1-5 is the day 2026-01-05, and a time without a zone is one of the session's.
package mdt.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import scala.Option;

final class PartitionValues {
    private static final String NULL = "__HIVE_DEFAULT_PARTITION__"; // what SHOW PARTITIONS says, and Spark takes for a null
    private final SparkSession session;
    private final Map types = new HashMap(); // column -> its type

    /** fields: the columns of the table. */
    PartitionValues(SparkSession session, StructField[] fields) {
        this.session = session;
        for (int i = 0; i < fields.length; i++) {
            types.put(fields[i].name(), fields[i].dataType());
        }
    }

    /** Returns the value of a column; text: null for a null. */
    Expression value(String column, String text) {
        Expression said = text == null || text.equals(NULL)
                ? Literal$.MODULE$.create(null, DataTypes.StringType) : Literal$.MODULE$.apply(text);
        return cast(said, (DataType) types.get(column), session.sessionState().conf().sessionLocalTimeZone());
    }

    /** Returns the texts that Python reads: those of columns by name.  What is no column stays as it is, and Python says so. */
    Map texts(Map said) {
        Map found = new LinkedHashMap();
        for (Iterator i = said.entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            String column = (String) each.getKey();
            String text = (String) each.getValue();
            found.put(column, types.containsKey(column) ? text(column, text) : text);
        }
        return found;
    }

    private String text(String column, String said) {
        Object value = value(column, said).eval(null);
        if (value == null) {
            return null;
        }
        DataType type = (DataType) types.get(column);
        boolean isTime = type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
        Object text = cast(new Literal(value, type), DataTypes.StringType, "UTC").eval(null);
        return isTime ? text + "Z" : text.toString();
    }

    private static Expression cast(Expression value, DataType type, String zone) {
        return new Cast(value, type, Option.apply(zone), EvalMode$.MODULE$.ANSI());
    }
}

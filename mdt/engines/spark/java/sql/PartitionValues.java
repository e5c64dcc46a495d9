// The values that SQL says of partitions, which its parser gives as texts, in columns of a table: what they are there, as Spark casts them
// for its own tables, and the texts that Python reads: 2026-1-5 is the day 2026-01-05, and a time without a zone is one of the session's.
package mdt.spark;

import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class PartitionValues {
    private static final String NULL = "__HIVE_DEFAULT_PARTITION__"; // what SHOW PARTITIONS says, and Spark takes for a null
    final List partitionBy; // names of columns
    final StructType columns; // of the table
    private final SparkSession session;

    PartitionValues(SparkSession session, CatalogTable table) {
        this.session = session;
        this.partitionBy = partitionBy(session, table);
        this.columns = MdtSource.relation(session, Tables.options(table), null).schema();
    }

    /** Returns the names of the columns by which a table is partitioned. */
    static List partitionBy(SparkSession session, CatalogTable table) {
        return Arrays.asList((Object[]) Python.texts(Python.ask("partitions", session, Tables.options(table), null, null)));
    }

    /** Returns what is said of columns with the names that the table gives them. */
    Map named(Map said) {
        Map found = new LinkedHashMap();
        for (Iterator i = said.entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            found.put(Tables.column(session, partitionBy, (String) each.getKey()), each.getValue());
        }
        return found;
    }

    /** Returns the value of a column; text: null for a null. */
    Expression value(String column, String text) {
        Expression said = text == null || text.equals(NULL)
                ? Literal$.MODULE$.create(null, DataTypes.StringType) : Literal$.MODULE$.apply(text);
        return cast(said, columns.apply(column).dataType(), session.sessionState().conf().sessionLocalTimeZone());
    }

    /** Returns the texts that Python reads: those of columns by name.  What is no column stays as it is, and Python says so. */
    Map texts(Map said) {
        Map found = new LinkedHashMap();
        for (Iterator i = said.entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            String column = (String) each.getKey();
            String text = (String) each.getValue();
            found.put(column, columns.getFieldIndex(column).isDefined() ? text(column, text) : text);
        }
        return found;
    }

    private String text(String column, String said) {
        Object value = value(column, said).eval(null);
        if (value == null) {
            return null;
        }
        DataType type = columns.apply(column).dataType();
        boolean isTime = type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType);
        Object text = cast(new Literal(value, type), DataTypes.StringType, "UTC").eval(null);
        return isTime ? text + "Z" : text.toString();
    }

    private static Expression cast(Expression value, DataType type, String zone) {
        return new Cast(value, type, Option.apply(zone), EvalMode$.MODULE$.ANSI());
    }
}

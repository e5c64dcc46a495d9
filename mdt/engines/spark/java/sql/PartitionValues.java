// Partition values in SQL, which the parser returns as text. Converts them to the types of the table's columns with
// Spark's casts, and to texts for Python: 2026-1-5 is the day 2026-01-05, and a time without a zone is in the session's
// time zone.
package mdt.spark;

import java.util.Arrays;
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
    private static final String NULL = "__HIVE_DEFAULT_PARTITION__"; // in SHOW PARTITIONS; Spark treats it as null
    final List partitionBy; // column names
    final StructType columns; // of the table
    private final SparkSession session;

    PartitionValues(SparkSession session, CatalogTable table) {
        this.session = session;
        this.partitionBy = partitionBy(session, table);
        this.columns = MdtSource.relation(session, Tables.options(table), null).schema();
    }

    /** Returns the names of a table's partition columns. */
    static List partitionBy(SparkSession session, CatalogTable table) {
        return Arrays.asList(Python.texts(Python.ask("partitions", session, Tables.options(table), null, null)));
    }

    /** Returns the values by the table's column names. */
    Map named(Map spec) {
        Map byColumn = new LinkedHashMap();
        for (Object item : spec.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            byColumn.put(Tables.column(session, partitionBy, (String) each.getKey()), each.getValue());
        }
        return byColumn;
    }

    /** Returns the value for a column. text: null for null. */
    Expression value(String column, String text) {
        Expression literal = text == null || text.equals(NULL)
                ? Literal$.MODULE$.create(null, DataTypes.StringType) : Literal$.MODULE$.apply(text);
        return cast(literal, columns.apply(column).dataType(), session.sessionState().conf().sessionLocalTimeZone());
    }

    /** Returns texts for Python by column name. Unknown columns are unchanged and reported by Python. */
    Map texts(Map spec) {
        Map texts = new LinkedHashMap();
        for (Object item : spec.entrySet()) {
            Map.Entry each = (Map.Entry) item;
            String column = (String) each.getKey();
            String text = (String) each.getValue();
            texts.put(column, columns.getFieldIndex(column).isDefined() ? text(column, text) : text);
        }
        return texts;
    }

    private String text(String column, String literal) {
        Object value = value(column, literal).eval(null);
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

// Conditions of a query as JSON, which mdt/engines/spark/catalyst.py reads. Catalyst holds a condition as a tree of
// Expressions; "n = 3 and city is null" is
//
//     And(EqualTo(AttributeReference n, Literal 3), IsNull(AttributeReference city))
//
// and becomes, each node with the name of its class and of its type,
//
//     {"op":"And","type":"boolean","children":[
//       {"op":"EqualTo","type":"boolean","children":[
//         {"op":"AttributeReference","type":"int","name":"n","metadata":false}, {"op":"Literal","type":"int","value":3}]},
//       {"op":"IsNull","type":"boolean","children":[{"op":"AttributeReference", …}]}]}
//
// Every expression is written, whatever it is: Python decides which it understands, and that the others prove nothing.
package mdt.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

final class CatalystJson {
    private CatalystJson() {}

    /** Returns the text of a list of expressions, a JSON array. */
    static String array(List filters) {
        StringBuilder out = new StringBuilder();
        items(out, filters);
        return out.toString();
    }

    private static void items(StringBuilder out, List expressions) {
        out.append('[');
        for (Iterator i = expressions.iterator(); i.hasNext(); ) {
            expression(out, (Expression) i.next());
            out.append(i.hasNext() ? "," : "");
        }
        out.append(']');
    }

    private static void expression(StringBuilder out, Expression e) {
        out.append("{\"op\":");
        text(out, e.getClass().getSimpleName());
        out.append(",\"type\":");
        text(out, e.resolved() ? e.dataType().simpleString() : "");
        if (e instanceof AttributeReference) {
            AttributeReference column = (AttributeReference) e;
            out.append(",\"name\":");
            text(out, column.name());
            // Hidden columns such as _metadata.file_name are no columns of the table, whatever their names.
            out.append(",\"metadata\":").append(column.metadata().json().indexOf("_metadata_col\"") >= 0);
        } else if (e instanceof Literal) {
            out.append(",\"value\":");
            value(out, ((Literal) e).value());
        } else {
            if (e instanceof InSet) {
                values(out, ((InSet) e).hset());
            } else if (e instanceof GetStructField) {
                out.append(",\"name\":");
                text(out, ((GetStructField) e).extractFieldName());
            } else if (e instanceof Like) {
                out.append(",\"escape\":");
                text(out, String.valueOf(((Like) e).escapeChar()));
            }
            out.append(",\"children\":");
            items(out, e instanceof And || e instanceof Or ? flat(e) : Scala.list(e.children()));
        }
        out.append('}');
    }

    /** Returns texts as a JSON array, "null" for null. */
    static String texts(Collection values) {
        if (values == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder("[");
        for (Iterator i = values.iterator(); i.hasNext(); ) {
            text(out, (String) i.next());
            out.append(i.hasNext() ? "," : "");
        }
        return out.append(']').toString();
    }

    /** Returns texts, or null, by name as a JSON object. */
    static String object(Map texts) {
        StringBuilder out = new StringBuilder("{");
        for (Iterator i = texts.entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            text(out, (String) each.getKey());
            out.append(':');
            if (each.getValue() == null) {
                out.append("null");
            } else {
                text(out, (String) each.getValue());
            }
            out.append(i.hasNext() ? "," : "");
        }
        return out.append('}').toString();
    }

    private static void values(StringBuilder out, scala.collection.immutable.Set set) {
        out.append(",\"values\":[");
        for (Iterator i = CollectionConverters.asJava((scala.collection.Set) set).iterator(); i.hasNext(); ) {
            value(out, i.next());
            out.append(i.hasNext() ? "," : "");
        }
        out.append(']');
    }

    /** Returns the operands of a chain of And, or of Or: a chain may be deeper than a recursion can be. */
    private static List flat(Expression top) {
        List operands = new ArrayList();
        ArrayDeque open = new ArrayDeque();
        open.push(top);
        while (!open.isEmpty()) {
            Expression e = (Expression) open.pop();
            if (e.getClass() == top.getClass()) {
                open.push(e.children().apply(1));
                open.push(e.children().apply(0));
            } else {
                operands.add(e);
            }
        }
        return operands;
    }

    /** Writes null, true, a number, text of a decimal or floating-point number, hex of bytes or of UTF-8; else an object. */
    private static void value(StringBuilder out, Object v) {
        if (v == null || v instanceof Boolean || v instanceof Integer || v instanceof Long || v instanceof Short
                || v instanceof Byte) {
            out.append(v);
        } else if (v instanceof Double || v instanceof Float) {
            text(out, v.toString());
        } else if (v instanceof Decimal) {
            text(out, ((Decimal) v).toJavaBigDecimal().toPlainString());
        } else if (v instanceof UTF8String || v instanceof byte[]) {
            byte[] bytes = v instanceof byte[] ? (byte[]) v : ((UTF8String) v).getBytes();
            text(out, HexFormat.of().formatHex(bytes));
        } else {
            out.append("{}");
        }
    }

    private static void text(StringBuilder out, String s) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\' || c < ' ' || c > '~') {
                out.append("\\u").append(Integer.toHexString(0x10000 | c).substring(1));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}

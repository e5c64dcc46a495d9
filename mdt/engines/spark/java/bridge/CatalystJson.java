// Conditions of a query as values for JSON, which mdt/engines/spark/catalyst.py reads. Catalyst holds a condition as a tree of
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
import java.util.HexFormat;
import java.util.Iterator;
import java.util.LinkedHashMap;
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
    static String array(List expressions) {
        return Json.text(list(expressions));
    }

    /** Returns a list of expressions as a value for JSON. */
    static List list(List expressions) {
        List all = new ArrayList();
        for (int i = 0; i < expressions.size(); i++) {
            all.add(map((Expression) expressions.get(i)));
        }
        return all;
    }

    private static Map map(Expression e) {
        Map node = new LinkedHashMap();
        node.put("op", e.getClass().getSimpleName());
        node.put("type", e.resolved() ? e.dataType().simpleString() : "");
        if (e instanceof AttributeReference) {
            AttributeReference column = (AttributeReference) e;
            node.put("name", column.name());
            // Hidden columns such as _metadata.file_name are no columns of the table, whatever their names.
            node.put("metadata", Boolean.valueOf(column.metadata().json().indexOf("_metadata_col\"") >= 0));
            return node;
        }
        if (e instanceof Literal) {
            node.put("value", value(((Literal) e).value()));
            return node;
        }
        if (e instanceof InSet) {
            List values = new ArrayList();
            for (Iterator i = CollectionConverters.asJava((scala.collection.Set) ((InSet) e).hset()).iterator(); i.hasNext(); ) {
                values.add(value(i.next()));
            }
            node.put("values", values);
        } else if (e instanceof GetStructField) {
            node.put("name", ((GetStructField) e).extractFieldName());
        } else if (e instanceof Like) {
            node.put("escape", String.valueOf(((Like) e).escapeChar()));
        }
        node.put("children", list(e instanceof And || e instanceof Or ? flat(e) : Scala.list(e.children())));
        return node;
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

    /** Returns null, a flag, a whole number, the text of another number, hex of bytes or of UTF-8; else an empty map. */
    private static Object value(Object v) {
        if (v == null || v instanceof Boolean || v instanceof Integer || v instanceof Long || v instanceof Short || v instanceof Byte) {
            return v;
        }
        if (v instanceof Double || v instanceof Float) {
            return v.toString();
        }
        if (v instanceof Decimal) {
            return ((Decimal) v).toJavaBigDecimal().toPlainString();
        }
        if (v instanceof UTF8String || v instanceof byte[]) {
            return HexFormat.of().formatHex(v instanceof byte[] ? (byte[]) v : ((UTF8String) v).getBytes());
        }
        return new LinkedHashMap();
    }
}

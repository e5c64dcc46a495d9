// Filter conditions as JSON for mdt/engines/spark/catalyst.py. Catalyst represents a condition as a tree of
// Expressions: "n = 3 and city is null" is
//
//     And(EqualTo(AttributeReference n, Literal 3), IsNull(AttributeReference city))
//
// and becomes, with the names of class and type in each node,
//
//     {"op":"And","type":"boolean","children":[
//       {"op":"EqualTo","type":"boolean","children":[
//         {"op":"AttributeReference","type":"int","name":"n","metadata":false}, {"op":"Literal","type":"int","value":3}]},
//       {"op":"IsNull","type":"boolean","children":[{"op":"AttributeReference", …}]}]}
//
// All expressions are written. Python decides which of them it can use, and treats the rest as unknown.
package mdt.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HexFormat;
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

    /** Returns a JSON array of expressions. */
    static String array(List expressions) {
        return Json.text(list(expressions));
    }

    /** Returns expressions as a value for JSON. */
    static List list(List expressions) {
        List nodes = new ArrayList();
        for (Object expression : expressions) {
            nodes.add(map((Expression) expression));
        }
        return nodes;
    }

    private static Map map(Expression expression) {
        Map node = new LinkedHashMap();
        node.put("op", expression.getClass().getSimpleName());
        node.put("type", expression.resolved() ? expression.dataType().simpleString() : "");
        if (expression instanceof AttributeReference) {
            AttributeReference column = (AttributeReference) expression;
            node.put("name", column.name());
            // Hidden columns such as _metadata.file_name are not columns of the table, whatever their names.
            node.put("metadata", column.metadata().json().indexOf("_metadata_col\"") >= 0);
            return node;
        }
        if (expression instanceof Literal) {
            node.put("value", value(((Literal) expression).value()));
            return node;
        }
        if (expression instanceof InSet) {
            List values = new ArrayList();
            for (Object value : CollectionConverters.asJava((scala.collection.Set) ((InSet) expression).hset())) {
                values.add(value(value));
            }
            node.put("values", values);
        } else if (expression instanceof GetStructField) {
            node.put("name", ((GetStructField) expression).extractFieldName());
        } else if (expression instanceof Like) {
            node.put("escape", String.valueOf(((Like) expression).escapeChar()));
        }
        boolean isChain = expression instanceof And || expression instanceof Or;
        node.put("children", list(isChain ? operands(expression, expression.getClass()) : Scala.list(expression.children())));
        return node;
    }

    /** Returns the operands of a chain of And, or of Or, which may be too deep for recursion; other expressions alone. */
    static List operands(Expression top, Class kind) {
        List operands = new ArrayList();
        ArrayDeque open = new ArrayDeque();
        open.push(top);
        while (!open.isEmpty()) {
            Expression expression = (Expression) open.pop();
            if (expression.getClass() == kind) {
                open.push(expression.children().apply(1));
                open.push(expression.children().apply(0));
            } else {
                operands.add(expression);
            }
        }
        return operands;
    }

    /**
     * Returns null, a boolean, an integer, other numbers as text, bytes or UTF-8 as hex, or an empty map for other
     * values.
     */
    private static Object value(Object value) {
        if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long
                || value instanceof Short || value instanceof Byte) {
            return value;
        }
        if (value instanceof Double || value instanceof Float) {
            return value.toString();
        }
        if (value instanceof Decimal) {
            return ((Decimal) value).toJavaBigDecimal().toPlainString();
        }
        if (value instanceof UTF8String || value instanceof byte[]) {
            return HexFormat.of().formatHex(value instanceof byte[] ? (byte[]) value : ((UTF8String) value).getBytes());
        }
        return new LinkedHashMap();
    }
}

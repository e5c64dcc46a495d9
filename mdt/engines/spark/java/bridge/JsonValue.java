// Values in JSON from Python, converted to Spark's representation: integers (also days and microseconds) as numbers,
// decimal and floating-point numbers as text, strings and bytes in hexadecimal.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.util.HexFormat;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

final class JsonValue {
    private JsonValue() {}

    /** Returns true if values of a type can be converted. Floating-point zeros lose their sign. */
    static boolean can(DataType type) {
        return type instanceof NumericType || type instanceof DateType || type instanceof TimestampType
                || type instanceof TimestampNTZType || type instanceof BooleanType || type instanceof BinaryType
                || type.equals(DataTypes.StringType);
    }

    static boolean isFloating(DataType type) {
        return type instanceof DoubleType || type instanceof FloatType;
    }

    /** Returns a value, or null for null. */
    static Object value(JsonNode node, DataType type) {
        return node.isNull() ? null : value(node.asText(), type);
    }

    static Object value(String text, DataType type) {
        if (type instanceof BooleanType) {
            return Boolean.valueOf(text);
        }
        if (type instanceof ByteType) {
            return Byte.valueOf(text);
        }
        if (type instanceof ShortType) {
            return Short.valueOf(text);
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return Integer.valueOf(text);
        }
        if (type instanceof DecimalType) {
            DecimalType decimal = (DecimalType) type;
            return Decimal.apply(new BigDecimal(text), decimal.precision(), decimal.scale());
        }
        if (type instanceof DoubleType) {
            return Double.valueOf(text);
        }
        if (type instanceof FloatType) {
            return Float.valueOf(text);
        }
        if (type instanceof BinaryType || type.equals(DataTypes.StringType)) {
            byte[] bytes = HexFormat.of().parseHex(text);
            return type instanceof BinaryType ? (Object) bytes : UTF8String.fromBytes(bytes);
        }
        return Long.valueOf(text);
    }
}

// A column of an older file, converted to a wider type or to a changed nested type. Values are converted on access.
package mdt.spark;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

final class ConvertedVector extends ColumnVector {
    private static final long MICROS_PER_DAY = 86400000000L;
    private static final int FLOAT_DIGITS = 9; // enough to distinguish all floats
    private final ColumnVector source;
    private final Conversion conversion;
    private final DataType stored;
    private ColumnVector[] children = new ColumnVector[0]; // created on access

    ConvertedVector(ColumnVector source, Conversion conversion) {
        super(conversion.target);
        this.source = source;
        this.conversion = conversion;
        this.stored = conversion.stored;
    }

    public void close() {} // the reader of the file closes its columns

    public void closeIfFreeable() {}

    public boolean hasNull() {
        return source.hasNull();
    }

    public int numNulls() {
        return source.numNulls();
    }

    public boolean isNullAt(int row) {
        return source.isNullAt(row);
    }

    public boolean getBoolean(int row) {
        return source.getBoolean(row);
    }

    public byte getByte(int row) {
        return source.getByte(row);
    }

    public short getShort(int row) {
        return source.getShort(row);
    }

    public int getInt(int row) {
        return source.getInt(row);
    }

    public long getLong(int row) {
        if (stored instanceof IntegerType) {
            return source.getInt(row);
        }
        return stored instanceof DateType ? source.getInt(row) * MICROS_PER_DAY : source.getLong(row);
    }

    public float getFloat(int row) {
        return source.getFloat(row);
    }

    public double getDouble(int row) {
        if (stored instanceof IntegerType) {
            return source.getInt(row);
        }
        if (stored instanceof FloatType) {
            return doubleOf(source.getFloat(row));
        }
        return source.getLong(row);
    }

    /** Returns the double with a float's shortest text, as Hudi's readers do: 0.1 for 0.1f. */
    private static double doubleOf(float value) {
        if (value == 0 || Float.isNaN(value) || Float.isInfinite(value)) {
            return value;
        }
        BigDecimal exact = new BigDecimal((double) value);
        for (int digits = 1; digits < FLOAT_DIGITS; digits++) {
            BigDecimal rounded = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
            if (rounded.floatValue() == value) {
                return rounded.doubleValue();
            }
        }
        return exact.round(new MathContext(FLOAT_DIGITS, RoundingMode.HALF_EVEN)).doubleValue();
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        Decimal decimal = source.getDecimal(row, ((DecimalType) stored).precision(), scale);
        return decimal == null ? null : Decimal.apply(decimal.toJavaBigDecimal(), precision, scale);
    }

    public ColumnarArray getArray(int row) {
        WritableColumnVector arrays = (WritableColumnVector) source;
        return new ColumnarArray(getChild(0), arrays.getArrayOffset(row), arrays.getArrayLength(row));
    }

    public ColumnarMap getMap(int row) {
        WritableColumnVector maps = (WritableColumnVector) source;
        return new ColumnarMap(getChild(0), getChild(1), maps.getArrayOffset(row), maps.getArrayLength(row));
    }

    public UTF8String getUTF8String(int row) {
        return source.getUTF8String(row);
    }

    public byte[] getBinary(int row) {
        return source.getBinary(row);
    }

    public ColumnVector getChild(int ordinal) {
        if (ordinal >= children.length) {
            children = (ColumnVector[]) Arrays.copyOf((Object[]) children, ordinal + 1);
        }
        if (children[ordinal] == null) {
            children[ordinal] = conversion.child(source, ordinal);
        }
        return children[ordinal];
    }
}

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
    private final ColumnVector of;
    private final Conversion conversion;
    private final DataType stored;
    private ColumnVector[] children = new ColumnVector[0]; // created on access

    ConvertedVector(ColumnVector of, Conversion conversion) {
        super(conversion.wanted);
        this.of = of;
        this.conversion = conversion;
        this.stored = conversion.stored;
    }

    public void close() {} // the reader of the file closes its columns

    public void closeIfFreeable() {}

    public boolean hasNull() {
        return of.hasNull();
    }

    public int numNulls() {
        return of.numNulls();
    }

    public boolean isNullAt(int row) {
        return of.isNullAt(row);
    }

    public boolean getBoolean(int row) {
        return of.getBoolean(row);
    }

    public byte getByte(int row) {
        return of.getByte(row);
    }

    public short getShort(int row) {
        return of.getShort(row);
    }

    public int getInt(int row) {
        return of.getInt(row);
    }

    public long getLong(int row) {
        if (stored instanceof IntegerType) {
            return of.getInt(row);
        }
        return stored instanceof DateType ? of.getInt(row) * MICROS_PER_DAY : of.getLong(row);
    }

    public float getFloat(int row) {
        return of.getFloat(row);
    }

    public double getDouble(int row) {
        if (stored instanceof IntegerType) {
            return of.getInt(row);
        }
        if (stored instanceof FloatType) {
            return doubleOf(of.getFloat(row));
        }
        return of.getLong(row);
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
        Decimal found = of.getDecimal(row, ((DecimalType) stored).precision(), scale);
        return found == null ? null : Decimal.apply(found.toJavaBigDecimal(), precision, scale);
    }

    public ColumnarArray getArray(int row) {
        WritableColumnVector arrays = (WritableColumnVector) of;
        return new ColumnarArray(getChild(0), arrays.getArrayOffset(row), arrays.getArrayLength(row));
    }

    public ColumnarMap getMap(int row) {
        WritableColumnVector maps = (WritableColumnVector) of;
        return new ColumnarMap(getChild(0), getChild(1), maps.getArrayOffset(row), maps.getArrayLength(row));
    }

    public UTF8String getUTF8String(int row) {
        return of.getUTF8String(row);
    }

    public byte[] getBinary(int row) {
        return of.getBinary(row);
    }

    public ColumnVector getChild(int ordinal) {
        if (ordinal >= children.length) {
            children = (ColumnVector[]) Arrays.copyOf((Object[]) children, ordinal + 1);
        }
        if (children[ordinal] == null) {
            children[ordinal] = conversion.child(of, ordinal);
        }
        return children[ordinal];
    }
}

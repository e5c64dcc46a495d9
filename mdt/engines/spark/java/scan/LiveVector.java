// A column without some of its rows: row i is row kept[i] of another column.
package mdt.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

final class LiveVector extends ColumnVector {
    private final ColumnVector source;
    private int[] positions;
    private LiveVector[] children = new LiveVector[0]; // of a struct, created on access

    LiveVector(ColumnVector source) {
        super(source.dataType());
        this.source = source;
    }

    void keep(int[] rows) {
        positions = rows;
        for (LiveVector child : children) {
            if (child != null) {
                child.keep(rows);
            }
        }
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
        return source.isNullAt(positions[row]);
    }

    public boolean getBoolean(int row) {
        return source.getBoolean(positions[row]);
    }

    public byte getByte(int row) {
        return source.getByte(positions[row]);
    }

    public short getShort(int row) {
        return source.getShort(positions[row]);
    }

    public int getInt(int row) {
        return source.getInt(positions[row]);
    }

    public long getLong(int row) {
        return source.getLong(positions[row]);
    }

    public float getFloat(int row) {
        return source.getFloat(positions[row]);
    }

    public double getDouble(int row) {
        return source.getDouble(positions[row]);
    }

    public ColumnarArray getArray(int row) {
        return source.getArray(positions[row]);
    }

    public ColumnarMap getMap(int row) {
        return source.getMap(positions[row]);
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        return source.getDecimal(positions[row], precision, scale);
    }

    public UTF8String getUTF8String(int row) {
        return source.getUTF8String(positions[row]);
    }

    public byte[] getBinary(int row) {
        return source.getBinary(positions[row]);
    }

    public ColumnVector getChild(int ordinal) {
        if (ordinal >= children.length) {
            children = (LiveVector[]) Arrays.copyOf((Object[]) children, ordinal + 1);
        }
        if (children[ordinal] == null) {
            children[ordinal] = new LiveVector(source.getChild(ordinal));
            children[ordinal].keep(positions);
        }
        return children[ordinal];
    }
}

// A column without some of its rows: row i is row kept[i] of another column.
package mdt.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

final class LiveVector extends ColumnVector {
    private final ColumnVector of;
    private int[] kept;
    private LiveVector[] children = new LiveVector[0]; // of a struct, created on access

    LiveVector(ColumnVector of) {
        super(of.dataType());
        this.of = of;
    }

    void keep(int[] rows) {
        kept = rows;
        for (int i = 0; i < children.length; i++) {
            if (children[i] != null) {
                children[i].keep(rows);
            }
        }
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
        return of.isNullAt(kept[row]);
    }

    public boolean getBoolean(int row) {
        return of.getBoolean(kept[row]);
    }

    public byte getByte(int row) {
        return of.getByte(kept[row]);
    }

    public short getShort(int row) {
        return of.getShort(kept[row]);
    }

    public int getInt(int row) {
        return of.getInt(kept[row]);
    }

    public long getLong(int row) {
        return of.getLong(kept[row]);
    }

    public float getFloat(int row) {
        return of.getFloat(kept[row]);
    }

    public double getDouble(int row) {
        return of.getDouble(kept[row]);
    }

    public ColumnarArray getArray(int row) {
        return of.getArray(kept[row]);
    }

    public ColumnarMap getMap(int row) {
        return of.getMap(kept[row]);
    }

    public Decimal getDecimal(int row, int precision, int scale) {
        return of.getDecimal(kept[row], precision, scale);
    }

    public UTF8String getUTF8String(int row) {
        return of.getUTF8String(kept[row]);
    }

    public byte[] getBinary(int row) {
        return of.getBinary(kept[row]);
    }

    public ColumnVector getChild(int ordinal) {
        if (ordinal >= children.length) {
            children = (LiveVector[]) Arrays.copyOf((Object[]) children, ordinal + 1);
        }
        if (children[ordinal] == null) {
            children[ordinal] = new LiveVector(of.getChild(ordinal));
            children[ordinal].keep(kept);
        }
        return children[ordinal];
    }
}

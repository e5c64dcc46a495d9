// The live rows of a split with the newest columns, if Spark's reader returns rows instead of batches
// (spark.sql.parquet.enableVectorizedReader is off). The reader provides the position of each row as an additional
// column.
package mdt.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

final class LiveRows extends scala.collection.AbstractIterator implements Closeable {
    private final scala.collection.Iterator rows;
    private final Selection selection;
    private final Conversion conversion; // null: the columns need no conversion
    private final int position; // of the column with a row's position
    private final UnsafeProjection projection; // to the requested columns
    private final StructType stored; // the schema that Spark's reader returns
    private InternalRow ready = null;

    LiveRows(scala.collection.Iterator rows, Selection selection, Conversion conversion, StructType required) {
        this.rows = rows;
        this.selection = selection;
        this.conversion = conversion;
        StructType read = conversion == null ? required : (StructType) conversion.stored;
        this.stored = MdtParquet.numbered(read);
        this.position = stored.fieldIndex(MdtParquet.POSITION);
        this.projection = projection(required);
    }

    private static UnsafeProjection projection(StructType required) {
        Object[] columns = new Object[required.length()];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = new BoundReference(i, required.apply(i).dataType(), true);
        }
        return UnsafeProjection$.MODULE$.create(Scala.seq(columns));
    }

    public boolean hasNext() {
        while (ready == null && rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            if (selection.keeps((int) row.getLong(position))) {
                ready = projection.apply(conversion == null ? row : newest(row));
            }
        }
        return ready != null;
    }

    public Object next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        InternalRow row = ready;
        ready = null;
        return row;
    }

    /** Returns a row of an older file with the newest columns, converted as a batch of one row. */
    private InternalRow newest(InternalRow row) {
        WritableColumnVector[] columns = OnHeapColumnVector.allocateColumns(1, stored);
        new RowToColumnConverter(stored).convert(row, columns);
        ColumnarBatch batch = new ColumnarBatch((ColumnVector[]) columns, 1);
        return new ColumnarBatch(conversion.columns(batch), 1).getRow(0);
    }

    public void close() throws IOException {
        ((Closeable) rows).close();
    }
}

// The mapping from files of an older schema version to the columns of a query: the columns to read, with their old
// names and types, and their conversions.
package mdt.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

final class Form implements Serializable {
    final StructType stored; // the columns to read
    private final int[] places; // index of each wanted column among these, or -1 if the file does not have it
    private final Conversion[] conversions; // null: unchanged

    private Form(StructType stored, int[] places, Conversion[] conversions) {
        this.stored = stored;
        this.places = places;
        this.conversions = conversions;
    }

    /** Returns null if files of the older version have the columns unchanged. */
    static Form between(TableColumn older, TableColumn newest, Map defaults, StructType required) {
        StructField[] fields = required.fields();
        List read = new ArrayList();
        int[] places = new int[fields.length];
        Conversion[] conversions = new Conversion[fields.length];
        boolean isSame = true;
        for (int i = 0; i < fields.length; i++) {
            TableColumn newestColumn = newest.named(fields[i].name());
            TableColumn olderColumn = newestColumn == null ? null : older.of(newestColumn.id);
            places[i] = read.size();
            if (newestColumn == null) { // a column of Hudi's, or Spark's column of row numbers
                read.add(fields[i]);
            } else if (olderColumn == null) {
                places[i] = -1;
                conversions[i] = Conversion.constant(fields[i].dataType(), (String) defaults.get(String.valueOf(newestColumn.id)));
            } else {
                Conversion each = Conversion.between(olderColumn, newestColumn, defaults, fields[i].dataType());
                conversions[i] = each.isSame() ? null : each;
                read.add(new StructField(olderColumn.name, each.stored, true, fields[i].metadata()));
                isSame &= olderColumn.name.equals(newestColumn.name);
            }
            isSame &= conversions[i] == null;
        }
        if (isSame) {
            return null;
        }
        StructField[] stored = (StructField[]) read.toArray(new StructField[0]);
        return new Form(new StructType(stored), places, conversions);
    }

    /** Returns the wanted columns of a batch. Spark's reader refills the batch, and thereby these columns. */
    ColumnVector[] columns(ColumnarBatch batch) {
        ColumnVector[] columns = new ColumnVector[places.length];
        for (int i = 0; i < columns.length; i++) {
            ColumnVector column = places[i] < 0 ? null : batch.column(places[i]);
            columns[i] = conversions[i] == null ? column : conversions[i].of(column);
        }
        return columns;
    }
}

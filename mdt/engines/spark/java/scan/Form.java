// How the columns of a query come out of files of one older version of the table's columns: what Spark's reader is asked for,
// by the names and types of then, and what is made of it.
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
    final StructType stored; // the columns that are read
    private final int[] places; // of each wanted column among these, -1: the file is too old to have it
    private final Conversion[] conversions; // null: as it is

    private Form(StructType stored, int[] places, Conversion[] conversions) {
        this.stored = stored;
        this.places = places;
        this.conversions = conversions;
    }

    /** Returns null if the columns stand in a file of the older version as they are. */
    static Form between(TableColumn older, TableColumn newest, Map defaults, StructType required) {
        StructField[] fields = required.fields();
        List read = new ArrayList();
        int[] places = new int[fields.length];
        Conversion[] conversions = new Conversion[fields.length];
        boolean same = true;
        for (int i = 0; i < fields.length; i++) {
            TableColumn now = newest.named(fields[i].name());
            TableColumn then = now == null ? null : older.of(now.id);
            places[i] = read.size();
            if (now == null) { // a column of Hudi's, or Spark's of row numbers
                read.add(fields[i]);
            } else if (then == null) {
                places[i] = -1;
                conversions[i] = Conversion.constant(fields[i].dataType(), (String) defaults.get(String.valueOf(now.id)));
            } else {
                Conversion each = Conversion.between(then, now, defaults, fields[i].dataType());
                conversions[i] = each.isSame() ? null : each;
                read.add(new StructField(then.name, each.stored, true, fields[i].metadata()));
                same &= then.name.equals(now.name);
            }
            same &= conversions[i] == null;
        }
        if (same) {
            return null;
        }
        StructField[] stored = (StructField[]) read.toArray(new StructField[0]);
        return new Form(new StructType(stored), places, conversions);
    }

    /** Returns the wanted columns of a batch, which Spark's reader fills again and again; so do these then. */
    ColumnVector[] columns(ColumnarBatch batch) {
        ColumnVector[] found = new ColumnVector[places.length];
        for (int i = 0; i < found.length; i++) {
            ColumnVector from = places[i] < 0 ? null : batch.column(places[i]);
            found[i] = conversions[i] == null ? from : conversions[i].of(from);
        }
        return found;
    }
}

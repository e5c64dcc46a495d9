// Conversion of the columns of an older file, of one of them, or of a nested field: what to read, with old names and
// types, and how to convert it. mdt/schema/older_files.py defines the result.
package mdt.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

final class Conversion implements Serializable {
    final DataType stored; // the type that is read
    final DataType target;
    private final InternalRow value; // not null: the same for all rows, and nothing is read
    private final int[] places; // index of each wanted child among the children that are read, or -1 for a constant
    private final Conversion[] children;
    private final boolean isSame; // true if nothing needs to be converted: same type and names, at any depth

    private Conversion(DataType stored, DataType target, InternalRow value, int[] places, Conversion[] children) {
        this.stored = stored;
        this.target = target;
        this.value = value;
        this.places = places;
        this.children = children;
        boolean anyOther = value != null || !stored.equals(target);
        for (Conversion child : children) {
            anyOther |= !child.isSame;
        }
        this.isSame = !anyOther;
    }

    /** Returns the conversion of the columns of a query, or null if files of the older version have them unchanged. */
    static Conversion ofColumns(TableColumn older, TableColumn newest, Map defaults, StructType required) {
        Conversion columns = struct(older, newest, defaults, required);
        return columns.isSame ? null : columns;
    }

    /** Returns a column that the file does not have: null, or the default given as text. */
    static Conversion constant(DataType target, String text) {
        Object[] only = {text == null ? null : target instanceof StringType ? UTF8String.fromString(text) : JsonValue.value(text, target)};
        return new Conversion(target, target, new GenericInternalRow(only), new int[0], new Conversion[0]);
    }

    /** target: the type of the newest column, or a subset of its fields. */
    static Conversion between(TableColumn older, TableColumn newer, Map defaults, DataType target) {
        if (target instanceof StructType) {
            return struct(older, newer, defaults, (StructType) target);
        }
        if (target instanceof ArrayType) {
            ArrayType array = (ArrayType) target;
            Conversion element = between(older.children[0], newer.children[0], defaults, array.elementType());
            return new Conversion(new ArrayType(element.stored, array.containsNull()), target, null, new int[] {0},
                    new Conversion[] {element});
        }
        if (target instanceof MapType) {
            MapType map = (MapType) target;
            Conversion key = between(older.children[0], newer.children[0], defaults, map.keyType());
            Conversion item = between(older.children[1], newer.children[1], defaults, map.valueType());
            return new Conversion(new MapType(key.stored, item.stored, map.valueContainsNull()), target, null,
                    new int[] {0, 1}, new Conversion[] {key, item});
        }
        return leaf(older.type, target);
    }

    private static Conversion leaf(DataType stored, DataType target) {
        return new Conversion(stored, target, null, new int[0], new Conversion[0]);
    }

    private static Conversion struct(TableColumn older, TableColumn newer, Map defaults, StructType target) {
        StructField[] fields = target.fields();
        List read = new ArrayList();
        int[] places = new int[fields.length];
        Conversion[] children = new Conversion[fields.length];
        for (int i = 0; i < fields.length; i++) {
            DataType type = fields[i].dataType();
            TableColumn field = newer.named(fields[i].name());
            TableColumn before = field == null ? null : older.of(field.id);
            places[i] = read.size();
            if (field == null) { // a column of Hudi's, or Spark's column of row numbers
                children[i] = leaf(type, type);
                read.add(fields[i]);
            } else if (before == null) {
                places[i] = -1;
                children[i] = constant(type, (String) defaults.get(String.valueOf(field.id)));
            } else {
                children[i] = between(before, field, defaults, type);
                read.add(new StructField(before.name, children[i].stored, true, fields[i].metadata()));
            }
        }
        if (read.isEmpty() && older.id != TableColumn.ROW) { // read a field to find out where the struct itself is null
            read.add(((StructType) older.type).fields()[0]);
        }
        StructType stored = new StructType((StructField[]) read.toArray(new StructField[0]));
        return new Conversion(stored, target, null, places, children);
    }

    /** Returns the wanted columns of a batch. Spark's reader refills the batch, and thereby these columns. */
    ColumnVector[] columns(ColumnarBatch batch) {
        ColumnVector[] columns = new ColumnVector[places.length];
        for (int i = 0; i < columns.length; i++) {
            columns[i] = children[i].of(places[i] < 0 ? null : batch.column(places[i]));
        }
        return columns;
    }

    /** Returns the converted column, or the constant if read is null. */
    private ColumnVector of(ColumnVector read) {
        if (value != null) {
            ConstantColumnVector vector = new ConstantColumnVector(1, target);
            if (value.isNullAt(0)) {
                vector.setNull();
            } else {
                ColumnVectorUtils.populate(vector, value, 0);
            }
            return vector;
        }
        return isSame ? read : new ConvertedVector(read, this);
    }

    /** Returns the converted child of a column: a field, the elements of arrays, keys or values of maps. */
    ColumnVector child(ColumnVector read, int ordinal) {
        return children[ordinal].of(places[ordinal] < 0 ? null : read.getChild(places[ordinal]));
    }
}

// A column of a schema version, or a nested field, with its id, which renames do not change.
package mdt.spark;

import java.util.Iterator;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

final class TableColumn {
    static final int ROW = -1; // id of the whole row, whose children are the columns
    final String name;
    final DataType type;
    final int id;
    final TableColumn[] children; // fields of a struct, the element of an array, key and value of a map

    /** ids: of it and all fields below, parents first. */
    TableColumn(String name, DataType type, Iterator ids) {
        this.name = name;
        this.type = type;
        this.id = ((Number) ids.next()).intValue();
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            this.children = new TableColumn[fields.length];
            for (int i = 0; i < fields.length; i++) {
                children[i] = new TableColumn(fields[i].name(), fields[i].dataType(), ids);
            }
        } else if (type instanceof ArrayType) {
            DataType element = ((ArrayType) type).elementType();
            this.children = new TableColumn[] {new TableColumn("element", element, ids)};
        } else if (type instanceof MapType) {
            MapType map = (MapType) type;
            TableColumn key = new TableColumn("key", map.keyType(), ids);
            this.children = new TableColumn[] {key, new TableColumn("value", map.valueType(), ids)};
        } else {
            this.children = new TableColumn[0];
        }
    }

    /** Returns the child with a name, or null. */
    TableColumn named(String fieldName) {
        for (TableColumn child : children) {
            if (child.name.equals(fieldName)) {
                return child;
            }
        }
        return null;
    }

    /** Returns the child with an id, or null. */
    TableColumn of(int fieldId) {
        for (TableColumn child : children) {
            if (child.id == fieldId) {
                return child;
            }
        }
        return null;
    }
}

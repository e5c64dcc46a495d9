// Conversions from files of older schema versions, or with other column names, to the newest version: one per older
// version, for the columns of a query. Python sends JSON once per frame (native_files.py, forms_text):
//
//     {"newest": {"schema": Spark's JSON of a schema, "ids": [ids of all fields, parents first]}, "older": [{…}, …],
//      "defaults": {"<id>": the value of a new column in older rows, as text}}
package mdt.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

final class Forms {
    private final String text; // empty: the table was never altered
    private TableColumn newest;
    private TableColumn[] older = new TableColumn[0];
    private Map defaults;

    Forms(String text) {
        this.text = text;
        if (text.length() > 0) {
            Map json = Json.map(text);
            this.newest = version((Map) json.get("newest"));
            this.defaults = (Map) json.get("defaults");
            List versions = (List) json.get("older");
            this.older = new TableColumn[versions.size()];
            for (int i = 0; i < older.length; i++) {
                older[i] = version((Map) versions.get(i));
            }
        }
    }

    private static TableColumn version(Map json) {
        StructType schema = (StructType) DataType.fromJson((String) json.get("schema"));
        List ids = (List) json.get("ids");
        ids.add(0, TableColumn.ROW);
        return new TableColumn("", schema.asNullable(), ids.iterator());
    }

    /** Returns the conversion of the columns of a query for each older version, or null if it has them unchanged. */
    Conversion[] of(StructType required) {
        Conversion[] conversions = new Conversion[older.length];
        for (int i = 0; i < conversions.length; i++) {
            conversions[i] = Conversion.ofColumns(older[i], newest, defaults, required);
        }
        return conversions;
    }

    public boolean equals(Object other) {
        return other instanceof Forms && ((Forms) other).text.equals(text);
    }

    public int hashCode() {
        return text.hashCode();
    }
}

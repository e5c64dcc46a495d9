// Mappings from files of older schema versions, or with other column names, to the newest version: one Form per older
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
        ids.add(0, Integer.valueOf(-1)); // id of the whole row, whose children are the columns
        return new TableColumn("", schema.asNullable(), ids.iterator());
    }

    /** Returns the mapping of the columns of a query for each older version, or null if it has them unchanged. */
    Form[] of(StructType required) {
        Form[] forms = new Form[older.length];
        for (int i = 0; i < forms.length; i++) {
            forms[i] = Form.between(older[i], newest, defaults, required);
        }
        return forms;
    }

    public boolean equals(Object other) {
        return other instanceof Forms && ((Forms) other).text.equals(text);
    }

    public int hashCode() {
        return text.hashCode();
    }
}

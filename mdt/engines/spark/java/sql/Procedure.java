// CALL mdt.compact(table => 't'): an operation of Python on a table, by its name; and SHOW CREATE TABLE.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.StructType;

final class Procedure extends SqlAction {
    private static final List RESTORING = Arrays.asList(new Object[] {"restore", "rollback"});
    private final org.apache.spark.sql.classic.SparkSession session;
    private final String name;
    private final scala.collection.immutable.Map options; // of the table
    private final CatalogTable called; // null for a path
    private final List names; // of the other arguments, "" for one that was given by its place
    private final List values; // as text, or null

    Procedure(org.apache.spark.sql.classic.SparkSession session, String name, List names, List values) {
        int at = Math.max(names.indexOf("table"), names.indexOf("") == 0 ? 0 : -1);
        if (at < 0 || values.get(at) == null) {
            throw new Invalid("which table? CALL mdt." + name + "(table => 'name or path')");
        }
        String table = (String) values.get(at);
        CatalogTable found = Tables.named(session, table);
        this.session = session;
        this.name = name;
        this.options = Tables.options(session, table);
        this.called = found;
        this.names = new ArrayList(names);
        this.values = new ArrayList(values);
        this.names.remove(at);
        this.values.remove(at);
    }

    public String kind() {
        return "CALL " + name;
    }

    StructType answer() {
        return Python.answer(session, name);
    }

    Object[][] run(SparkSession asked) {
        Object[][] rows = rows(Python.call(session, options, name, names, values));
        if (called != null && RESTORING.contains(name)) { // the columns may be those of an earlier state
            AlterTable.entered(session, called, Python.read(session, options, null).schema());
        } else if (called != null) {
            session.catalog().refreshTable(called.identifier().quotedString()); // rows may be others now
        }
        Caches.renew(session, options);
        return rows;
    }

    private static Object[][] rows(Dataset answer) {
        List found = answer.collectAsList();
        Object[][] rows = new Object[found.size()][];
        for (int i = 0; i < rows.length; i++) {
            Row row = (Row) found.get(i);
            rows[i] = new Object[row.length()];
            for (int k = 0; k < row.length(); k++) {
                rows[i][k] = row.get(k);
            }
        }
        return rows;
    }
}

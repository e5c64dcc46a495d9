// A statement about a whole mdt table, or a procedure, as a call of Python (mdt/source/definitions.py and
// procedures.py). It passes the name and JSON arguments. The answer is rows, or changes to the table's catalog entry.
//
//     CALL mdt.compact('t')        compact                 the arguments, each a name ("" if positional) and a text
//     ALTER TABLE t ADD …          AddColumns              the fields of Spark's plan (Fields.java), and the table's columns
//     TRUNCATE TABLE t             TruncateTableCommand    the same
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.collection.immutable.Map;

final class TableCall extends SqlCommand {
    static final String REFRESH = "RefreshTableCommand";
    private static final List RESTORING = Arrays.asList("restore", "rollback");
    private final CatalogTable table; // null for a table that is named by path
    private final Map options;
    private final String name;
    private final String request;

    private TableCall(SparkSession session, CatalogTable table, Map options, String name, String request) {
        super(name, Python.plan(Python.ask("answer", session, null, name, request)).schema()); // Python refuses unknown statements
        this.table = table;
        this.options = options;
        this.name = name;
        this.request = request;
    }

    /** Returns the call of a procedure. names: of its arguments, "" for positional ones; values: texts or null. */
    static TableCall of(SparkSession session, String name, List names, List values) {
        int tablePlace = Math.max(names.indexOf("table"), names.indexOf("") == 0 ? 0 : -1);
        if (tablePlace < 0 || values.get(tablePlace) == null) {
            throw new Invalid("the table is missing: CALL mdt." + name + "(table => 'name or path')");
        }
        String table = (String) values.get(tablePlace);
        List arguments = new ArrayList();
        for (int i = 0; i < names.size(); i++) {
            if (i != tablePlace) {
                arguments.add(Arrays.asList(names.get(i), values.get(i)));
            }
        }
        return new TableCall(session, Tables.named(session, table), Tables.options(session, table), name, Json.text(arguments));
    }

    /**
     * Returns the call for a statement on a table. partitions: converts partition values to texts, or null if maps are
     * options.
     */
    static TableCall of(SparkSession session, CatalogTable table, Product statement, PartitionValues partitions) {
        StructType columns = MdtSource.commented(Python.read(session, Tables.options(table), null).schema(), table.schema());
        List types = new ArrayList();
        for (StructField column : columns.fields()) {
            types.add(column.dataType().sql());
        }
        java.util.Map arguments = new HashMap();
        arguments.put("table", table.identifier().quotedString());
        arguments.put("schema", columns.json());
        arguments.put("types", types);
        arguments.put("fields", new Fields(partitions).of(statement));
        return new TableCall(session, table, Tables.options(table), statement.getClass().getSimpleName(), Json.text(arguments));
    }

    List carriedOut(SparkSession session) {
        if (name.equals(REFRESH)) {
            session.catalog().refreshTable(table.identifier().quotedString()); // with its cached rows
        }
        Object answer = Python.ask("call", session, options, name, request);
        if (answer instanceof String) {
            enter(session, Arrays.asList(Python.texts(answer)));
            return Collections.EMPTY_LIST;
        }
        if (table != null && RESTORING.contains(name)) { // the columns may be those of an earlier state
            enter(session, Arrays.asList(Python.read(session, options, null).schema().json()));
        }
        Caches.renew(session, options);
        return ((Dataset) answer).collectAsList();
    }

    /**
     * Updates the catalog entry from an answer. answer: the columns as JSON, "" if unchanged, and the names of options to
     * remove.
     */
    private void enter(SparkSession session, List answer) {
        if (((String) answer.get(0)).isEmpty()) {
            CatalogTable fewer = Tables.with(table, without(table.storage().properties(), answer));
            Object left = Scala.copied(fewer, "properties", without(table.properties(), answer));
            if (!left.equals(table)) {
                session.sessionState().catalog().alterTable((CatalogTable) left);
            }
        } else {
            StructType columns = MdtSource.commented((StructType) DataType.fromJson((String) answer.get(0)), table.schema());
            if (!columns.equals(table.schema())) { // REFRESH TABLE needs no right to alter if nothing changes
                session.sharedState().externalCatalog().alterTableDataSchema(table.database(), table.identifier().table(), columns);
            }
        }
        session.sessionState().catalog().refreshTable(table.identifier());
    }

    private static Map without(Map properties, List names) {
        Map left = properties;
        for (Object item : Scala.map(properties).keySet()) {
            String name = (String) item;
            left = names.contains(name.toLowerCase(Locale.ROOT)) ? Scala.without(left, name) : left;
        }
        return left;
    }
}

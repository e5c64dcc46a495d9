// Changes of the columns of a table of ours by ALTER TABLE, for t.alter; the catalog then knows its new columns, with their comments,
// which it alone keeps.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.FieldPosition;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

final class AlterTable extends SqlAction {
    private final org.apache.spark.sql.classic.SparkSession session;
    private final CatalogTable table;
    private final List changes = new ArrayList(); // of each: what changes, the path of a column as JSON, and what it becomes
    private final Map comments = new HashMap(); // column -> its comment

    AlterTable(org.apache.spark.sql.classic.SparkSession session, CatalogTable table) {
        this.session = session;
        this.table = table;
        StructField[] fields = table.schema().fields();
        for (int i = 0; i < fields.length; i++) {
            if (fields[i].getComment().isDefined()) {
                comments.put(fields[i].name(), fields[i].getComment().get());
            }
        }
    }

    void rename(List path, String name) {
        and("rename", path, name);
        if (path.size() == 1 && comments.containsKey(column(path))) {
            comments.put(name, comments.get(column(path)));
        }
    }

    void drop(List path, boolean mayLack) {
        and(mayLack ? "drop_if_exists" : "drop", path, null);
    }

    void add(List path, DataType type, boolean nullable, Option comment, Option position) {
        and("add", path, new StructType().add("of", type, nullable).json());
        comment(path, comment);
        place(path, position);
    }

    void widen(List path, DataType type) {
        int at = path.size() > 1 ? -1 : names().indexOf(column(path));
        if (at >= 0 && table.schema().fields()[at].dataType().equals(type)) {
            return; // CHANGE COLUMN names the type, whatever it changes
        }
        and("widen", path, new StructType().add("of", type).json());
    }

    void nullable(List path) {
        and("nullable", path, null);
    }

    void comment(List path, Option comment) {
        if (comment.isDefined() && path.size() > 1) {
            throw Python.refusal(session, "CommentOnField");
        }
        if (comment.isDefined()) {
            and("comment", path, null);
            comments.put(column(path), comment.get());
        }
    }

    /** position: FIRST or AFTER a column; empty: where the column is. */
    void place(List path, Option position) {
        if (position.isDefined()) {
            TableChange.ColumnPosition place = ((FieldPosition) position.get()).position();
            String after = place instanceof TableChange.After ? ((TableChange.After) place).column() : null;
            and("place", path, after == null ? null : Tables.column(session, names(), after));
        }
    }

    private void and(String what, List path, String more) {
        List named = new ArrayList(path);
        named.set(0, column(path));
        changes.add(what);
        changes.add(CatalystJson.texts(named));
        changes.add(more);
    }

    private String column(List path) {
        return Tables.column(session, names(), (String) path.get(0));
    }

    private List names() {
        return Arrays.asList((Object[]) table.schema().fieldNames());
    }

    public String kind() {
        return "ALTER TABLE";
    }

    StructType answer() {
        return new StructType();
    }

    Object[][] run(SparkSession asked) {
        StructType now = Python.alter(session, Tables.options(table), changes).schema();
        StructField[] fields = (StructField[]) now.fields().clone();
        for (int i = 0; i < fields.length; i++) {
            if (comments.containsKey(fields[i].name())) {
                fields[i] = fields[i].withComment((String) comments.get(fields[i].name()));
            }
        }
        entered(session, table, new StructType(fields));
        return new Object[0][];
    }

    /** Lets the catalog know the columns that a table has now; those without a comment keep the one that it has. */
    static void entered(org.apache.spark.sql.classic.SparkSession session, CatalogTable table, StructType now) {
        StructField[] fields = (StructField[]) now.fields().clone();
        List known = Arrays.asList((Object[]) table.schema().fieldNames());
        for (int i = 0; i < fields.length; i++) {
            int at = known.indexOf(fields[i].name());
            if (at >= 0 && fields[i].getComment().isEmpty() && table.schema().fields()[at].getComment().isDefined()) {
                fields[i] = fields[i].withComment((String) table.schema().fields()[at].getComment().get());
            }
        }
        TableIdentifier name = table.identifier();
        session.sharedState().externalCatalog().alterTableDataSchema(table.database(), name.table(), new StructType(fields));
        session.sessionState().catalog().refreshTable(name);
    }
}

// What an ALTER TABLE says of the columns of a table of ours, for t.alter; the catalog then knows its new columns, as after ADD COLUMNS.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

final class AlterTable extends SqlAction {
    private final org.apache.spark.sql.classic.SparkSession session;
    private final CatalogTable table;
    private final List said = new ArrayList(); // of each change: what, the path as JSON, and more

    AlterTable(org.apache.spark.sql.classic.SparkSession session, CatalogTable table) {
        this.session = session;
        this.table = table;
    }

    AlterTable rename(List path, String name) {
        return and("rename", path, name);
    }

    AlterTable drop(List path, boolean mayLack) {
        return and(mayLack ? "drop_if_exists" : "drop", path, null);
    }

    AlterTable widen(List path, DataType type) {
        return and("widen", path, new StructType().add("of", type).json());
    }

    AlterTable nullable(List path) {
        return and("nullable", path, null);
    }

    private AlterTable and(String what, List path, String more) {
        List named = new ArrayList(path);
        named.set(0, Tables.column(session, Arrays.asList((Object[]) table.schema().fieldNames()), (String) path.get(0)));
        said.add(what);
        said.add(CatalystJson.texts(named));
        said.add(more);
        return this;
    }

    public String kind() {
        return "ALTER TABLE";
    }

    StructType answer() {
        return new StructType();
    }

    Object[][] run(SparkSession asked) {
        StructType now = Python.alter(session, Tables.options(table), said).schema();
        TableIdentifier name = table.identifier();
        session.sharedState().externalCatalog().alterTableDataSchema(
                table.database(), name.table(), Tables.said(now, new StructType[] {table.schema()}));
        session.sessionState().catalog().refreshTable(name);
        return new Object[0][];
    }
}

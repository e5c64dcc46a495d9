// ALTER TABLE t ADD COLUMNS (…): the table gets them, and then the catalog, which would know the old columns until REFRESH TABLE.
package mdt.spark;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

final class AddColumns extends SqlAction {
    private final CatalogTable table;
    private final StructType added;

    AddColumns(CatalogTable table, scala.collection.immutable.Seq added) {
        this.table = table;
        StructField[] fields = new StructField[added.length()];
        for (int i = 0; i < fields.length; i++) {
            fields[i] = (StructField) added.apply(i);
        }
        this.added = new StructType(fields);
    }

    public String kind() {
        return "ALTER TABLE";
    }

    StructType answer() {
        return new StructType();
    }

    Object[][] run(SparkSession session) {
        StructField[] now = Python.alter(session, Tables.options(table), added.json()).schema().fields();
        for (int i = 0; i < now.length; i++) {
            now[i] = said(now[i]);
        }
        SessionCatalog catalog = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
        catalog.alterTableDataSchema(table.identifier(), new StructType(now));
        catalog.refreshTable(table.identifier());
        return new Object[0][];
    }

    /** Returns a column of the table as the catalog, or the statement, says it: with its comment. */
    private StructField said(StructField column) {
        StructField[][] known = {table.schema().fields(), added.fields()};
        for (int k = 0; k < known.length; k++) {
            for (int i = 0; i < known[k].length; i++) {
                if (known[k][i].name().equals(column.name()) && known[k][i].dataType().equals(column.dataType())) {
                    return known[k][i];
                }
            }
        }
        return column;
    }
}

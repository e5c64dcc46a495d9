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
        StructType now = Python.alter(session, Tables.options(table), added.json()).schema();
        SessionCatalog catalog = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
        catalog.alterTableDataSchema(table.identifier(), Tables.said(now, new StructType[] {table.schema(), added}));
        catalog.refreshTable(table.identifier());
        return new Object[0][];
    }
}

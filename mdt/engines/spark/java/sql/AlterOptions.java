// ALTER TABLE … SET and UNSET TBLPROPERTIES: t.alter changes options of the table. What the catalog has of them from CREATE TABLE would go before,
// so it forgets them.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

final class AlterOptions extends SqlAction {
    private final CatalogTable table;
    private final List names = new ArrayList();
    private final List values = new ArrayList(); // null: the default

    /** options: name -> value. */
    AlterOptions(CatalogTable table, scala.collection.immutable.Map options) {
        this.table = table;
        for (Iterator i = CollectionConverters.asJava(options).entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            names.add(each.getKey());
            values.add(each.getValue());
        }
    }

    AlterOptions(CatalogTable table, scala.collection.immutable.Seq unset) {
        this.table = table;
        for (int i = 0; i < unset.length(); i++) {
            names.add(unset.apply(i));
            values.add(null);
        }
    }

    public String kind() {
        return "ALTER TABLE";
    }

    StructType answer() {
        return new StructType();
    }

    Object[][] run(SparkSession session) {
        List forgotten = Arrays.asList((Object[]) Python.alterOptions(session, Tables.options(table), names, values));
        Object storage = Scala.copied(table.storage(), "properties", without(table.storage().properties(), forgotten));
        Object kept = Scala.copied(Scala.copied(table, "storage", storage), "properties", without(table.properties(), forgotten));
        SessionCatalog catalog = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().catalog();
        if (!kept.equals(table)) {
            catalog.alterTable((CatalogTable) kept);
        }
        catalog.refreshTable(table.identifier());
        return new Object[0][];
    }

    private static scala.collection.immutable.Map without(scala.collection.immutable.Map properties, List forgotten) {
        Object kept = properties;
        for (Iterator i = CollectionConverters.asJava(properties).keySet().iterator(); i.hasNext(); ) {
            String name = (String) i.next();
            if (forgotten.contains(name.toLowerCase(Locale.ROOT))) {
                kept = ((scala.collection.immutable.Map) kept).removed(name);
            }
        }
        return (scala.collection.immutable.Map) kept;
    }
}

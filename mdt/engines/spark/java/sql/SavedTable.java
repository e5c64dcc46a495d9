// df.write.saveAsTable(…) of an existing table. Spark ignores the options of df.write and appends with those of the
// catalog, or drops the table first if it overwrites. Options that change how rows are written are therefore refused,
// because they would have no effect. Spark also compares partitionBy with the catalog, which sees an unpartitioned
// table (CommandRule.java), so an equal partitionBy is removed.
package mdt.spark;

import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.CreateTable;
import scala.Product;

final class SavedTable {
    private static final List OF_OVERWRITES = Arrays.asList(
        Inserts.OVERWRITE_PARTITIONS, Inserts.OVERWRITE_MODE, "partitionoverwritemode");
    private static final List OF_UPSERTS = Arrays.asList(
        "operation", "hoodie.datasource.write.operation", "evolve", "mergeschema", "partial");
    private static final List USUAL = Arrays.asList("upsert", "false", "static");
    private static final List KEYS = Arrays.asList(
        "key", "hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields", "primarykey");

    private SavedTable() {}

    /** Returns the replacement, or null to keep the command. Refuses options that Spark would ignore. */
    static Product of(SparkSession session, CreateTable saved) {
        CatalogTable existing = saved.query().isEmpty() || saved.mode() == SaveMode.Ignore || saved.mode() == SaveMode.ErrorIfExists
                ? null : Tables.named(session, saved.tableDesc().identifier());
        if (existing == null) {
            return null;
        }
        check(saved, existing);
        if (saved.mode() != SaveMode.Append || saved.tableDesc().partitionColumnNames().isEmpty()) {
            return null;
        }
        List partitionBy = PartitionValues.partitionBy(session, existing);
        List partitionColumns = new ArrayList();
        for (Object column : Scala.list(saved.tableDesc().partitionColumnNames())) {
            partitionColumns.add(Tables.column(session, partitionBy, (String) column));
        }
        if (!partitionColumns.equals(partitionBy)) {
            return null; // refused by Spark
        }
        return Scala.copied(saved, "tableDesc", Scala.copied(saved.tableDesc(), "partitionColumnNames", Scala.seq()));
    }

    private static void check(CreateTable saved, CatalogTable existing) {
        Map existingOptions = Scala.map(existing.storage().properties());
        Map options = Scala.map(saved.tableDesc().storage().properties());
        boolean isAppend = saved.mode() == SaveMode.Append;
        boolean hasKey = isAppend;
        for (Object item : options.keySet()) {
            String name = (String) item;
            String word = name.toLowerCase(Locale.ROOT);
            boolean isUsual = USUAL.contains(((String) options.get(name)).trim().toLowerCase(Locale.ROOT));
            hasKey |= KEYS.contains(word);
            boolean saysHow = OF_OVERWRITES.contains(word) || isAppend && OF_UPSERTS.contains(word);
            boolean isOther = !options.get(name).equals(existingOptions.get(name)) && (isAppend && existingOptions.containsKey(name) || !isUsual);
            if (saysHow && isOther) {
                throw new Unsupported("saveAsTable with the option " + name + " = " + options.get(name)
                        + ", which Spark ignores for an existing table; use df.write.format(\"mdt\").save(path)");
            }
        }
        if (!hasKey) {
            throw new Unsupported("saveAsTable in mode overwrite without the option key: Spark would drop the table, "
                    + "and could not create it again; use insertInto(\"" + existing.identifier().table() + "\", overwrite=True) to replace its rows");
        }
        if (!isAppend && reads((LogicalPlan) saved.query().get(), (String) Tables.options(existing).apply("path"))) {
            throw new Unsupported("saveAsTable in mode overwrite of rows of the same table: Spark would drop the table before it reads them; "
                    + "use insertInto(\"" + existing.identifier().table() + "\", overwrite=True) to replace its rows");
        }
    }

    /** Returns true if a query reads a table at a location, by whatever scheme of the store. */
    private static boolean reads(LogicalPlan query, String location) {
        URI place = new Path(location).toUri();
        for (Object item : new IndexSearch(query).roots) {
            URI root = new Path((String) item).toUri();
            if (root.getPath().equals(place.getPath()) && Objects.equals(root.getAuthority(), place.getAuthority())) {
                return true;
            }
        }
        return false;
    }
}

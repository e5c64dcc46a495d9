// Replaces Spark commands on mdt tables that Spark would execute on the catalog or the directory alone:
//
// 1. The columns of PARTITIONED BY, and of partitionBy before saveAsTable, become an option, as for
// df.write.partitionBy. The catalog sees an unpartitioned table, so that it cannot add or drop partitions, which would
// delete directories. NOT NULL columns, and TBLPROPERTIES with Hudi's names, also become options.
// 2. CREATE TABLE with columns, if there is no table yet, becomes CREATE TABLE AS SELECT without rows, so that Spark
// calls the source.
// 3. CREATE TABLE LIKE, which would create a catalog entry without a table, is refused.
// 4. Statements on whole partitions, and other ALTER TABLE statements that would change only the catalog, become a call
// of Python (TableCall.java). TRUNCATE TABLE would delete the directory, including the metadata. REFRESH TABLE would
// leave columns in the catalog that t.alter has changed.
// 5. DELETE, UPDATE, MERGE and INSERT, which Spark would refuse or not count, become a Statement or InsertRows.
//
// The rule runs at the end of the analysis: names are resolved, and Spark has not yet refused the command.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;

public class CommandRule extends Rule {
    static final String PARTITIONS = "__partition_columns"; // Spark's option for partitionBy, as JSON
    private static final String REQUIRED = "__required_columns";
    private static final String CLUSTERING = "clusteringColumns"; // the catalog's property for CLUSTER BY
    private static final List HUDIS = Arrays.asList("primarykey", "type", "precombinefield", "orderingfields");
    private static final List CALLS = Arrays.asList("TruncateTableCommand", "ShowPartitionsCommand", TableCall.REFRESH);
    private static final String RENAME = "AlterTableRenameCommand"; // executed by Spark
    private final SparkSession session;

    CommandRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        TreeNode replacement = isOfRows(plan) ? changed(plan) : commanded(plan);
        return replacement == null ? plan : replacement;
    }

    private static boolean isOfRows(TreeNode plan) {
        return plan instanceof DeleteFromTable || plan instanceof UpdateTable || plan instanceof MergeIntoTable;
    }

    /** Returns the statement that changes rows of an mdt table, or null for other tables. */
    private static TreeNode changed(TreeNode plan) {
        if (!((LogicalPlan) plan).resolved()) {
            return null; // Spark reports unresolved names
        }
        Target target = Target.of((LogicalPlan) ((LogicalPlan) plan).children().apply(0));
        if (target == null) {
            return null;
        }
        if (plan instanceof MergeIntoTable) {
            return new MergeStatement(target, (MergeIntoTable) plan);
        }
        return plan instanceof UpdateTable ? new RowStatement(target, (UpdateTable) plan) : new RowStatement(target, (DeleteFromTable) plan);
    }

    /** Returns the replacement of a command, or null to keep it. */
    private LogicalPlan commanded(TreeNode plan) {
        if (plan instanceof Union) {
            return insertedEach((Union) plan);
        }
        if (isInsert(plan)) {
            return new InsertRows((InsertIntoDataSourceCommand) plan, InsertRows.COUNTS);
        }
        if (plan instanceof CreateDataSourceTableCommand) {
            CreateDataSourceTableCommand command = (CreateDataSourceTableCommand) plan;
            CatalogTable completed = told(command.table());
            return completed != null && isNew(completed) ? made(with(completed, REQUIRED, required(completed.schema())), command.ignoreIfExists())
                    : replaced(command, command.table(), completed);
        }
        if (plan instanceof CreateDataSourceTableAsSelectCommand) {
            CreateDataSourceTableAsSelectCommand command = (CreateDataSourceTableAsSelectCommand) plan;
            return replaced(command, command.table(), told(command.table()));
        }
        if (plan instanceof CreateTableLikeCommand) {
            CreateTableLikeCommand command = (CreateTableLikeCommand) plan;
            if (command.provider().isDefined() ? Tables.isOurs(command.provider()) : Tables.named(session, command.sourceTable()) != null) {
                throw new Unsupported("CREATE TABLE LIKE is not supported for mdt tables; use "
                        + "CREATE TABLE … USING mdt OPTIONS (key …) AS SELECT … WHERE false");
            }
        }
        String kind = plan.getClass().getSimpleName();
        boolean isCall = CALLS.contains(kind) || kind.startsWith("AlterTable") && kind.endsWith("Command") && !RENAME.equals(kind);
        CatalogTable table = isCall ? Tables.named(session, (TableIdentifier) ((Product) plan).productElement(0)) : null;
        return table == null ? null : TableCall.of(session, table, (Product) plan, new PartitionValues(session, table));
    }

    private static boolean isInsert(Object plan) {
        return plan instanceof InsertIntoDataSourceCommand
                && ((InsertIntoDataSourceCommand) plan).logicalRelation().relation() instanceof MdtRelation;
    }

    /** Returns an INSERT into several tables with ours replaced, without counts as the others. */
    private static LogicalPlan insertedEach(Union inserts) {
        List children = new ArrayList(Scala.list(inserts.children()));
        for (int i = 0; i < children.size(); i++) {
            if (isInsert(children.get(i))) {
                children.set(i, new InsertRows((InsertIntoDataSourceCommand) children.get(i), new String[0]));
            }
        }
        return (LogicalPlan) inserts.withNewChildren(Scala.seq(children));
    }

    /** Returns a command with another table, or null if the table is null or unchanged. */
    private static LogicalPlan replaced(Object command, CatalogTable table, CatalogTable replacement) {
        return replacement == null || replacement == table ? null : (LogicalPlan) Scala.copied((Product) command, "table", replacement);
    }

    /** Returns true if columns are declared and no table exists that has columns. */
    private boolean isNew(CatalogTable table) {
        if (table.schema().isEmpty() || table.storage().locationUri().isEmpty()) {
            return !table.schema().isEmpty() && table.tableType().equals(CatalogTableType.MANAGED());
        }
        Path hoodie = new Path(new Path((URI) table.storage().locationUri().get()), ".hoodie");
        try {
            return !hoodie.getFileSystem(session.sessionState().newHadoopConf()).exists(hoodie);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Returns the command that creates a table. */
    private LogicalPlan made(CatalogTable table, boolean ignoreIfExists) {
        LogicalPlan none = session.createDataFrame(new ArrayList(), table.schema()).queryExecution().analyzed();
        SaveMode mode = ignoreIfExists ? SaveMode.Ignore : SaveMode.ErrorIfExists;
        return new CreateDataSourceTableAsSelectCommand((CatalogTable) Scala.copied(table, "schema", new StructType()), mode,
                none, Scala.seq(table.schema().fieldNames())); // the columns come from the rows
    }

    /**
     * Returns a table whose options name its partition columns and include properties with Hudi's names, or null if it
     * is not ours. Refuses buckets, and options of the machine.
     */
    private CatalogTable told(CatalogTable table) {
        if (!Tables.isOurs(table.provider())) {
            return null;
        }
        if (table.properties().contains(CLUSTERING)) {
            throw new Unsupported("CLUSTER BY is not supported for mdt tables; use CALL mdt.cluster(table => …, by => …)");
        }
        if (table.bucketSpec().isDefined()) {
            throw new Unsupported("CLUSTERED BY and bucketBy are not supported for mdt tables; "
                    + "use the bucket key index, OPTIONS (key_index \"bucket(buckets='4')\")");
        }
        CatalogTable completed = table;
        for (Object item : Scala.map(table.properties()).entrySet()) {
            Map.Entry each = (Map.Entry) item;
            String name = ((String) each.getKey()).toLowerCase(Locale.ROOT);
            boolean isSaid = name.startsWith("hoodie.") || name.startsWith("mdt.") || HUDIS.contains(name);
            if (isSaid && !completed.storage().properties().contains(each.getKey())) {
                completed = with(completed, (String) each.getKey(), (String) each.getValue());
            }
        }
        Tables.check(session, completed);
        if (table.partitionColumnNames().isEmpty()) {
            return completed;
        }
        completed = with(completed, PARTITIONS, Json.text(Scala.list(table.partitionColumnNames())));
        return (CatalogTable) Scala.copied(completed, "partitionColumnNames", Scala.seq());
    }

    /** Returns a table with another option, or the same table if the value is null. */
    private static CatalogTable with(CatalogTable table, String option, String value) {
        return value == null ? table : Tables.with(table, Scala.with(table.storage().properties(), option, value));
    }

    /** Returns the NOT NULL columns as JSON, or null if there are none. */
    private static String required(StructType columns) {
        List names = new ArrayList();
        for (StructField column : columns.fields()) {
            if (!column.nullable()) {
                names.add(column.name());
            }
        }
        return names.isEmpty() ? null : Json.text(names);
    }
}

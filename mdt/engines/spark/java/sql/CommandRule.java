// Commands of Spark's on tables of ours. What they do not tell a data source, or would do to its directory by themselves:
//
// 1. The columns of PARTITIONED BY, and of partitionBy before saveAsTable: they become an option, that of df.write.partitionBy. To the
//    catalog the table has no partitions, and so nobody can have it add or drop some, which would delete directories. Columns that are NOT NULL,
//    and TBLPROPERTIES as users of Hudi write them, become options, too.
// 2. CREATE TABLE with columns, where no table is: it becomes one AS SELECT of no row, which is how Spark lets a source make it.
// 3. CREATE TABLE LIKE, which would make an entry without a table: refused.
// 4. What is done with whole partitions, and what else an ALTER TABLE would do to the catalog alone: one call of Python (TableCall.java).
//    TRUNCATE TABLE would delete the directory, with all that makes it a table.
// 5. DELETE, UPDATE, MERGE and INSERT, which Spark would refuse, or not count: a Statement, InsertRows.
//
// The rule stands at the end of the analysis: names are resolved, and the planner, which refuses, has not been asked yet.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
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
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.datasources.InsertIntoDataSourceCommand;
import org.apache.spark.sql.types.StructType;
import scala.Product;

public class CommandRule extends Rule {
    private static final String PARTITIONS = "__partition_columns"; // Spark's name for what partitionBy says, as JSON
    private static final String REQUIRED = "__required_columns";
    private static final String CLUSTERING = "clusteringColumns"; // where Spark's catalog has CLUSTER BY
    private static final List HUDIS = Arrays.asList(new Object[] {"primarykey", "type", "precombinefield", "orderingfields"});
    private static final List CALLS = Arrays.asList(new Object[] {"TruncateTableCommand", "ShowPartitionsCommand"});
    private static final String RENAME = "AlterTableRenameCommand"; // which Spark does
    private final SparkSession session;

    CommandRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        TreeNode found = isOfRows(plan) ? changed(plan) : commanded(plan);
        return found == null ? plan : found;
    }

    private static boolean isOfRows(TreeNode plan) {
        return plan instanceof DeleteFromTable || plan instanceof UpdateTable || plan instanceof MergeIntoTable;
    }

    /** Returns the statement that changes rows of a table of ours, null for that of another one. */
    private static TreeNode changed(TreeNode plan) {
        if (!((LogicalPlan) plan).resolved()) {
            return null; // Spark says what it does not know
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

    /** Returns what is carried out in the place of a command, null for the command itself. */
    private LogicalPlan commanded(TreeNode plan) {
        if (plan instanceof InsertIntoDataSourceCommand) {
            InsertIntoDataSourceCommand insert = (InsertIntoDataSourceCommand) plan;
            return insert.logicalRelation().relation() instanceof MdtRelation ? new InsertRows(insert) : null;
        }
        if (plan instanceof CreateDataSourceTableCommand) {
            CreateDataSourceTableCommand command = (CreateDataSourceTableCommand) plan;
            CatalogTable told = told(command.table());
            return told != null && isNew(told) ? made(with(told, REQUIRED, required(told.schema())), command.ignoreIfExists())
                    : replaced(command, command.table(), told);
        }
        if (plan instanceof CreateDataSourceTableAsSelectCommand) {
            CreateDataSourceTableAsSelectCommand command = (CreateDataSourceTableAsSelectCommand) plan;
            return replaced(command, command.table(), told(command.table()));
        }
        if (plan instanceof CreateTableLikeCommand) {
            CreateTableLikeCommand command = (CreateTableLikeCommand) plan;
            if (command.provider().isDefined() ? Tables.isOurs(command.provider()) : Tables.named(session, command.sourceTable()) != null) {
                throw new Unsupported("CREATE TABLE LIKE, which makes an entry of the catalog and no table; "
                        + "CREATE TABLE … USING mdt OPTIONS (key …) AS SELECT … WHERE false makes one");
            }
        }
        String kind = plan.getClass().getSimpleName();
        boolean isCall = CALLS.contains(kind) || kind.startsWith("AlterTable") && kind.endsWith("Command") && !RENAME.equals(kind);
        CatalogTable table = isCall ? Tables.named(session, (TableIdentifier) ((Product) plan).productElement(0)) : null;
        return table == null ? null : TableCall.of(session, table, (Product) plan, new PartitionValues(session, table));
    }

    /** Returns a command with another table, null where that is null, or the same. */
    private static LogicalPlan replaced(Object command, CatalogTable table, CatalogTable other) {
        return other == null || other == table ? null : (LogicalPlan) Scala.copied((Product) command, "table", other);
    }

    /** Returns whether columns are given, and nothing is there that has some. */
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

    /** Returns the command that makes a table. */
    private LogicalPlan made(CatalogTable table, boolean ignoreIfExists) {
        LogicalPlan none = session.createDataFrame(new ArrayList(), table.schema()).queryExecution().analyzed();
        SaveMode mode = ignoreIfExists ? SaveMode.Ignore : SaveMode.ErrorIfExists;
        return new CreateDataSourceTableAsSelectCommand((CatalogTable) Scala.copied(table, "schema", new StructType()), mode,
                none, Scala.seq(table.schema().fieldNames())); // the columns come with the rows
    }

    /**
     * Returns a table whose options name its partition columns, and say what its properties say in Hudi's words; null if it is not ours.
     * Refuses buckets, and options of the machine.
     */
    private CatalogTable told(CatalogTable table) {
        if (!Tables.isOurs(table.provider())) {
            return null;
        }
        if (table.properties().contains(CLUSTERING)) {
            throw new Unsupported("CLUSTER BY; CALL mdt.cluster(table => …, by => …) puts rows in order");
        }
        if (table.bucketSpec().isDefined()) {
            throw new Unsupported("CLUSTERED BY and bucketBy; "
                    + "buckets are a key index of mdt, OPTIONS (key_index \"bucket(buckets='4')\")");
        }
        CatalogTable told = table;
        for (Iterator i = Scala.map(table.properties()).entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            String name = ((String) each.getKey()).toLowerCase(Locale.ROOT);
            boolean isSaid = name.startsWith("hoodie.") || name.startsWith("mdt.") || HUDIS.contains(name);
            if (isSaid && !told.storage().properties().contains(each.getKey())) {
                told = with(told, (String) each.getKey(), (String) each.getValue());
            }
        }
        Tables.check(session, told);
        if (table.partitionColumnNames().isEmpty()) {
            return told;
        }
        told = with(told, PARTITIONS, Json.text(Scala.list(table.partitionColumnNames())));
        return (CatalogTable) Scala.copied(told, "partitionColumnNames", Scala.seq(new Object[0]));
    }

    /** Returns a table with one option more, as it is if that is null. */
    private static CatalogTable with(CatalogTable table, String option, String value) {
        return value == null ? table : (CatalogTable) Scala.copied(table, "storage",
                Scala.copied(table.storage(), "properties", Scala.with(table.storage().properties(), option, value)));
    }

    /** Returns the columns that are NOT NULL, as JSON, null without any. */
    private static String required(StructType columns) {
        List names = new ArrayList();
        for (int i = 0; i < columns.fields().length; i++) {
            if (!columns.fields()[i].nullable()) {
                names.add(columns.fields()[i].name());
            }
        }
        return names.isEmpty() ? null : Json.text(names);
    }
}

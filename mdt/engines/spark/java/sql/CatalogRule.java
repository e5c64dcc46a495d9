// What Spark's commands for tables of its catalog do not tell a data source, or would do to its directory by themselves:
//
// 1. The columns of PARTITIONED BY, and of partitionBy before saveAsTable: they become an option, that of df.write.partitionBy. To the
//    catalog the table has no partitions, and so nobody can have it add or drop some, which would delete directories. Columns that are NOT NULL,
//    and TBLPROPERTIES as users of Hudi write them, become options, too.
// 2. CREATE TABLE with columns, where no table is: it becomes one AS SELECT of no row, which is how Spark lets a source make it.
// 3. CREATE TABLE LIKE, which would make an entry without a table: refused.
// 4. What is done with whole partitions: PartitionStatement.java. TRUNCATE TABLE would delete the directory, with all that makes it a table.
// 5. What else an ALTER TABLE would do to the catalog alone: refused.
//
// Such a command is a plan like any other and passes the optimizer; for sessions that are made of one that knows us, the
// rule stands at the end of the analysis.
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
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.jdk.javaapi.CollectionConverters;

public class CatalogRule extends Rule {
    private static final String PARTITIONS = "__partition_columns"; // Spark's name for what partitionBy says, as JSON
    private static final String REQUIRED = "__required_columns";
    private static final String CLUSTERING = "clusteringColumns"; // where Spark's catalog has CLUSTER BY
    private static final List HUDIS = Arrays.asList(new Object[] {"primarykey", "type", "precombinefield", "orderingfields"});
    private static final List ALTERS = Arrays.asList(new Object[] {"AlterTableDropPartitionCommand", "AlterTableRenameCommand"});
    private final SparkSession session;

    CatalogRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof CreateDataSourceTableCommand) {
            CreateDataSourceTableCommand command = (CreateDataSourceTableCommand) plan;
            CatalogTable told = told(command.table());
            if (Tables.isOurs(told)) {
                Tables.check(session, told);
            }
            if (Tables.isOurs(told) && isNew(told)) {
                return made(with(told, REQUIRED, required(told.schema())), command.ignoreIfExists());
            }
            return told == command.table() ? plan : command.copy(told, command.ignoreIfExists());
        }
        if (plan instanceof CreateDataSourceTableAsSelectCommand) {
            CreateDataSourceTableAsSelectCommand command = (CreateDataSourceTableAsSelectCommand) plan;
            CatalogTable told = told(command.table());
            if (Tables.isOurs(told)) {
                Tables.check(session, told);
            }
            return told == command.table() ? plan
                    : command.copy(told, command.mode(), command.query(), command.outputColumnNames());
        }
        if (plan instanceof CreateTableLikeCommand) {
            CreateTableLikeCommand command = (CreateTableLikeCommand) plan;
            boolean isOurs = command.provider().isDefined() ? MdtSource.NAME.equalsIgnoreCase((String) command.provider().get())
                    : Tables.named(session, command.sourceTable()) != null;
            if (isOurs) {
                throw new Unsupported("CREATE TABLE LIKE, which makes an entry of the catalog and no table; "
                        + "CREATE TABLE … USING mdt OPTIONS (key …) AS SELECT … WHERE false makes one");
            }
        }
        String kind = plan.getClass().getSimpleName();
        boolean isAlter = kind.startsWith("AlterTable") && kind.endsWith("Command") && !ALTERS.contains(kind);
        if (isAlter && Tables.named(session, (TableIdentifier) ((Product) plan).productElement(0)) != null) {
            throw Python.refusal(session, kind); // named in a way that StatementRule does not see
        }
        PartitionStatement partitions = PartitionStatement.of(session, plan);
        return partitions == null ? plan : new SqlCommand(partitions);
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

    /** Returns a table whose options name its partition columns, and say what its properties say in Hudi's words; as it is if it is not ours.  Refuses buckets. */
    private static CatalogTable told(CatalogTable table) {
        if (!Tables.isOurs(table)) {
            return table;
        }
        if (table.properties().contains(CLUSTERING)) {
            throw new Unsupported("CLUSTER BY; CALL mdt.cluster(table => …, by => …) puts rows in order");
        }
        if (table.bucketSpec().isDefined()) {
            throw new Unsupported("CLUSTERED BY and bucketBy; "
                    + "buckets are a key index of mdt, OPTIONS (key_index \"bucket(buckets='4')\")");
        }
        CatalogTable told = table;
        for (Iterator i = CollectionConverters.asJava(table.properties()).entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            String name = ((String) each.getKey()).toLowerCase(Locale.ROOT);
            boolean isSaid = name.startsWith("hoodie.") || name.startsWith("mdt.") || HUDIS.contains(name);
            if (isSaid && !told.storage().properties().contains(each.getKey())) {
                told = with(told, (String) each.getKey(), (String) each.getValue());
            }
        }
        if (table.partitionColumnNames().isEmpty()) {
            return told;
        }
        told = with(told, PARTITIONS, CatalystJson.texts(Scala.list(table.partitionColumnNames())));
        return (CatalogTable) Scala.copied(told, "partitionColumnNames", Scala.seq(new Object[0]));
    }

    /** Returns a table with one option more, as it is if that is null. */
    private static CatalogTable with(CatalogTable table, String option, String value) {
        Object options = value == null ? table.storage().properties() : table.storage().properties().updated(option, value);
        return (CatalogTable) Scala.copied(table, "storage", Scala.copied(table.storage(), "properties", options));
    }

    /** Returns the columns that are NOT NULL, as JSON, null without any. */
    private static String required(StructType columns) {
        List names = new ArrayList();
        for (int i = 0; i < columns.fields().length; i++) {
            if (!columns.fields()[i].nullable()) {
                names.add(columns.fields()[i].name());
            }
        }
        return names.isEmpty() ? null : CatalystJson.texts(names);
    }
}

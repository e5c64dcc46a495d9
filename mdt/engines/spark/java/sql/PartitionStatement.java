// What SQL does with whole partitions of a table of ours: Spark's own commands would ask the catalog, to which it has none, or delete directories.
//
//     ALTER TABLE t DROP [IF EXISTS] PARTITION (city = 'Oslo'), …    t.delete_partition
//     TRUNCATE TABLE t [PARTITION (city = 'Oslo')]                   t.truncate, t.delete_partition
//     SHOW PARTITIONS t [PARTITION (city = 'Oslo')]                  those that have rows
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.execution.command.AlterTableDropPartitionCommand;
import org.apache.spark.sql.execution.command.ShowPartitionsCommand;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

final class PartitionStatement extends SqlAction {
    private static final String DROP = "ALTER TABLE DROP PARTITION";
    private static final String TRUNCATE = "TRUNCATE TABLE";
    private static final String SHOW = "SHOW PARTITIONS";
    private final String kind;
    private final org.apache.spark.sql.classic.SparkSession session;
    private final CatalogTable table;
    private final List specs; // maps, column -> value; empty: the whole table
    private final boolean mayLack; // whether partitions that are not there are no error

    private PartitionStatement(String kind, org.apache.spark.sql.classic.SparkSession session, CatalogTable table, List specs, boolean mayLack) {
        this.kind = kind;
        this.session = session;
        this.table = table;
        this.specs = specs;
        this.mayLack = mayLack;
    }

    /** Returns the action that a command of Spark's is on a table of ours, null for any other command or table. */
    static PartitionStatement of(org.apache.spark.sql.classic.SparkSession session, Object plan) {
        if (plan instanceof AlterTableDropPartitionCommand) {
            AlterTableDropPartitionCommand command = (AlterTableDropPartitionCommand) plan;
            return of(DROP, session, command.tableName(), Scala.list(command.specs()), command.ifExists());
        }
        if (plan instanceof TruncateTableCommand) {
            TruncateTableCommand command = (TruncateTableCommand) plan;
            return of(TRUNCATE, session, command.tableName(), some(command.partitionSpec()), false);
        }
        if (plan instanceof ShowPartitionsCommand) {
            ShowPartitionsCommand command = (ShowPartitionsCommand) plan;
            return of(SHOW, session, command.tableName(), some(command.spec()), true);
        }
        return null;
    }

    private static PartitionStatement of(
            String kind, org.apache.spark.sql.classic.SparkSession session, TableIdentifier name, List specs, boolean mayLack) {
        CatalogTable table = Tables.named(session, name);
        return table == null ? null : new PartitionStatement(kind, session, table, specs, mayLack);
    }

    private static List some(Option spec) {
        return spec.isDefined() ? Arrays.asList(new Object[] {spec.get()}) : Collections.EMPTY_LIST;
    }

    public String kind() {
        return kind;
    }

    StructType answer() {
        return kind == SHOW ? new StructType().add("partition", DataTypes.StringType, false) : new StructType();
    }

    Object[][] run(SparkSession asked) {
        scala.collection.immutable.Map options = Tables.options(table);
        String[] named = new String[specs.size()];
        if (named.length > 0) {
            PartitionValues values = new PartitionValues(session, MdtSource.relation(session, options, null).schema().fields());
            List partitionBy = Python.partitions(session, options);
            for (int i = 0; i < named.length; i++) {
                named[i] = CatalystJson.object(values.texts(spec((scala.collection.immutable.Map) specs.get(i), partitionBy)));
            }
        }
        if (kind == SHOW) {
            String[] paths = Python.partitions(session, options, named.length == 0 ? "{}" : named[0]);
            Object[][] rows = new Object[paths.length][];
            for (int i = 0; i < rows.length; i++) {
                rows[i] = new Object[] {paths[i]};
            }
            return rows;
        }
        boolean isWhole = kind == TRUNCATE && named.length == 0;
        for (int i = 0; i < named.length && !mayLack; i++) {
            if (Python.partitions(session, options, named[i]).length == 0) {
                throw new Invalid("there is no partition " + named[i]
                        + (kind == DROP ? "; IF EXISTS lets it be missing" : ""));
            }
        }
        List names = isWhole ? Collections.EMPTY_LIST : Arrays.asList(new Object[] {"partitions"});
        List values = isWhole ? Collections.EMPTY_LIST : Arrays.asList(new Object[] {"[" + String.join(",", named) + "]"});
        Python.call(session, options, isWhole ? "truncate" : "delete_partition", names, values);
        Caches.renew(session, options);
        return new Object[0][];
    }

    /** Returns a specification with the names that the table gives its columns. */
    private Map spec(scala.collection.immutable.Map said, List partitionBy) {
        Map found = new LinkedHashMap();
        for (Iterator i = CollectionConverters.asJava(said).entrySet().iterator(); i.hasNext(); ) {
            Map.Entry each = (Map.Entry) i.next();
            found.put(Tables.column(session, partitionBy, (String) each.getKey()), each.getValue());
        }
        return found;
    }
}

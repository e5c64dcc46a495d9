// ALTER TABLE … DROP COLUMN, RENAME COLUMN and ALTER COLUMN … TYPE, DROP NOT NULL, which Spark refuses for tables of its own catalog, as soon as it
// knows which table is meant. So they are taken before: for a table of ours, t.alter of Python does them. What else ALTER COLUMN says,
// as a comment, is the catalog's and stays with Spark.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.FieldName;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumnSpec;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumns;
import org.apache.spark.sql.catalyst.plans.logical.DropColumns;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RenameColumn;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;

public class AlterRule extends Rule {
    private final SparkSession session;

    AlterRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof RenameColumn) {
            RenameColumn rename = (RenameColumn) plan;
            AlterTable found = of(rename.table());
            return found == null ? plan : new SqlCommand(found.rename(path(rename.column()), rename.newName()));
        }
        if (plan instanceof DropColumns) {
            DropColumns drop = (DropColumns) plan;
            AlterTable found = of(drop.table());
            for (int i = 0; found != null && i < drop.columnsToDrop().length(); i++) {
                found.drop(path((FieldName) drop.columnsToDrop().apply(i)), drop.ifExists());
            }
            return found == null ? plan : new SqlCommand(found);
        }
        if (plan instanceof AlterColumns) {
            AlterColumns alter = (AlterColumns) plan;
            AlterTable found = of(alter.table());
            boolean isAll = found != null;
            for (int i = 0; isAll && i < alter.specs().length(); i++) {
                isAll = took(found, (AlterColumnSpec) alter.specs().apply(i));
            }
            return isAll ? new SqlCommand(found) : plan;
        }
        return plan;
    }

    /** Returns an alter of the table that a statement names, null for one of somebody else's. */
    private AlterTable of(LogicalPlan named) {
        if (!(named instanceof UnresolvedTable)) {
            return null;
        }
        CatalogTable table = Tables.named(session, Scala.list(((UnresolvedTable) named).multipartIdentifier()));
        return table == null ? null : new AlterTable(session, table);
    }

    /** Adds what is said of a column to an alter; returns false for what only the catalog can do, or nobody. */
    private static boolean took(AlterTable alter, AlterColumnSpec said) {
        boolean isMore = said.newComment().isDefined() || said.newPosition().isDefined() || said.newDefaultExpression().isDefined();
        boolean isRequired = said.newNullability().isDefined() && !((Boolean) said.newNullability().get()).booleanValue();
        if (isMore || isRequired) {
            return false;
        }
        if (said.newDataType().isDefined()) {
            alter.widen(path(said.column()), (DataType) said.newDataType().get());
        }
        if (said.newNullability().isDefined()) {
            alter.nullable(path(said.column()));
        }
        return true;
    }

    private static List path(FieldName name) {
        return Scala.list(name.name());
    }
}

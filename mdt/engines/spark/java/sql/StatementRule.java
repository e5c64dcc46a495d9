// Statements that name a table of the catalog, before Spark looks for the name. Of a table of ours:
//
//     columns                       t.alter of Python alters them, and then the catalog knows them (AlterTable.java)
//     TBLPROPERTIES                 t.alter changes options (AlterOptions.java)
//     SHOW CREATE TABLE             Python knows what the table is (Procedure.java)
//     ACCEPTED                      stay with Spark, or with the rules that see them later (SqlRule.java, CatalogRule.java)
//     any other, newer ones too     refused: Spark would change an entry of its catalog and nothing else, or give advice that is wrong here
//
// What is refused, and what to do instead, is in mdt/source/statements.py.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.FieldName;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.AddColumns;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumnSpec;
import org.apache.spark.sql.catalyst.plans.logical.AlterColumns;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.DropColumns;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.QualifiedColType;
import org.apache.spark.sql.catalyst.plans.logical.RenameColumn;
import org.apache.spark.sql.catalyst.plans.logical.SetTableProperties;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.plans.logical.UnsetTableProperties;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructField;

public class StatementRule extends Rule {
    private static final Set ACCEPTED = new HashSet(Arrays.asList(new Object[] {
        "CacheTable", "CommentOnTable", "CreateTable", "CreateTableAsSelect", "CreateTableLike", "CreateView", "DeleteFromTable",
        "DescribeColumn", "DescribeRelation", "DescribeRelationJsonCommand", "DropPartitions", "DropTable", "DropView",
        "MergeIntoTable", "RefreshTable", "RenameTable", "ShowColumns", "ShowPartitions", "ShowTableProperties", "TruncatePartition",
        "TruncateTable", "UncacheTable", "UpdateTable"}));
    private final SparkSession session;

    StatementRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        String kind = plan.getClass().getSimpleName();
        CatalogTable table = plan instanceof Command && !ACCEPTED.contains(kind) ? named((LogicalPlan) plan) : null;
        if (table == null) {
            return plan;
        }
        if (plan instanceof ShowCreateTable && !((ShowCreateTable) plan).asSerde()) {
            return new SqlCommand(created(table));
        }
        if (plan instanceof SetTableProperties) {
            return new SqlCommand(new AlterOptions(table, ((SetTableProperties) plan).properties()));
        }
        if (plan instanceof UnsetTableProperties) {
            return new SqlCommand(new AlterOptions(table, ((UnsetTableProperties) plan).propertyKeys()));
        }
        AlterTable alter = new AlterTable(session, table);
        if (plan instanceof RenameColumn) {
            alter.rename(path(((RenameColumn) plan).column()), ((RenameColumn) plan).newName());
        } else if (plan instanceof DropColumns) {
            DropColumns drop = (DropColumns) plan;
            for (int i = 0; i < drop.columnsToDrop().length(); i++) {
                alter.drop(path((FieldName) drop.columnsToDrop().apply(i)), drop.ifExists());
            }
        } else if (plan instanceof AddColumns) {
            scala.collection.immutable.Seq added = ((AddColumns) plan).columnsToAdd();
            for (int i = 0; i < added.length(); i++) {
                QualifiedColType column = (QualifiedColType) added.apply(i);
                refuseIf(Scala.isSet(column, "default"), "AddDefault");
                alter.add(Scala.list(column.name()), column.dataType(), column.nullable(), column.comment(), column.position());
            }
        } else if (plan instanceof AlterColumns) {
            List columns = Scala.list(((AlterColumns) plan).specs());
            for (int i = 0; i < columns.size(); i++) {
                altered(alter, (AlterColumnSpec) columns.get(i));
            }
        } else {
            throw Python.refusal(session, kind);
        }
        return new SqlCommand(alter);
    }

    /** Returns the table of ours that a statement names, null if it names none. */
    private CatalogTable named(LogicalPlan plan) {
        boolean isCheck = plan.getClass().getSimpleName().equals("AddCheckConstraint");
        for (int i = 0; i < plan.children().length(); i++) {
            LogicalPlan child = (LogicalPlan) plan.children().apply(i);
            child = isCheck ? (LogicalPlan) child.children().apply(0) : child; // below the condition
            scala.collection.immutable.Seq parts = child instanceof UnresolvedTable ? ((UnresolvedTable) child).multipartIdentifier()
                    : child instanceof UnresolvedTableOrView ? ((UnresolvedTableOrView) child).multipartIdentifier()
                    : child instanceof UnresolvedRelation && isCheck ? ((UnresolvedRelation) child).multipartIdentifier()
                    : child instanceof UnresolvedIdentifier ? ((UnresolvedIdentifier) child).nameParts()
                    : child instanceof PlanWithUnresolvedIdentifier ? evaluated((PlanWithUnresolvedIdentifier) child) : null;
            CatalogTable table = parts == null ? null : Tables.named(session, Scala.list(parts));
            if (table != null) {
                return table;
            }
        }
        return null;
    }

    /** Returns the parts of the name in IDENTIFIER(…), null if it is not a name: Spark refuses it. */
    private scala.collection.immutable.Seq evaluated(PlanWithUnresolvedIdentifier name) {
        try {
            List texts = Constants.texts(session, Arrays.asList(new Object[] {name.identifierExpr()}));
            return session.sessionState().sqlParser().parseMultipartIdentifier((String) texts.get(0));
        } catch (Exception isNoName) { // Scala's methods do not declare what they throw
            return null;
        }
    }

    private void altered(AlterTable alter, AlterColumnSpec column) {
        List path = path(column.column());
        boolean isRequired = column.newNullability().isDefined() && !((Boolean) column.newNullability().get()).booleanValue();
        refuseIf(isRequired, "SetNotNull");
        refuseIf(Scala.isSet(column, "newDefaultExpression") || Scala.isSet(column, "dropDefault"), "SetDefault");
        if (column.newDataType().isDefined()) {
            alter.widen(path, (org.apache.spark.sql.types.DataType) column.newDataType().get());
        }
        if (column.newNullability().isDefined()) {
            alter.nullable(path);
        }
        alter.comment(path, Scala.isSet(column, "dropComment") ? scala.Option.apply("") : column.newComment());
        alter.place(path, column.newPosition());
    }

    private Procedure created(CatalogTable table) {
        List columns = new ArrayList(); // of each its name, type and comment
        StructField[] fields = table.schema().fields();
        for (int i = 0; i < fields.length; i++) {
            columns.add(fields[i].name());
            columns.add(fields[i].dataType().sql());
            columns.add(fields[i].getComment().isDefined() ? fields[i].getComment().get() : "");
        }
        String name = table.identifier().quotedString();
        Object[] names = {"table", "name", "columns"};
        Object[] values = {name, name, CatalystJson.texts(columns)};
        return new Procedure(session, "show_create_table", Arrays.asList(names), Arrays.asList(values));
    }

    private void refuseIf(boolean isGiven, String kind) {
        if (isGiven) {
            throw Python.refusal(session, kind);
        }
    }

    private static List path(FieldName name) {
        return Scala.list(name.name());
    }
}

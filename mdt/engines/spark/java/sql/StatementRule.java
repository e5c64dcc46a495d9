// Handles statements that name mdt tables before Spark resolves the names and refuses them, or changes only its
// catalog:
//
//     CALL mdt.…(…)                 a procedure in Python (TableCall.java), unless the user has a catalog of that name
//     statements about a table      a call of Python, which executes or refuses them (mdt/source/definitions.py). ACCEPTED
//                                   statements are left to Spark, or to CommandRule.java, which runs later
//     writes by name                Inserts.java
//     a state of a table            VERSION AS OF, TIMESTAMP AS OF: Names.java
//     other names in queries        without options of the machine: Names.java
package mdt.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.Call;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.Product;
import scala.collection.immutable.Seq;

public class StatementRule extends Rule {
    private static final Set ACCEPTED = new HashSet(Arrays.asList(
        "CacheTable", "CommentOnTable", "CreateTable", "CreateTableAsSelect", "CreateTableLike", "CreateView", "DeleteFromTable",
        "DescribeColumn", "DescribeRelation", "DescribeRelationJsonCommand", "DropPartitions", "DropTable", "DropView",
        "MergeIntoTable", "RefreshTable", "RenameTable", "ShowColumns", "ShowPartitions", "ShowTableProperties", "TruncatePartition",
        "TruncateTable", "UncacheTable", "UpdateTable"));
    private static final List NAMES = Arrays.asList("UnresolvedTable", "UnresolvedTableOrView", "UnresolvedIdentifier");
    private final SparkSession session;

    StatementRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Call && ((Call) plan).procedure() instanceof UnresolvedProcedure) {
            return called((Call) plan, Scala.list(((UnresolvedProcedure) ((Call) plan).procedure()).nameParts()));
        }
        boolean isOpen = plan instanceof Command && !ACCEPTED.contains(plan.getClass().getSimpleName());
        CatalogTable table = isOpen ? named((LogicalPlan) plan) : null;
        if (table != null) {
            return TableCall.of(session, table, (Product) plan, null);
        }
        final Inserts inserts = new Inserts(session);
        final Names names = new Names(session);
        return ((LogicalPlan) plan).transformDownWithSubqueries(new Replacement() {
            Object of(Object node) {
                Object written = inserts.of(node);
                Object replaced = names.of(written == null ? node : written);
                return replaced == null ? written : replaced;
            }
        });
    }

    private LogicalPlan called(Call call, List parts) {
        boolean isOurs = parts.size() == 2 && MdtSource.NAME.equalsIgnoreCase((String) parts.get(0));
        if (!isOurs || session.sessionState().catalogManager().isCatalogRegistered(MdtSource.NAME)) {
            return call;
        }
        List arguments = Scala.list(call.args());
        String name = ((String) parts.get(1)).toLowerCase(Locale.ROOT);
        return TableCall.of(session, name, Constants.names(arguments), Constants.values(session, arguments));
    }

    /** Returns the mdt table that a statement names, or null. */
    private CatalogTable named(LogicalPlan plan) {
        boolean isCheck = plan.getClass().getSimpleName().equals("AddCheckConstraint");
        for (Object item : Scala.list(plan.children())) {
            LogicalPlan child = (LogicalPlan) item;
            child = isCheck ? (LogicalPlan) child.children().apply(0) : child; // below the condition
            Object parts = null;
            if (child instanceof PlanWithUnresolvedIdentifier) {
                parts = evaluated((PlanWithUnresolvedIdentifier) child);
            } else if (isCheck || NAMES.contains(child.getClass().getSimpleName())) {
                parts = Scala.field((Product) child, "multipartIdentifier");
                parts = parts == null ? Scala.field((Product) child, "nameParts") : parts;
            }
            CatalogTable table = parts == null ? null : Tables.named(session, Scala.list((Seq) parts));
            if (table != null) {
                return table;
            }
        }
        return null;
    }

    /** Returns the parts of the name in IDENTIFIER(…), or null if it is not a name, which Spark refuses. */
    private Seq evaluated(PlanWithUnresolvedIdentifier name) {
        try {
            List texts = Constants.texts(session, Arrays.asList(name.identifierExpr()));
            return session.sessionState().sqlParser().parseMultipartIdentifier((String) texts.get(0));
        } catch (Exception isNoName) { // Scala methods do not declare their exceptions
            return null;
        }
    }
}

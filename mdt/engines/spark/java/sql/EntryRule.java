// Tables of ours whose entry of the catalog has options of the machine (docs/options.md): directories, memory and threads are for whoever
// runs the query to choose. Such a table takes the place of its name without them, before Spark looks for the name and gives a reader
// all that the entry says. CREATE TABLE refuses them (CatalogRule.java), but who else writes entries is not known.
package mdt.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.UnresolvedCatalogRelation;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.Product;

public class EntryRule extends Rule {
    private final SparkSession session;

    EntryRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        return ((LogicalPlan) plan).transformDownWithSubqueries(new Replacement() {
            Object of(Object node) {
                if (node instanceof InsertIntoStatement) {
                    LogicalPlan table = own(((InsertIntoStatement) node).table());
                    return table == null ? null : Scala.copied((Product) node, "table", table);
                }
                return own((LogicalPlan) node);
            }
        });
    }

    /** Returns what takes the place of a name, null if it stays. */
    private LogicalPlan own(LogicalPlan node) {
        if (!(node instanceof UnresolvedRelation)) {
            return null;
        }
        UnresolvedRelation named = (UnresolvedRelation) node;
        CatalogTable entry = Tables.entry(session, Scala.list(named.multipartIdentifier()));
        CatalogTable own = entry == null ? null : Tables.own(session, entry);
        if (own == entry) {
            return null;
        }
        return new SubqueryAlias(Tables.alias(own), new UnresolvedCatalogRelation(own, named.clearWritePrivileges().options(),
                named.isStreaming()));
    }
}

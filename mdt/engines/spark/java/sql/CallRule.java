// Takes CALL mdt.…(…) before Spark looks for a catalog of that name; one that somebody has set up stays theirs.
package mdt.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.Call;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;

public class CallRule extends Rule {
    private final SparkSession session;

    CallRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (!(plan instanceof Call) || !(((Call) plan).procedure() instanceof UnresolvedProcedure)) {
            return plan;
        }
        List parts = Scala.list(((UnresolvedProcedure) ((Call) plan).procedure()).nameParts());
        boolean isOurs = parts.size() == 2 && MdtSource.NAME.equalsIgnoreCase((String) parts.get(0));
        if (!isOurs || session.sessionState().catalogManager().isCatalogRegistered(MdtSource.NAME)) {
            return plan;
        }
        List names = new ArrayList();
        List values = new ArrayList();
        List given = Scala.list(((Call) plan).args());
        for (int i = 0; i < given.size(); i++) {
            Object each = given.get(i);
            boolean isNamed = each instanceof NamedArgumentExpression;
            names.add(isNamed ? ((NamedArgumentExpression) each).key().toLowerCase() : "");
            values.add(isNamed ? ((NamedArgumentExpression) each).value() : each);
        }
        return new SqlCommand(new Procedure(session, ((String) parts.get(1)).toLowerCase(), names, Constants.texts(session, values)));
    }
}

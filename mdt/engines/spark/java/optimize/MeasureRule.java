// The rule that gives relations of ours in a query with a join what is estimated of them after pruning. Spark has a place for such
// rules just before its cost model reorders joins: filters have been pushed down to the relations by then.
//
// Estimates are of the newest version when the query is optimized; which one it reads is decided by PinRule afterwards.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SQLConf;

public class MeasureRule extends Rule {
    private final SparkSession session;

    MeasureRule(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        final References seen = new References((LogicalPlan) plan);
        if (!seen.joins || !new IndexSearch((LogicalPlan) plan).has(MdtFileIndex.STATISTICS)) {
            return plan;
        }
        final SQLConf conf = session.sessionState().conf();
        return ((LogicalPlan) plan).transformDown(new Replacement() {
            Object of(Object node) {
                Filter filter = node instanceof Filter ? (Filter) node : null;
                Object leaf = filter == null ? node : filter.child();
                MdtFileIndex index = MdtFileIndex.of(leaf);
                if (index == null || leaf instanceof MeasuredRelation || !index.does(MdtFileIndex.STATISTICS)) {
                    return null;
                }
                LogicalPlan measured = measured((LogicalRelation) leaf, index, filter, seen, conf);
                return measured == null || filter == null ? measured : filter.copy(filter.condition(), measured);
            }
        });
    }

    /** Returns a relation with its estimates, null without. */
    private static LogicalPlan measured(LogicalRelation leaf, MdtFileIndex index, Filter filter, References seen, SQLConf conf) {
        boolean costs = conf.cboEnabled() || conf.planStatsEnabled();
        List columns = new ArrayList();
        List output = Scala.list(leaf.output());
        for (int i = 0; costs && i < output.size(); i++) {
            AttributeReference column = (AttributeReference) output.get(i);
            if (seen.all.contains(column) && Measures.has(column.dataType())) {
                columns.add(column);
            }
        }
        JsonNode told = Measures.told(index.source, EmptyReplacement.normalized(filter), columns, conf);
        if (told == null) {
            return null;
        }
        Statistics found = Measures.of(told, leaf.output(), columns, costs, conf);
        return new MeasuredRelation(leaf, (HadoopFsRelation) leaf.relation(), found, told.get("rows").asLong(),
                told.get("files").asInt());
    }
}

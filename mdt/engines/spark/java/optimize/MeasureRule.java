// The rule that attaches estimates after pruning to mdt relations in queries with a join. It runs just before Spark's
// cost model reorders joins, when filters have been pushed down to the relations.
//
// Estimates are for the newest version at optimization time. PinRule later decides the version that is read.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
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
        final References references = new References((LogicalPlan) plan);
        if (!references.joins || !new IndexSearch((LogicalPlan) plan).has(MdtFileIndex.STATISTICS)) {
            return plan;
        }
        final SQLConf conf = session.sessionState().conf();
        final Estimates estimates = new Estimates((LogicalPlan) plan, references, conf);
        return ((LogicalPlan) plan).transformDown(new Replacement() {
            Object of(Object node) {
                JsonNode estimate = estimates.of(node);
                if (estimate == null) {
                    return null;
                }
                LogicalRelation leaf = Estimates.relation(node);
                Statistics statistics = Measures.of(estimate, leaf.output(), estimates.columns(leaf), estimates.costs, conf);
                LogicalPlan measured = new MeasuredRelation(leaf, (HadoopFsRelation) leaf.relation(), statistics,
                        estimate.get("rows").asLong(), estimate.get("files").asInt(), Measures.spread(estimate));
                return node instanceof Filter ? ((Filter) node).copy(((Filter) node).condition(), measured) : measured;
            }
        });
    }
}

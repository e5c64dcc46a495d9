// The rule that lets one side of a join say which files of the other side are read. In "sales join days on sales.day = days.day
// where days.holiday" only the days that are left can match, but nobody knows them before the query runs. Spark has an expression
// for that, DynamicPruningSubquery, which stands in a filter of the larger side and becomes the values of the smaller one as soon as
// these were broadcast for the join. Spark uses it for columns of partitions only; here it is put above any relation of ours, and
// TableScan hands the values to the planner in Python: statistics and indexes then leave out files, row groups and rows.
//
// It is put only where a broadcast for the join can be used, so that it costs no job, and where the smaller side is likely to have
// lost rows. Spark's way: Apache Spark, "dynamic partition pruning", SPARK-11150.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.Tuple8;

public class JoinPruning extends Rule {
    private final SparkSession session;

    JoinPruning(SparkSession session) {
        this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery || !session.sessionState().conf().dynamicPartitionPruningEnabled()
                || !new IndexSearch((LogicalPlan) plan).has(MdtFileIndex.JOINS)) {
            return plan;
        }
        return ((LogicalPlan) plan).transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                return node instanceof Join ? pruned((Join) node) : null;
            }
        });
    }

    /** Returns a join whose larger side asks the smaller one, null if there is nothing to ask, or if it asks already. */
    private static LogicalPlan pruned(Join join) {
        Option found = ExtractEquiJoinKeys.unapply(join);
        boolean inner = join.joinType().equals(Inner$.MODULE$);
        if (found.isEmpty() || !(inner || join.joinType().equals(LeftSemi$.MODULE$))) { // others keep rows without a match, or broadcast these
            return null;
        }
        List left = Scala.list((scala.collection.immutable.Seq) ((Tuple8) found.get())._2());
        List right = Scala.list((scala.collection.immutable.Seq) ((Tuple8) found.get())._3());
        boolean rightAsks = inner && broadcastsLeft(join);
        LogicalPlan from = rightAsks ? join.left() : join.right();
        LogicalPlan to = rightAsks ? join.right() : join.left();
        if (!Selective.is(from) || new Questions(left).in(join.right()) || new Questions(right).in(join.left())) {
            return null;
        }
        LogicalPlan asking = to;
        for (int i = 0; i < left.size(); i++) {
            Lineage way = new Lineage(from, rightAsks ? left : right, i);
            LogicalPlan next = way.asking(asking, (Expression) (rightAsks ? right : left).get(i));
            asking = next == null ? asking : next;
        }
        return asking == to ? null : join.copy(rightAsks ? from : asking, rightAsks ? asking : from, join.joinType(),
                join.condition(), join.hint());
    }

    /** Returns whether Spark, if it broadcasts a side of an inner join, takes the left one: it goes by hints, then by size. */
    private static boolean broadcastsLeft(Join join) {
        if (isHinted(join.hint().leftHint()) != isHinted(join.hint().rightHint())) {
            return isHinted(join.hint().leftHint());
        }
        return join.left().stats().sizeInBytes().compare(join.right().stats().sizeInBytes()) < 0;
    }

    private static boolean isHinted(Option hint) {
        return hint.isDefined() && ((HintInfo) hint.get()).strategy().contains(BROADCAST$.MODULE$);
    }
}

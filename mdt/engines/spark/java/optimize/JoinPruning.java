// The rule that lets one side of a join say which files of the other side are read. In "sales join days on sales.day = days.day
// where days.holiday" only the days that are left can match, but nobody knows them before the query runs. Spark has an expression
// for that, DynamicPruningSubquery, which stands in a filter of the larger side and becomes the values of the smaller one as soon as
// these were broadcast for the join. Spark uses it for columns of partitions only; here it is put above any relation of ours, and
// TableScan hands the values to the planner in Python: statistics and indexes then leave out files, row groups and rows.
//
// It is put only where a broadcast for the join can be used, so that it costs no job, where the smaller side is likely to have
// lost rows, and where its values may leave out files. Spark's way: Apache Spark, "dynamic partition pruning", SPARK-11150.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;

public class JoinPruning extends QueryRule {
    private final SparkSession session;

    JoinPruning(SparkSession session) {
        super(MdtFileIndex.JOINS);
        this.session = session;
    }

    LogicalPlan replaced(Object node) {
        boolean isWanted = node instanceof Join && session.sessionState().conf().dynamicPartitionPruningEnabled();
        return isWanted ? pruned((Join) node) : null;
    }

    /** Returns a join of which one side asks the other, null if there is nothing to ask, or if it asks already. */
    private static LogicalPlan pruned(Join join) {
        if (Sides.keepsState(join)) {
            return null; // a row may match one of an earlier or a later batch, which Spark keeps in its state
        }
        JoinType type = join.joinType();
        boolean inner = type.equals(Inner$.MODULE$);
        boolean semi = type.equals(LeftSemi$.MODULE$);
        boolean outer = type.equals(LeftOuter$.MODULE$) || type.equals(LeftAnti$.MODULE$); // of these the left side keeps its rows
        if (!(inner || semi || outer) || AskedSide.keys(join, true) == null
                || Sides.asks(join.left(), join.right()) || Sides.asks(join.right(), join.left())) {
            return null;
        }
        boolean small = inner && AskedSide.broadcastsLeft(join); // which side Spark broadcasts, if any
        boolean near = !outer && AskedSide.isAsked(join, small);
        Join found = near ? asking(join, small, true) : null;
        found = found == null && !outer ? asking(join, small, false) : found;
        found = found == null ? asking(join, outer || !small, false) : found;
        LogicalPlan side = small ? join.left() : join.right();
        boolean hopes = found == null && !outer && !near && Sides.isSelective(side) && !Sides.isLarge(side); // that it is broadcast
        return hopes ? asking(join, small, true) : found;
    }

    /**
     * Returns a join of which one side asks the other, null if there is nothing to ask: one direction only, or they could wait for each
     * other. left: whether the left one is asked. near: whether it is asked itself, and not what it is made of.
     */
    private static Join asking(Join join, boolean left, boolean near) {
        LogicalPlan from = left ? join.left() : join.right();
        LogicalPlan to = left ? join.right() : join.left();
        if (Sides.haveState(from)) {
            return null;
        }
        List keys = AskedSide.keys(join, left);
        List others = AskedSide.keys(join, !left);
        LogicalPlan asking = to;
        for (int i = 0; i < keys.size(); i++) {
            AskedSide asked = near ? new AskedSide(from, keys, i) : AskedSide.below(from, (Expression) keys.get(i));
            LogicalPlan next = asked == null ? null : new Lineage(asked).asking(asking, (Expression) others.get(i));
            asking = next == null ? asking : next;
        }
        return asking == to ? null : join.copy(left ? from : asking, left ? asking : from, join.joinType(), join.condition(), join.hint());
    }
}

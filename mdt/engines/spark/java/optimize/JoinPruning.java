// The rule that prunes the files of one side of a join by the values of the other side. In "sales join days on
// sales.day = days.day where days.holiday" only the selected days can match, but they are not known before the query
// runs. Spark's expression for this is DynamicPruningSubquery: a filter of the larger side that is replaced by the
// smaller side's values when these were broadcast for the join. Spark uses it only for partition columns. Here it is
// added above any mdt relation, and TableScan passes the values to the planner in Python. Statistics and indexes then
// exclude files, row groups and rows.
//
// It is added only if it can reuse a broadcast of the join, and so needs no job, if the smaller side has probably lost
// rows, and if its values may exclude files. See Apache Spark, "dynamic partition pruning", SPARK-11150.
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

    /** Returns a join with a question from one side to the other, or null if none is useful or it has one already. */
    private static LogicalPlan pruned(Join join) {
        if (Sides.keepsState(join)) {
            return null; // a row may match one of an earlier or later batch, which Spark keeps in its state
        }
        JoinType type = join.joinType();
        boolean inner = type.equals(Inner$.MODULE$);
        boolean semi = type.equals(LeftSemi$.MODULE$);
        boolean outer = type.equals(LeftOuter$.MODULE$) || type.equals(LeftAnti$.MODULE$); // these keep all rows of the left side
        if (!(inner || semi || outer) || AskedSide.keys(join, true) == null
                || Sides.asks(join.left(), join.right()) || Sides.asks(join.right(), join.left())) {
            return null;
        }
        boolean small = inner && AskedSide.broadcastsLeft(join); // the side that Spark may broadcast
        boolean isAsked = !outer && AskedSide.isAsked(join, small);
        Join pruned = isAsked ? asking(join, small, true) : null;
        pruned = pruned == null && !outer ? asking(join, small, false) : pruned;
        pruned = pruned == null ? asking(join, outer || !small, false) : pruned;
        LogicalPlan side = small ? join.left() : join.right();
        boolean mayBroadcast = pruned == null && !outer && !isAsked && Sides.isSelective(side) && !Sides.isLarge(side); // a broadcast is hoped for
        return mayBroadcast ? asking(join, small, true) : pruned;
    }

    /**
     * Returns a join with a question to one side, in one direction only, because two sides could wait for each other.
     * left: true to ask the left side. isDirect: true to ask this side itself, and not one of its inputs.
     */
    private static Join asking(Join join, boolean left, boolean isDirect) {
        LogicalPlan source = left ? join.left() : join.right();
        LogicalPlan target = left ? join.right() : join.left();
        if (Sides.haveState(source)) {
            return null;
        }
        List keys = AskedSide.keys(join, left);
        List targetKeys = AskedSide.keys(join, !left);
        LogicalPlan plan = target;
        for (int i = 0; i < keys.size(); i++) {
            AskedSide side = isDirect ? new AskedSide(source, keys, i) : AskedSide.below(source, (Expression) keys.get(i));
            LogicalPlan next = side == null ? null : new Lineage(side).asking(plan, (Expression) targetKeys.get(i));
            plan = next == null ? plan : next;
        }
        return plan == target ? null : join.copy(left ? source : plan, left ? plan : source, join.joinType(), join.condition(), join.hint());
    }
}

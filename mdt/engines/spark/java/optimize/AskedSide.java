// A side of a join that has the values of a key and is likely to be broadcast, so that it provides them without a job.
//
// The nearest is the other side of the join itself. If it is large, its key may come from a join with a small side
// further down: in "parts join (sales join parts of one kind) join (average of sales by part)" the averages can ask the
// parts of that kind, because every part of the larger side is one of them.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.Tuple8;

final class AskedSide {
    private static final long SMALL_ROWS = 100000;
    final LogicalPlan plan;
    final List keys; // of the join that broadcasts it
    final int number; // of the key with the values

    AskedSide(LogicalPlan plan, List keys, int number) {
        this.plan = plan;
        this.keys = keys;
        this.number = number;
    }

    /**
     * Returns true if a relation has enough rows to be pruned. A file with few rows is read before the answer arrives.
     */
    static boolean paysFor(LogicalPlan relation) {
        MeasuredRelation measured = relation instanceof MeasuredRelation ? (MeasuredRelation) relation : null;
        return measured == null || measured.files >= 2 || measured.rows >= SMALL_ROWS;
    }

    /** Returns the keys of a side of a join, or null if there are no equality conditions. */
    static List keys(Join join, boolean left) {
        Option equiJoin = ExtractEquiJoinKeys.unapply(join);
        if (equiJoin.isEmpty()) {
            return null;
        }
        Tuple8 parts = (Tuple8) equiJoin.get();
        return Scala.list((scala.collection.immutable.Seq) (left ? parts._2() : parts._3()));
    }

    /** Returns true if Spark, when it broadcasts a side of an inner join, chooses the left: by hints, then by size. */
    static boolean broadcastsLeft(Join join) {
        boolean left = isHinted(join.hint().leftHint());
        if (left != isHinted(join.hint().rightHint())) {
            return left;
        }
        return join.left().stats().sizeInBytes().compare(join.right().stats().sizeInBytes()) < 0;
    }

    private static boolean isHinted(Option hint) {
        return hint.isDefined() && ((HintInfo) hint.get()).strategy().contains(BROADCAST$.MODULE$);
    }

    /**
     * Returns true if a side of a join, the one that may be broadcast, is broadcast and has fewer values than the other
     * side.
     */
    static boolean isAsked(Join join, boolean left) {
        LogicalPlan side = left ? join.left() : join.right();
        return isBroadcast(join, left) && Sides.isSelective(side) && !Sides.isLarge(side);
    }

    /** Returns true if a side of a join, the one that may be broadcast, is broadcast. */
    static boolean isBroadcast(Join join, boolean left) {
        scala.math.BigInt most = scala.math.BigInt.apply(SQLConf.get().autoBroadcastJoinThreshold());
        return (left ? join.left() : join.right()).stats().sizeInBytes().compare(most) <= 0
                || isHinted(left ? join.hint().leftHint() : join.hint().rightHint());
    }

    /** Returns a side of a join below a plan that has all values of an expression over the plan's columns, or null. */
    static AskedSide below(LogicalPlan plan, Expression key) {
        if (key.references().isEmpty() || !key.deterministic() || !key.references().subsetOf(plan.outputSet())) {
            return null;
        }
        if (plan instanceof Filter) {
            return below(((Filter) plan).child(), key);
        }
        if (plan instanceof Project) {
            return below(((Project) plan).child(), Lineage.unnamed(key, ((Project) plan).projectList()));
        }
        if (plan instanceof Aggregate) { // keys with aggregates use columns that do not exist below
            return below(((Aggregate) plan).child(), Lineage.unnamed(key, ((Aggregate) plan).aggregateExpressions()));
        }
        return plan instanceof Join ? ofJoin((Join) plan, key) : null;
    }

    private static AskedSide ofJoin(Join join, Expression key) {
        JoinType type = join.joinType();
        boolean inner = type.equals(Inner$.MODULE$);
        boolean semi = type.equals(LeftSemi$.MODULE$);
        if (!(inner || semi || type.equals(LeftOuter$.MODULE$) || type.equals(LeftAnti$.MODULE$))) {
            return null;
        }
        boolean small = inner && broadcastsLeft(join); // true for the left side
        int number = inner || semi ? same(join, key) : -1;
        if (number >= 0 && isAsked(join, small)) {
            return new AskedSide(small ? join.left() : join.right(), keys(join, small), number);
        }
        AskedSide side = below(join.left(), key);
        return side == null && inner ? below(join.right(), key) : side;
    }

    /** Returns the index of the key pair of a join that contains a key, or -1. */
    private static int same(Join join, Expression key) {
        List left = keys(join, true);
        List right = keys(join, false);
        for (int i = 0; left != null && i < left.size(); i++) {
            if (key.semanticEquals((Expression) left.get(i)) || key.semanticEquals((Expression) right.get(i))) {
                return i;
            }
        }
        return -1;
    }
}

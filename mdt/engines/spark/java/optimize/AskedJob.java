// A side of a join that is run by itself for the values of a key, by a job that reads its rows once more.
//
// It is a table, filtered; of "lines where exists (…) and not exists (…)" the lines alone, since no others come to a further join. Few of its rows
// are left by statistics, or by questions that it has asked small sides itself, as Spark's cost model sees it: "late lines of the suppliers
// of one nation". In this job nothing would be broadcast for a join that answers these, so it joins what they ask. They do not become jobs
// of their own: Spark runs those on a pool of sixteen threads, and jobs that wait for jobs could hold them all.
package mdt.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.ColumnStat;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;

final class AskedJob {
    private static final long FOUND_MAX = 200000; // rows: their values come to the driver
    private static final long ASKING_MIN = 1000000; // rows of a table that asks: a job takes a tenth of a second
    private static final int ASKING_TIMES = 8; // as many rows at least as are found
    private final LogicalPlan side;
    private final LogicalPlan leaf;
    private final LogicalPlan plan;
    private final Set counted = new HashSet(); // ids of questions
    private double share = 1; // of rows that are left by them

    private AskedJob(LogicalPlan side, LogicalPlan leaf) {
        this.side = side;
        this.leaf = leaf;
        plan = (LogicalPlan) side.transformUp(new Replacement() {
            Object of(Object node) {
                return node instanceof Filter ? filtered((Filter) node) : null;
            }
        });
    }

    /** Returns the job that finds the values of a key which a side of a join has, null if there is more to it than a table with a condition. */
    static AskedJob of(LogicalPlan plan, Expression key) {
        LogicalPlan side = existing(plan, key);
        LogicalPlan leaf = side;
        while (leaf instanceof Filter || leaf instanceof Project) {
            leaf = (LogicalPlan) leaf.children().apply(0);
        }
        return rows(leaf) < 0 || !side.deterministic() || !Selective.is(side) || AskedSide.isLarge(side) ? null : new AskedJob(side, leaf);
    }

    /** Returns the plan of which a plan keeps those rows that are, or are not, in others. */
    private static LogicalPlan existing(LogicalPlan plan, Expression key) {
        LogicalPlan below = plan;
        while (below instanceof Project && key.references().subsetOf(((Project) below).child().outputSet())) {
            below = ((Project) below).child();
        }
        boolean keeps = below instanceof Join && (((Join) below).joinType().equals(LeftSemi$.MODULE$)
                || ((Join) below).joinType().equals(LeftAnti$.MODULE$));
        return keeps ? existing(((Join) below).left(), key) : plan;
    }

    /** Returns how many rows are left of a table, -1 if it is not known. */
    static long rows(LogicalPlan relation) {
        return relation instanceof MeasuredRelation ? ((MeasuredRelation) relation).rows : -1L;
    }

    /** Returns whether statistics alone prove that few rows are left. */
    private boolean isFew() {
        return rows(leaf) <= FOUND_MAX;
    }

    /** Returns how many rows a table must have that asks, -1 if none should. */
    long askingRows() {
        if (isFew()) {
            return Math.max(ASKING_MIN, ASKING_TIMES * rows(leaf));
        }
        double found = number(side.stats().rowCount()) * share;
        return found < 0 || found > FOUND_MAX ? -1 : Math.max(Math.max(ASKING_MIN, rows(leaf)), (long) (ASKING_TIMES * found));
    }

    /** Returns the plan of the values of a key: one more than can be used at most, since how many rows are left was an estimate. */
    LogicalPlan values(Expression key) {
        scala.collection.immutable.Seq one = Scala.seq(new Object[] {key});
        LogicalPlan all = new Project(one, plan);
        if (isFew()) {
            return all;
        }
        Expression most = new Literal(Integer.valueOf(KnownNumbers.VALUES_MAX + 1), DataTypes.IntegerType);
        return new GlobalLimit(most, new LocalLimit(most, new Aggregate(one, one, all, Option.empty())));
    }

    /** Returns a filter without questions but those of files that are worth a join, below these joins. */
    private LogicalPlan filtered(Filter filter) {
        boolean lowest = MdtFileIndex.of(filter.child()) != null;
        List all = Scala.list(filter.splitConjunctivePredicates(filter.condition()));
        List worth = new ArrayList();
        Expression left = null;
        for (int i = 0; i < all.size(); i++) {
            Expression one = (Expression) all.get(i);
            boolean asks = one instanceof DynamicPruningSubquery;
            if (asks && !(lowest && pays((DynamicPruningSubquery) one))) {
                continue;
            }
            if (asks) {
                worth.add(one);
            }
            left = left == null ? one : new And(left, one);
        }
        LogicalPlan made = left == null ? filter.child() : filter.copy(left, filter.child());
        for (int i = 0; i < worth.size(); i++) {
            made = joined(made, (DynamicPruningSubquery) worth.get(i));
        }
        return made;
    }

    private static LogicalPlan joined(LogicalPlan rows, DynamicPruningSubquery question) {
        int number = ((Integer) question.broadcastKeyIndices().apply(0)).intValue();
        Expression equal = new EqualTo(question.pruningKey(), (Expression) question.buildKeys().apply(number));
        JoinHint broadcast = new JoinHint(Option.empty(), Option.apply(new HintInfo(Option.apply(BROADCAST$.MODULE$))));
        return new Join(rows, question.buildQuery(), LeftSemi$.MODULE$, Option.apply(equal), broadcast);
    }

    /** Returns whether a small side is worth a join, and counts with what it leaves. */
    private boolean pays(DynamicPruningSubquery question) {
        double rows = number(question.buildQuery().stats().rowCount());
        if (isFew() || !question.onlyInBroadcast() || rows < 0 || rows > KnownNumbers.VALUES_MAX) {
            return false;
        }
        Option column = question.pruningKey() instanceof AttributeReference
                ? leaf.stats().attributeStats().get((AttributeReference) question.pruningKey()) : Option.empty();
        double distinct = column.isEmpty() ? -1 : number(((ColumnStat) column.get()).distinctCount());
        share *= counted.add(question.exprId()) && distinct > rows ? rows / distinct : 1;
        return true;
    }

    /** Returns an estimate of Spark's cost model, -1 without. */
    private static double number(Option estimate) {
        return estimate.isEmpty() ? -1 : ((scala.math.BigInt) estimate.get()).doubleValue();
    }
}

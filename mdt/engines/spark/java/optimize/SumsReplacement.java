// Puts sums of whole numbers in the places of sums, and averages, of decimals, where they fit.
package mdt.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BitwiseAnd;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.ShiftRight;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import scala.Option;

final class SumsReplacement extends Replacement {
    boolean any = false; // whether something was replaced
    private static final int HALF = Integer.SIZE; // bits
    private static final int LONG_DIGITS = 20; // of a decimal that holds any long integer
    private static final int TIMES_DIGITS = 10; // of 2^32
    private static final int SCALE_MAX = 18; // the sum of both sums has at most 32 digits then, and is exact
    private final LogicalPlan rows; // that are added up
    private final Bounds bounds;
    private BigInteger most; // rows, the same for every sum; null: not asked for yet, or not known

    SumsReplacement(LogicalPlan rows, Bounds bounds) {
        this.rows = rows;
        this.bounds = bounds;
    }

    Object of(Object node) {
        if (!(node instanceof AggregateExpression) || ((AggregateExpression) node).isDistinct()) {
            return null;
        }
        AggregateExpression one = (AggregateExpression) node;
        AggregateFunction function = one.aggregateFunction();
        Expression made = function instanceof Sum ? sum(one, (Sum) function)
                : function instanceof Average ? average(one, (Average) function) : null;
        any |= made != null;
        return made;
    }

    private Expression sum(AggregateExpression of, Sum sum) {
        Unscaled added = sum.dataType() instanceof DecimalType ? fitting(sum.child(), (DecimalType) sum.dataType()) : null;
        return added == null ? null : decimal(of, sum, added, (DecimalType) sum.dataType());
    }

    /** Spark's average divides a sum by a count, which it keeps in two columns: these are other ones, and the division stays Spark's. */
    private Expression average(final AggregateExpression of, Average average) {
        if (!(average.child().dataType() instanceof DecimalType)) {
            return null;
        }
        List kept = Scala.list(average.aggBufferAttributes());
        final Object sum = kept.get(0);
        final Object count = kept.get(1);
        final DecimalType type = (DecimalType) ((Expression) sum).dataType();
        final Unscaled added = fitting(average.child(), type);
        return added == null ? null : (Expression) average.evaluateExpression().transform(new Replacement() {
            Object of(Object node) {
                if (sum.equals(node)) {
                    return decimal(of, new Sum(added.value), added, type);
                }
                return count.equals(node) ? whole(of, new Count(Scala.seq(new Object[] {added.value}))) : null;
            }
        });
    }

    /** Returns decimals as whole numbers whose sums are known to fit, into two of them at least and into the type of the decimals' own; null else. */
    private Unscaled fitting(Expression child, DecimalType type) {
        Unscaled added = Unscaled.of(child, rows, bounds);
        if (added != null && most == null) {
            most = bounds.rows(rows);
        }
        boolean fits = added != null && most != null && Unscaled.fits(added.largest().multiply(most), type)
                && (isOne(added) || areTwo(added) && added.scale <= SCALE_MAX);
        return fits ? added : null;
    }

    /** Returns whether a sum over all rows fits into 64 bits. */
    private boolean isOne(Unscaled added) {
        return Unscaled.isLong(added.largest().multiply(most));
    }

    /** Returns whether sums of the upper and of the lower 32 bits do. */
    private boolean areTwo(Unscaled added) {
        BigInteger upper = added.largest().shiftRight(HALF).add(BigInteger.ONE);
        return Unscaled.isLong(upper.multiply(most)) && Unscaled.isLong(most.shiftLeft(HALF));
    }

    private Expression decimal(AggregateExpression of, Sum sum, Unscaled added, DecimalType type) {
        if (isOne(added)) {
            return decimal(of, sum, added.value, type.precision(), type.scale());
        }
        Expression upper = new ShiftRight(added.value, new Literal(Integer.valueOf(HALF), DataTypes.IntegerType));
        Expression lower = new BitwiseAnd(added.value, new Literal(Long.valueOf((1L << HALF) - 1), DataTypes.LongType));
        Decimal times = Decimal.apply(new BigDecimal(1L << HALF), TIMES_DIGITS, 0);
        return new Cast(new Add(
                new Multiply(decimal(of, sum, upper, LONG_DIGITS, type.scale()), new Literal(times, new DecimalType(TIMES_DIGITS, 0))),
                decimal(of, sum, lower, LONG_DIGITS, type.scale())), type, Option.empty());
    }

    private static Expression decimal(AggregateExpression of, Sum sum, Expression added, int precision, int scale) {
        Sum whole = (Sum) sum.withNewChildren(Scala.seq(new Object[] {added}));
        return new MakeDecimal(whole(of, whole), precision, scale);
    }

    /** Returns another aggregate of the same rows. */
    private static Expression whole(AggregateExpression of, AggregateFunction function) {
        return of.copy(function, of.mode(), false, of.filter(), NamedExpression$.MODULE$.newExprId());
    }
}

// A decimal expression as an expression of whole numbers, each the value without its decimal point ("unscaled", as Java's BigDecimal and
// Spark call it), and between which two these lie. Every step fits into 64 bits and into the type of the decimal that it stands for, so that
// neither rounds nor overflows where the other does not.
package mdt.spark;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import scala.Option;

final class Unscaled {
    final Expression value; // a long integer, null where the decimal is
    final int scale;
    final BigInteger least;
    final BigInteger most;

    Unscaled(Expression value, int scale, BigInteger least, BigInteger most) {
        this.value = value;
        this.scale = scale;
        this.least = least;
        this.most = most;
    }

    /** Returns the largest of all numbers, by its size. */
    BigInteger largest() {
        return least.abs().max(most.abs());
    }

    static boolean isLong(BigInteger value) {
        return value.bitLength() < Long.SIZE;
    }

    /** Returns whether a number is none too large for a type. */
    static boolean fits(BigInteger unscaled, DecimalType type) {
        return unscaled.abs().compareTo(BigInteger.TEN.pow(type.precision())) < 0;
    }

    /** Returns a decimal or whole expression over the rows of a plan as whole numbers, null where that is not known to be the same. */
    static Unscaled of(Expression expression, LogicalPlan rows, Bounds bounds) {
        DataType type = expression.dataType();
        boolean whole = !(type instanceof DecimalType);
        if (!is(type)) {
            return null;
        }
        Unscaled found = whole ? ofWhole(expression, rows, bounds) : ofDecimal(expression, (DecimalType) type, rows, bounds);
        return found != null && isLong(found.largest()) && (whole || fits(found.largest(), (DecimalType) type)) ? found : null;
    }

    /** Returns whether values of a type are decimals or whole numbers. */
    static boolean is(DataType type) {
        return type instanceof DecimalType || type instanceof LongType || isNarrow(type);
    }

    private static boolean isNarrow(DataType type) {
        return type instanceof IntegerType || type instanceof ShortType || type instanceof ByteType;
    }

    private static Unscaled ofWhole(Expression expression, LogicalPlan rows, Bounds bounds) {
        Expression value = expression.dataType() instanceof LongType ? expression
                : new Cast(expression, DataTypes.LongType, Option.empty());
        Unscaled known = expression instanceof AttributeReference ? bounds.of((AttributeReference) expression, rows) : null;
        if (known == null && isNarrow(expression.dataType())) {
            return new Unscaled(value, 0, BigInteger.valueOf(Integer.MIN_VALUE), BigInteger.valueOf(Integer.MAX_VALUE));
        }
        return known == null ? null : new Unscaled(value, 0, known.least, known.most);
    }

    private static Unscaled ofDecimal(Expression expression, DecimalType type, LogicalPlan rows, Bounds bounds) {
        if (expression instanceof AttributeReference) {
            Unscaled known = bounds.of((AttributeReference) expression, rows);
            return known == null ? null : new Unscaled(new UnscaledValue(expression), type.scale(), known.least, known.most).at(type.scale());
        }
        if (expression instanceof Literal) {
            return literal((Literal) expression, type);
        }
        if (expression instanceof Cast || expression instanceof UnaryMinus) {
            Unscaled one = of((Expression) expression.children().apply(0), rows, bounds);
            return one == null ? null : expression instanceof Cast ? one.at(type.scale()) : one.negative();
        }
        List parts = new ArrayList();
        List children = Scala.list(expression.children());
        for (int i = 0; i < children.size(); i++) {
            Expression child = (Expression) children.get(i);
            Unscaled part = child.dataType() instanceof DecimalType ? of(child, rows, bounds) : null;
            if (part == null && child.dataType() instanceof DecimalType) {
                return null;
            }
            parts.add(part);
        }
        if (expression instanceof Add || expression instanceof Subtract || expression instanceof Multiply) {
            return computed(expression, type, (Unscaled) parts.get(0), (Unscaled) parts.get(1));
        }
        boolean chooses = expression instanceof If || expression instanceof CaseWhen || expression instanceof Coalesce;
        return chooses ? chosen(expression, type, parts) : null;
    }

    private static Unscaled literal(Literal literal, DecimalType type) {
        if (literal.value() == null) {
            return new Unscaled(new Literal(null, DataTypes.LongType), type.scale(), BigInteger.ZERO, BigInteger.ZERO);
        }
        BigInteger value = ((Decimal) literal.value()).toJavaBigDecimal().setScale(type.scale()).unscaledValue();
        return isLong(value) ? new Unscaled(literal(value), type.scale(), value, value) : null;
    }

    private static Literal literal(BigInteger value) {
        return new Literal(Long.valueOf(value.longValue()), DataTypes.LongType);
    }

    /** Returns the same numbers at a scale that is not smaller, null for one that is: it would round. */
    private Unscaled at(int wanted) {
        if (wanted <= scale) {
            return wanted == scale ? this : null;
        }
        BigInteger factor = BigInteger.TEN.pow(wanted - scale);
        if (!isLong(factor) || !isLong(largest().multiply(factor))) {
            return null;
        }
        return new Unscaled(times(factor), wanted, least.multiply(factor), most.multiply(factor));
    }

    private Expression times(BigInteger factor) {
        if (!(value instanceof Literal)) {
            return new Multiply(value, literal(factor));
        }
        return ((Literal) value).value() == null ? value : literal(least.multiply(factor));
    }

    private Unscaled negative() {
        return new Unscaled(new Subtract(literal(BigInteger.ZERO), value), scale, most.negate(), least.negate());
    }

    private static Unscaled computed(Expression expression, DecimalType type, Unscaled left, Unscaled right) {
        if (expression instanceof Multiply) {
            BigInteger[] corners = {left.least.multiply(right.least), left.least.multiply(right.most),
                left.most.multiply(right.least), left.most.multiply(right.most)};
            BigInteger least = corners[0].min(corners[1]).min(corners[2]).min(corners[3]);
            BigInteger most = corners[0].max(corners[1]).max(corners[2]).max(corners[3]);
            boolean exact = left.scale + right.scale == type.scale();
            return exact ? new Unscaled(new Multiply(left.value, right.value), type.scale(), least, most) : null;
        }
        Unscaled first = left.at(type.scale());
        Unscaled second = right.at(type.scale());
        if (first == null || second == null) {
            return null;
        }
        return expression instanceof Add
                ? new Unscaled(new Add(first.value, second.value), type.scale(), first.least.add(second.least), first.most.add(second.most))
                : new Unscaled(new Subtract(first.value, second.value), type.scale(),
                        first.least.subtract(second.most), first.most.subtract(second.least));
    }

    /** Returns one of several decimals, whichever an expression chooses. parts: of each child, null for a condition. */
    private static Unscaled chosen(Expression expression, DecimalType type, List parts) {
        Object[] children = Scala.list(expression.children()).toArray();
        BigInteger least = null;
        BigInteger most = null;
        for (int i = 0; i < children.length; i++) {
            Unscaled part = parts.get(i) == null ? null : ((Unscaled) parts.get(i)).at(type.scale());
            if (part == null && parts.get(i) != null) {
                return null;
            }
            if (part != null) {
                children[i] = part.value;
                least = least == null ? part.least : least.min(part.least);
                most = most == null ? part.most : most.max(part.most);
            }
        }
        return new Unscaled((Expression) expression.withNewChildren(Scala.seq(children)), type.scale(), least, most);
    }
}

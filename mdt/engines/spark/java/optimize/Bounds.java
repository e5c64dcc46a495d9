// What the metadata table proves of the rows of a plan: how many there are at most, between which bounds the numbers of a column lie, and
// which columns no two rows have the same values of.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.FullOuter$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.types.DecimalType;
import scala.Option;

final class Bounds {
    private static final int STEPS_MAX = 1000; // of looking for unique columns: they double with each join
    private final AttributeSet wanted; // columns that may be asked for
    private int steps = 0;

    /** of: the plan whose rows are asked about. */
    Bounds(LogicalPlan of) {
        wanted = new References(of).all;
    }

    /** Returns how many rows a plan has at most, null where that is not known. */
    BigInteger rows(LogicalPlan plan) {
        if (keeps(plan)) {
            return rows((LogicalPlan) plan.children().apply(0));
        }
        if (plan instanceof Join) {
            return ofJoin((Join) plan);
        }
        JsonNode told = told(plan);
        if (told != null) {
            return told.get("rows").bigIntegerValue();
        }
        Option most = plan.maxRows();
        return most.isDefined() ? BigInteger.valueOf(((Long) most.get()).longValue()) : null;
    }

    /** Returns whether a plan has no more rows than its child, each of which comes of one. */
    private static boolean keeps(LogicalPlan plan) {
        return plan instanceof Filter || plan instanceof Project || plan instanceof Sort || plan instanceof Aggregate
                && !((Aggregate) plan).groupingExpressions().isEmpty();
    }

    private BigInteger ofJoin(Join join) {
        JoinType type = join.joinType();
        BigInteger left = rows(join.left());
        if (type.equals(LeftSemi$.MODULE$) || type.equals(LeftAnti$.MODULE$)) {
            return left;
        }
        BigInteger right = left == null ? null : rows(join.right());
        boolean keepsLeft = type.equals(LeftOuter$.MODULE$) || type.equals(FullOuter$.MODULE$);
        boolean keepsRight = type.equals(RightOuter$.MODULE$) || type.equals(FullOuter$.MODULE$);
        if (right == null || !(keepsLeft || keepsRight || type.equals(Inner$.MODULE$))) {
            return null;
        }
        BigInteger most = left.multiply(right).add(keepsLeft ? left : BigInteger.ZERO).add(keepsRight ? right : BigInteger.ZERO);
        if (isUnique(join.right(), names(join, false))) {
            most = most.min(keepsRight ? left.add(right) : left);
        }
        if (isUnique(join.left(), names(join, true))) {
            most = most.min(keepsLeft ? left.add(right) : right);
        }
        return most;
    }

    /** Returns the columns of one side of a join that must equal something of the other. */
    private static Set names(Join join, boolean left) {
        List keys = AskedSide.keys(join, left);
        Set found = new HashSet();
        for (int i = 0; keys != null && i < keys.size(); i++) {
            if (keys.get(i) instanceof AttributeReference) {
                found.add(((AttributeReference) keys.get(i)).exprId());
            }
        }
        return found;
    }

    /** Returns whether no two rows of a plan have the same values of columns, nulls aside, which equal nothing. columns: their ids. */
    private boolean isUnique(LogicalPlan plan, Set columns) {
        if (++steps > STEPS_MAX) {
            return false;
        }
        if (plan instanceof Filter || plan instanceof Sort) {
            return isUnique((LogicalPlan) plan.children().apply(0), columns);
        }
        if (plan instanceof Project) {
            return isUnique(((Project) plan).child(), unnamed(columns, ((Project) plan).projectList()));
        }
        if (plan instanceof Aggregate) {
            return isUnique((Aggregate) plan, columns);
        }
        if (plan instanceof Join) {
            return isUnique((Join) plan, columns);
        }
        JsonNode told = told(plan);
        JsonNode key = told == null ? null : told.get("unique");
        if (key == null || key.isNull()) {
            return false;
        }
        Set names = new HashSet();
        List output = Scala.list(plan.output());
        for (int i = 0; i < output.size(); i++) {
            AttributeReference column = (AttributeReference) output.get(i);
            if (columns.contains(column.exprId())) {
                names.add(column.name());
            }
        }
        boolean all = true;
        for (int i = 0; i < key.size(); i++) {
            all &= names.contains(((JsonNode) key.get(i)).asText());
        }
        return all;
    }

    private boolean isUnique(Join join, Set columns) {
        JoinType type = join.joinType();
        if (type.equals(LeftSemi$.MODULE$) || type.equals(LeftAnti$.MODULE$)) {
            return isUnique(join.left(), columns);
        }
        boolean left = isUnique(join.right(), names(join, false)) && isUnique(join.left(), columns);
        boolean right = isUnique(join.left(), names(join, true)) && isUnique(join.right(), columns);
        return type.equals(Inner$.MODULE$) ? left || right : type.equals(LeftOuter$.MODULE$) && left;
    }

    /** Groups have each set of values of what they are grouped by but once. */
    private static boolean isUnique(Aggregate aggregate, Set columns) {
        Set made = unnamed(columns, aggregate.aggregateExpressions());
        List grouping = Scala.list(aggregate.groupingExpressions());
        boolean all = true;
        for (int i = 0; i < grouping.size(); i++) {
            Object by = grouping.get(i);
            all &= by instanceof AttributeReference && made.contains(((AttributeReference) by).exprId());
        }
        return all;
    }

    /** Returns columns in terms of those that a list of named expressions is made of; those that are computed are left out. */
    private static Set unnamed(Set columns, scala.collection.immutable.Seq named) {
        Set found = new HashSet();
        List names = Scala.list(named);
        for (int i = 0; i < names.size(); i++) {
            NamedExpression name = (NamedExpression) names.get(i);
            Object of = name instanceof Alias ? ((Alias) name).child() : name;
            if (columns.contains(name.exprId()) && of instanceof AttributeReference) {
                found.add(((AttributeReference) of).exprId());
            }
        }
        return found;
    }

    /** Returns the bounds of a column of a plan, of decimals without their decimal points; null where none are known. */
    Unscaled of(AttributeReference column, LogicalPlan plan) {
        if (plan instanceof Project || plan instanceof Aggregate) {
            return ofNamed(column, plan, plan instanceof Project ? ((Project) plan).projectList() : ((Aggregate) plan).aggregateExpressions());
        }
        if (keeps(plan) || plan instanceof Join) {
            List children = Scala.list(plan.children());
            for (int i = 0; i < children.size(); i++) {
                if (((LogicalPlan) children.get(i)).outputSet().contains(column)) {
                    return of(column, (LogicalPlan) children.get(i));
                }
            }
            return null;
        }
        JsonNode told = plan.outputSet().contains(column) ? told(plan) : null;
        if (told == null || !told.get("least").has(column.name())) {
            return null;
        }
        int scale = column.dataType() instanceof DecimalType ? ((DecimalType) column.dataType()).scale() : 0;
        BigDecimal least = new BigDecimal(told.get("least").get(column.name()).asText());
        BigDecimal most = new BigDecimal(told.get("most").get(column.name()).asText());
        return new Unscaled(null, scale, least.setScale(scale, RoundingMode.FLOOR).unscaledValue(),
                most.setScale(scale, RoundingMode.CEILING).unscaledValue());
    }

    private Unscaled ofNamed(AttributeReference column, LogicalPlan plan, scala.collection.immutable.Seq named) {
        Expression of = Lineage.unnamed(column, named);
        return Unscaled.of(of, (LogicalPlan) plan.children().apply(0), this);
    }

    /** Returns what is told of a relation of ours, null of any other node. */
    private JsonNode told(LogicalPlan plan) {
        MdtFileIndex index = MdtFileIndex.of(plan);
        if (index == null || index.pin == null || !index.does(MdtFileIndex.SUMS)) {
            return null;
        }
        List names = new ArrayList();
        List output = Scala.list(plan.output());
        for (int i = 0; i < output.size(); i++) {
            AttributeReference column = (AttributeReference) output.get(i);
            if (wanted.contains(column) && Unscaled.is(column.dataType())) {
                names.add(column.name());
            }
        }
        JsonNode told = index.source.bounds(index.pin, names);
        return told == null || told.isNull() ? null : told;
    }
}

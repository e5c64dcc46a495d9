// A frame that says what becomes of which row: what t.merge of Python is given as its source. Its columns:
//
//     the columns that name a row of the table (null where a row is new)
//     __mdt_m    number of the clause for a row that is in the table, 0: none
//     __mdt_n    number of the clause for a row that is not
//     __mdt_v0 … values that clauses set; null where the clause of the row does not use it
//
// A value is evaluated only for rows whose clause sets it: to others it may be an error.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.Tuple2;

final class Edits {
    private static final String VALUE = "__mdt_v";
    private static final String[] NUMBERS = {"__mdt_m", "__mdt_n"};
    private final List[] cases = {new ArrayList(), new ArrayList()}; // of rows in the table, and of new ones: (condition, number)
    private final List values = new ArrayList();
    private final List users = new ArrayList(); // of each value: the (side, number) of the clauses that set it
    private final List clauses = new ArrayList(); // as values for JSON
    private final Map keys; // column that names a row -> its expression, where new rows may have the same; else empty

    Edits(Map keys) {
        this.keys = keys;
    }

    /** Adds a clause. side: 0 for rows in the table, 1 for new ones; condition: of rows of the frame that edits are made of. */
    void add(int side, Expression condition, String action, Map assignments) {
        int number = cases[side].size() + 1;
        cases[side].add(new Tuple2(condition, number(number)));
        Map columns = new LinkedHashMap();
        for (Iterator i = assignments.keySet().iterator(); i.hasNext(); ) {
            String name = (String) i.next();
            columns.put(name, column(name, (Expression) assignments.get(name), side, number));
        }
        clauses.add(Arrays.asList(new Object[] {Integer.valueOf(side), action, Integer.valueOf(number), columns}));
    }

    /** Returns the column of the edits from which a column of the table gets its value. */
    private String column(String name, Expression wanted, int side, int number) {
        Expression key = (Expression) keys.get(name);
        if (key != null && key.semanticEquals(wanted)) {
            return name;
        }
        int value = value(wanted);
        ((List) users.get(value)).add(new int[] {side, number});
        return VALUE + value;
    }

    private int value(Expression wanted) {
        for (int i = 0; i < values.size(); i++) {
            if (wanted.deterministic() && ((Expression) values.get(i)).semanticEquals(wanted)) {
                return i;
            }
        }
        values.add(wanted);
        users.add(new ArrayList());
        return values.size() - 1;
    }

    String clauses() {
        return Json.text(clauses);
    }

    /** Returns the plan of the edits. rows: what conditions and values are about; on: names and columns that name a row; kept: which rows without a clause count, null: none. */
    LogicalPlan of(LogicalPlan rows, List names, List on, Expression kept) {
        Alias[] numbers = {
            alias(number(0), NUMBERS[0], cases[0]), alias(number(0), NUMBERS[1], cases[1])
        };
        List columns = new ArrayList(Scala.list(rows.output()));
        columns.add(numbers[0]);
        columns.add(numbers[1]);
        Attribute[] said = {numbers[0].toAttribute(), numbers[1].toAttribute()};
        Expression counts = new Or(new Not(is(said[0], 0)), new Not(is(said[1], 0)));
        LogicalPlan numbered = new Filter(kept == null ? counts : new Or(counts, kept), new Project(Scala.seq(columns), rows));
        List found = new ArrayList();
        for (int i = 0; i < names.size(); i++) {
            found.add(named((Expression) on.get(i), (String) names.get(i)));
        }
        found.add(said[0]);
        found.add(said[1]);
        for (int i = 0; i < values.size(); i++) {
            found.add(named(whereUsed((Expression) values.get(i), (List) users.get(i), said), VALUE + i));
        }
        return new Project(Scala.seq(found), numbered);
    }

    private static Expression whereUsed(Expression value, List users, Attribute[] said) {
        if (value instanceof Attribute || value instanceof Literal) {
            return value;
        }
        Expression isUsed = null;
        for (Iterator i = users.iterator(); i.hasNext(); ) {
            int[] clause = (int[]) i.next();
            Expression one = is(said[clause[0]], clause[1]);
            isUsed = isUsed == null ? one : new Or(isUsed, one);
        }
        return new If(isUsed, value, Literal$.MODULE$.create(null, value.dataType()));
    }

    private static Alias alias(Literal otherwise, String name, List cases) {
        return named(cases.isEmpty() ? otherwise : new CaseWhen(Scala.seq(cases), Option.apply(otherwise)), name);
    }

    static Alias named(Expression value, String name) {
        return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), Scala.seq(new Object[0]), Option.empty(),
                Scala.seq(new Object[0]));
    }

    private static Expression is(Expression said, int number) {
        return new EqualTo(said, number(number));
    }

    private static Literal number(int value) {
        return new Literal(Integer.valueOf(value), DataTypes.IntegerType);
    }
}

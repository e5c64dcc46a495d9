// A frame of edits, the source of t.merge in Python. Its columns:
//
//     the columns that identify a row of the table (null for new rows)
//     __mdt_m    number of the clause for a row in the table, 0 for none
//     __mdt_n    number of the clause for a new row
//     __mdt_v0 … values that clauses set; null if the clause of the row does not use them
//
// A value is evaluated only for rows whose clause sets it, because it may be an error for other rows.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
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
    private final List[] cases = {new ArrayList(), new ArrayList()}; // (condition, number) for rows in the table, and for new rows
    private final List values = new ArrayList();
    private final List users = new ArrayList(); // for each value: the (side, number) of the clauses that set it
    private final List clauses = new ArrayList(); // as values for JSON
    private final Map keys; // key column -> its expression for new rows with the same keys; else empty

    Edits(Map keys) {
        this.keys = keys;
    }

    /** Adds a clause. side: 0 for rows in the table, 1 for new rows; condition: on the input of the edits. */
    void add(int side, Expression condition, String action, Map assignments) {
        int number = cases[side].size() + 1;
        cases[side].add(new Tuple2(condition, number(number)));
        Map columns = new LinkedHashMap();
        for (Object item : assignments.keySet()) {
            String name = (String) item;
            columns.put(name, column(name, (Expression) assignments.get(name), side, number));
        }
        clauses.add(Arrays.asList(side, action, number, columns));
    }

    /** Returns the column of the edits with the new value of a table column. */
    private String column(String name, Expression expression, int side, int number) {
        Expression key = (Expression) keys.get(name);
        if (key != null && key.semanticEquals(expression)) {
            return name;
        }
        int value = value(expression);
        ((List) users.get(value)).add(new int[] {side, number});
        return VALUE + value;
    }

    private int value(Expression expression) {
        for (int i = 0; i < values.size(); i++) {
            if (expression.deterministic() && ((Expression) values.get(i)).semanticEquals(expression)) {
                return i;
            }
        }
        values.add(expression);
        users.add(new ArrayList());
        return values.size() - 1;
    }

    String clauses() {
        return Json.text(clauses);
    }

    /**
     * Returns the plan of the edits. rows: input of conditions and values; on: names and columns that identify a row;
     * keepCondition: selects rows without a clause that count, or null for none.
     */
    LogicalPlan of(LogicalPlan rows, List names, List on, Expression keepCondition) {
        Alias[] numbers = {
            alias(number(0), NUMBERS[0], cases[0]), alias(number(0), NUMBERS[1], cases[1])
        };
        List columns = new ArrayList(Scala.list(rows.output()));
        columns.add(numbers[0]);
        columns.add(numbers[1]);
        Attribute[] clauseNumbers = {numbers[0].toAttribute(), numbers[1].toAttribute()};
        Expression counts = new Or(new Not(is(clauseNumbers[0], 0)), new Not(is(clauseNumbers[1], 0)));
        LogicalPlan numbered = new Filter(keepCondition == null ? counts : new Or(counts, keepCondition), new Project(Scala.seq(columns), rows));
        List output = new ArrayList();
        for (int i = 0; i < names.size(); i++) {
            output.add(named((Expression) on.get(i), (String) names.get(i)));
        }
        output.add(clauseNumbers[0]);
        output.add(clauseNumbers[1]);
        for (int i = 0; i < values.size(); i++) {
            output.add(named(whereUsed((Expression) values.get(i), (List) users.get(i), clauseNumbers), VALUE + i));
        }
        return new Project(Scala.seq(output), numbered);
    }

    private static Expression whereUsed(Expression value, List users, Attribute[] clauseNumbers) {
        if (value instanceof Attribute || value instanceof Literal) {
            return value;
        }
        Expression isUsed = null;
        for (Object item : users) {
            int[] clause = (int[]) item;
            Expression isClause = is(clauseNumbers[clause[0]], clause[1]);
            isUsed = isUsed == null ? isClause : new Or(isUsed, isClause);
        }
        return new If(isUsed, value, Literal$.MODULE$.create(null, value.dataType()));
    }

    private static Alias alias(Literal otherwise, String name, List cases) {
        return named(cases.isEmpty() ? otherwise : new CaseWhen(Scala.seq(cases), Option.apply(otherwise)), name);
    }

    static Alias named(Expression value, String name) {
        return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), Scala.seq(), Option.empty(), Scala.seq());
    }

    private static Expression is(Expression attribute, int number) {
        return new EqualTo(attribute, number(number));
    }

    private static Literal number(int value) {
        return new Literal(value, DataTypes.IntegerType);
    }
}

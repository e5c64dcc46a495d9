// MERGE INTO t USING source ON … with its clauses. The edits are based on
//
//     the source alone       if ON identifies each row by its key and clauses use only the source; the key index finds the rows
//     a join with the table  otherwise, with source and table at the same state; for a small source only with rows that may match (FewRows.java)
package mdt.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.FullOuter$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.classic.Dataset;
import scala.Option;

public final class MergeStatement extends Statement {
    private static final String[] COUNTS = {"num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"};
    private static final int MATCHED = 0;
    private static final int NEW = 1;
    private static final int ALONE = 2; // in the table but not in the source
    private final LogicalPlan source;
    private final Expression condition;
    private final boolean readsTable; // in the source or in subqueries
    private final List[] actions = new List[3];
    private final List[] assignments = new List[3]; // a map per action; empty for a delete
    private final List equal = new ArrayList(); // of EqualTo, with a table column on the left and a source expression on the right
    private final List otherConditions = new ArrayList(); // the other parts of the condition
    private List on;
    private List partitionBy;
    private boolean byKey;
    private boolean isNamed; // true if ON only identifies rows by source expressions, so that source rows without a match have these keys
    private Edits edits;
    private Alias inTable;
    private Alias inSource;
    private LogicalPlan fewRows; // the source's rows for the current edits, if they are few

    MergeStatement(Target target, MergeIntoTable statement) {
        super(target, "MERGE", COUNTS);
        if (statement.withSchemaEvolution()) {
            throw new Unsupported("MERGE WITH SCHEMA EVOLUTION is not supported for mdt tables; use ALTER TABLE … ADD COLUMNS first");
        }
        source = statement.sourceTable();
        condition = target.named(statement.mergeCondition());
        readsTable = target.reads(statement) > 1; // once as the target
        read(MATCHED, Scala.list(statement.matchedActions()));
        read(NEW, Scala.list(statement.notMatchedActions()));
        read(ALONE, Scala.list(statement.notMatchedBySourceActions()));
        for (Object part : CatalystJson.operands(condition, And.class)) {
            EqualTo pair = equality(part);
            (pair == null ? otherConditions : equal).add(pair == null ? part : pair);
        }
    }

    private void read(int kind, List mergeActions) {
        actions[kind] = mergeActions;
        assignments[kind] = new ArrayList();
        for (Object action : mergeActions) {
            Map values = new LinkedHashMap();
            if (action instanceof UpdateAction) {
                values = Assignments.of(((UpdateAction) action).assignments(), target);
            } else if (action instanceof InsertAction) {
                values = Assignments.of(((InsertAction) action).assignments(), target);
            }
            assignments[kind].add(values);
        }
    }

    /** Returns the equality of a table column and a source expression, in this order, or null for other conditions. */
    private EqualTo equality(Object part) {
        if (!(part instanceof EqualTo)) {
            return null;
        }
        EqualTo pair = (EqualTo) part;
        if (isColumn(pair.left()) && isOfSource(pair.right())) {
            return pair;
        }
        return isColumn(pair.right()) && isOfSource(pair.left()) ? new EqualTo(pair.right(), pair.left()) : null;
    }

    /** Returns the name of the table column of an equality. */
    private static String name(Object pair) {
        return ((Attribute) ((EqualTo) pair).left()).name();
    }

    private boolean isColumn(Expression expression) {
        return expression instanceof Attribute && target.plan.outputSet().contains((Attribute) expression);
    }

    private boolean isOfSource(Expression expression) {
        return expression.references().subsetOf(source.outputSet());
    }

    public String plain() {
        return null;
    }

    public String byKey(List key, List partition) {
        partitionBy = partition;
        List keyNames = new ArrayList();
        for (Object pair : equal) {
            String name = name(pair);
            if (keyNames.contains(name) || !key.contains(name) && !partition.contains(name)) {
                return null;
            }
            keyNames.add(name);
        }
        boolean isEnough = !readsTable && keyNames.containsAll(key) && actions[ALONE].isEmpty() && areOfSource(otherConditions)
                && areOfSource(MATCHED) && areOfSource(NEW);
        return isEnough ? Json.text(keyNames) : null;
    }

    private boolean areOfSource(int kind) {
        List read = new ArrayList();
        for (int i = 0; i < actions[kind].size(); i++) {
            read.add(condition(kind, i));
            Map values = new LinkedHashMap((Map) assignments[kind].get(i));
            for (Object pair : equal) { // values that the table already has need not be read
                Expression value = (Expression) values.get(name(pair));
                if (value != null && value.semanticEquals(((EqualTo) pair).left())) {
                    values.remove(name(pair));
                }
            }
            read.addAll(values.values());
        }
        return areOfSource(read);
    }

    private boolean areOfSource(List expressions) {
        for (Object expression : expressions) {
            if (!isOfSource((Expression) expression)) {
                return false;
            }
        }
        return true;
    }

    private Expression condition(int kind, int number) {
        Option condition = ((MergeAction) actions[kind].get(number)).condition();
        return condition.isDefined() ? (Expression) condition.get() : Literal$.MODULE$.TrueLiteral();
    }

    public void prepare(List on, List fixed, boolean byKey) {
        this.on = on;
        this.byKey = byKey;
        Map keys = new LinkedHashMap();
        for (Object pair : equal) {
            keys.put(name(pair), ((EqualTo) pair).right());
        }
        isNamed = otherConditions.isEmpty() && equal.size() == on.size() && keys.keySet().containsAll(on);
        for (int i = 0; !byKey && isNamed && i < on.size(); i++) { // nulls are not equal here, but are equal in partition columns when edits are applied
            isNamed = !partitionBy.contains(on.get(i)) || !((Expression) keys.get(on.get(i))).nullable();
        }
        edits = new Edits(isNamed ? keys : new LinkedHashMap());
        inTable = Edits.named(Literal$.MODULE$.TrueLiteral(), "__mdt_in_table");
        inSource = Edits.named(Literal$.MODULE$.TrueLiteral(), "__mdt_in_source");
        Expression table = inTable.toAttribute();
        Expression sourceMark = inSource.toAttribute();
        add(MATCHED, new And(new IsNotNull(table), new IsNotNull(sourceMark)), fixed);
        add(ALONE, new IsNull(sourceMark), fixed);
        add(NEW, new IsNull(table), fixed);
    }

    private void add(int kind, Expression rows, List fixed) {
        for (int i = 0; i < actions[kind].size(); i++) {
            Map values = (Map) assignments[kind].get(i);
            Object action = actions[kind].get(i);
            boolean isUpdate = action instanceof UpdateAction;
            if (isUpdate) {
                values = Assignments.settable(values, target, fixed, kind == MATCHED ? equal : new ArrayList());
            }
            Expression holds = condition(kind, i);
            edits.add(kind == NEW ? 1 : 0, byKey ? holds : new And(rows, holds),
                    action instanceof InsertAction ? "insert" : isUpdate ? "update" : "delete", values);
        }
    }

    public String clauses() {
        return edits.clauses();
    }

    public Dataset rows(long seq) {
        return Dataset.ofRows(target.session(), byKey ? ofSource() : target.at(seq, joined(matching(target.plan))));
    }

    /** Returns the rows of the table that the source may match, or all rows. */
    private LogicalPlan matching(LogicalPlan table) {
        fewRows = null; // repeated edits use the source's current rows
        if (!actions[ALONE].isEmpty() || equal.isEmpty() || readsTable) {
            return table;
        }
        fewRows = FewRows.of(target.session(), source);
        if (fewRows == null) {
            return table;
        }
        LogicalPlan filtered = table;
        for (Object item : equal) {
            EqualTo pair = (EqualTo) item;
            Expression among = FewRows.among(target.session(), (Attribute) pair.left(), pair.right(), fewRows);
            filtered = among == null ? filtered : new Filter(among, filtered);
        }
        return filtered;
    }

    /**
     * Returns edits that identify rows by the expressions for their keys, or by null, which matches nothing, if the
     * rest of the condition is false.
     */
    private LogicalPlan ofSource() {
        Expression holds = null;
        for (Object condition : otherConditions) {
            holds = holds == null ? (Expression) condition : new And(holds, (Expression) condition);
        }
        List keys = new ArrayList();
        for (Object column : on) {
            Expression value = said((String) column);
            keys.add(holds == null ? value : new If(holds, value, Literal$.MODULE$.create(null, value.dataType())));
        }
        return edits.of(source, on, keys, actions[MATCHED].isEmpty() ? null : Literal$.MODULE$.TrueLiteral());
    }

    /** Returns the source expression for a column in ON. */
    private Expression said(String column) {
        for (Object pair : equal) {
            if (name(pair).equals(column)) {
                return ((EqualTo) pair).right();
            }
        }
        throw new IllegalArgumentException(column);
    }

    /**
     * Returns edits for pairs, for unmatched source rows, and for unmatched table rows, if a clause applies to them.
     */
    private LogicalPlan joined(LogicalPlan table) {
        Object type = actions[ALONE].isEmpty()
                ? (actions[NEW].isEmpty() ? (Object) Inner$.MODULE$ : (Object) RightOuter$.MODULE$)
                : (actions[NEW].isEmpty() ? (Object) LeftOuter$.MODULE$ : (Object) FullOuter$.MODULE$);
        LogicalPlan rows = new Join(with(table, inTable), with(fewRows == null ? source : fewRows, inSource),
                (org.apache.spark.sql.catalyst.plans.JoinType) type, Option.apply(condition), JoinHint$.MODULE$.NONE());
        List keys = new ArrayList();
        for (Object item : on) {
            String name = (String) item;
            keys.add(isNamed ? new Coalesce(Scala.seq(target.column(name), said(name))) : target.column(name));
        }
        // It is an error if several source rows match a row of the table, even if no clause applies.
        Expression pair = new And(new IsNotNull(inTable.toAttribute()), new IsNotNull(inSource.toAttribute()));
        return edits.of(rows, on, keys, actions[MATCHED].isEmpty() ? null : pair);
    }

    private static LogicalPlan with(LogicalPlan rows, Alias mark) {
        List columns = new ArrayList(Scala.list(rows.output()));
        columns.add(mark);
        return new Project(Scala.seq(columns), rows);
    }
}

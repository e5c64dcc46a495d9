// DELETE FROM t WHERE …, and UPDATE t SET … WHERE ….
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

public final class RowStatement extends Statement {
    private static final String[] COUNTS = {"num_affected_rows"};
    private final Expression condition;
    private final Map assignments; // null: the rows are deleted
    private Edits edits;
    private List on;

    RowStatement(Target target, DeleteFromTable statement) {
        super(target, "DELETE", COUNTS);
        condition = target.named(statement.condition());
        assignments = null;
    }

    RowStatement(Target target, UpdateTable statement) {
        super(target, "UPDATE", COUNTS);
        condition = statement.condition().isDefined() ? target.named((Expression) statement.condition().get()) : Literal$.MODULE$.TrueLiteral();
        assignments = Assignments.of(statement.assignments(), target);
    }

    public String plain() {
        LogicalPlan query = new Filter(condition, target.blank());
        if (assignments != null) {
            List values = new ArrayList();
            for (Object item : assignments.entrySet()) {
                Map.Entry each = (Map.Entry) item;
                values.add(Edits.named((Expression) each.getValue(), (String) each.getKey()));
            }
            query = new Project(Scala.seq(values), query);
        }
        query = Dataset.ofRows(target.session(), query).queryExecution().optimizedPlan();
        List constants = new ArrayList();
        List names = new ArrayList();
        if (assignments != null) {
            if (!(query instanceof Project)) {
                return null;
            }
            for (Object expression : Scala.list(((Project) query).projectList())) {
                if (!(expression instanceof Alias)) {
                    return null; // an unchanged column
                }
                names.add(((Alias) expression).name());
                constants.add(((Alias) expression).child());
            }
            query = ((Project) query).child();
        }
        List conditions = new ArrayList();
        if (query instanceof Filter) {
            conditions.add(((Filter) query).condition());
            query = ((Filter) query).child();
        }
        boolean isPlain = query instanceof LogicalRelation && ((LogicalRelation) query).relation() instanceof BlankRelation;
        List plain = Arrays.asList(CatalystJson.list(conditions), names, CatalystJson.list(constants));
        return isPlain ? Json.text(plain) : null;
    }

    public String byKey(List key, List partition) {
        return null;
    }

    public void prepare(List on, List fixed, boolean byKey) {
        this.on = on;
        edits = new Edits(new LinkedHashMap());
        if (assignments == null) {
            edits.add(0, Literal$.MODULE$.TrueLiteral(), "delete", new LinkedHashMap());
            return;
        }
        edits.add(0, Literal$.MODULE$.TrueLiteral(), "update", Assignments.settable(assignments, target, fixed, new ArrayList()));
    }

    public String clauses() {
        return edits.clauses();
    }

    public Dataset rows(long seq) {
        List columns = new ArrayList();
        for (Object column : on) {
            columns.add(target.column((String) column));
        }
        LogicalPlan changing = edits.of(new Filter(condition, target.plan), on, columns, null);
        return Dataset.ofRows(target.session(), target.at(seq, changing));
    }
}

// Puts the union of clean and dirty files in the place of a relation that stands for both, where a query must read dirty
// ones. So late, after Spark's own rules, because some of these fail on a union (correlated subqueries above it), and because
// most queries need none. The clean branch is the scan as it was; the dirty branch is optimized by itself, as a query of its
// own, so that filters and columns find their way through its join.
package mdt.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;

final class UnionExpansion extends Replacement {
    private final Pin pin;

    UnionExpansion(Pin pin) {
        this.pin = pin;
    }

    Object of(Object node) {
        RelationPattern scan = RelationPattern.of(node);
        if (scan == null) {
            return null;
        }
        LogicalPlan clean = (LogicalPlan) ((LogicalPlan) node).transformUp(new PinReplacement(pin));
        if (!EmptyReplacement.mayHaveFiles(scan.index.source.rest.files, pin, scan.filter)) {
            return clean;
        }
        if (scan.project == null) {
            return union(scan, scan.relation.output(), clean);
        }
        if (scan.picksColumns() && (scan.filter == null || isPlain(scan.filter.condition()))) {
            return union(scan, scan.project.projectList(), clean);
        }
        // What the project computes is computed once, above the union.
        scala.collection.immutable.Seq columns = scan.columns();
        LogicalPlan picked = new Project(columns, ((Project) clean).child());
        return new Project(scan.project.projectList(), union(scan, columns, picked));
    }

    /** columns: of the relation, and all that its filter tests among them unless that is plain. */
    private LogicalPlan union(RelationPattern scan, scala.collection.immutable.Seq columns, LogicalPlan clean) {
        LogicalPlan rows = scan.index.source.rest.live(scan.relation, pin);
        Map names = sameColumns(scan.relation, rows);
        List inside = new ArrayList(); // conditions that the dirty branch is optimized with
        List after = new ArrayList();
        for (Iterator i = scan.conditions().iterator(); i.hasNext(); ) {
            Expression each = (Expression) i.next();
            (isPlain(each) ? inside : after).add(((TreeNode) each).transform(new Renaming(names)));
        }
        List outputs = new ArrayList();
        for (Iterator i = Scala.list(columns).iterator(); i.hasNext(); ) {
            outputs.add(names.get(((Attribute) i.next()).exprId()));
        }
        LogicalPlan dirty = new Project(Scala.seq(outputs), filtered(inside, rows));
        SparkSession session = (SparkSession) ((HadoopFsRelation) scan.relation.relation()).sparkSession();
        dirty = (LogicalPlan) session.sessionState().optimizer().execute(dirty);
        return new Union(Scala.seq(new Object[] {clean, filtered(after, dirty)}), false, false);
    }

    /** Returns which column of the second plan stands for each of the first: ExprId -> Attribute. */
    private static Map sameColumns(LogicalPlan of, LogicalPlan in) {
        Map names = new HashMap();
        Iterator others = Scala.list(in.output()).iterator();
        for (Iterator i = Scala.list(of.output()).iterator(); i.hasNext(); ) {
            names.put(((Attribute) i.next()).exprId(), others.next());
        }
        return names;
    }

    /** Returns whether a condition may be tested below the dirty branch's join, and optimized a second time. */
    private static boolean isPlain(Expression condition) {
        return condition.deterministic() && !SubqueryExpression$.MODULE$.hasSubquery(condition);
    }

    private static LogicalPlan filtered(List conditions, LogicalPlan plan) {
        LogicalPlan found = plan;
        for (Iterator i = conditions.iterator(); i.hasNext(); ) {
            found = new Filter((Expression) i.next(), found);
        }
        return found;
    }
}

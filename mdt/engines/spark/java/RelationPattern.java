// The shape that every scan has once Spark's own rules have run: a relation, a Filter above it or none, and a Project above
// that or none.
package mdt.spark;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

final class RelationPattern {
    final Project project; // null: all columns
    final Filter filter; // null: all rows
    final LogicalRelation relation;
    final MdtFileIndex index;

    private RelationPattern(Project project, Filter filter, LogicalRelation relation, MdtFileIndex index) {
        this.project = project;
        this.filter = filter;
        this.relation = relation;
        this.index = index;
    }

    /** Returns the parts of a scan of ours that has no pin, stands for clean and dirty files, and begins at this node; or null. */
    static RelationPattern of(Object node) {
        Project project = node instanceof Project ? (Project) node : null;
        Object below = project == null ? node : project.child();
        Filter filter = below instanceof Filter ? (Filter) below : null;
        Object leaf = filter == null ? below : filter.child();
        MdtFileIndex index = MdtFileIndex.of(leaf);
        if (index == null || index.pin != null || index.source.rest == null) {
            return null;
        }
        return new RelationPattern(project, filter, (LogicalRelation) leaf, index);
    }

    /** Returns the columns of the relation that the filter and the project use, all of them without a project. */
    scala.collection.immutable.Seq columns() {
        if (project == null) {
            return relation.output();
        }
        List used = new ArrayList();
        for (Iterator i = Scala.list(relation.output()).iterator(); i.hasNext(); ) {
            Attribute each = (Attribute) i.next();
            if (project.references().contains(each) || (filter != null && filter.references().contains(each))) {
                used.add(each);
            }
        }
        return Scala.seq(used);
    }

    /** Returns the conditions of the filter, all of which must hold. */
    List conditions() {
        if (filter == null) {
            return new ArrayList();
        }
        return Scala.list(filter.splitConjunctivePredicates(filter.condition()));
    }

    /** Returns whether the project picks columns and computes nothing. */
    boolean picksColumns() {
        for (Iterator i = Scala.list(project.projectList()).iterator(); i.hasNext(); ) {
            if (!(i.next() instanceof Attribute)) {
                return false;
            }
        }
        return true;
    }
}

// Puts an empty relation in the place of a pinned one, together with the filter above it, that has no file to read. Spark's
// rules can then drop whole branches of a query, which saves the jobs for them.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;

final class EmptyReplacement extends Replacement {
    boolean found = false; // whether anything was replaced
    private final Set known = new HashSet(); // indexes with files: without a filter one need not be asked again

    Object of(Object node) {
        Filter filter = node instanceof Filter ? (Filter) node : null;
        MdtFileIndex index = MdtFileIndex.of(filter == null ? node : filter.child());
        if (index == null || (filter == null && known.contains(index))) {
            return null;
        }
        if (mayHaveFiles(index.source, index.pin, filter)) {
            known.add(index);
            return null;
        }
        found = true;
        return PropagateEmptyRelation$.MODULE$.empty((LogicalPlan) node);
    }

    /** Asks whether a source has files for a filter, null: for none. */
    static boolean mayHaveFiles(FileSource source, Pin pin, Filter filter) {
        try {
            return source.ask(pin, pin.key, normalized(filter), MdtFileIndex.ALL).count() > 0;
        } catch (py4j.Py4JException failure) {
            return true; // it will say so again when the files are to be read
        }
    }

    /**
     * Returns the conditions of a filter, joined by And there, with the relation's own names of columns: as Spark will hand
     * them to listFiles, most of the time, so that the answer is remembered until then. Null without a filter.
     */
    static scala.collection.immutable.Seq normalized(Filter filter) {
        if (filter == null) {
            return null;
        }
        return DataSourceStrategy$.MODULE$.normalizeExprs(
                filter.splitConjunctivePredicates(filter.condition()), filter.child().output());
    }
}

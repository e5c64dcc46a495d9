// Replaces a pinned relation without files, and the filter above it, by an empty relation. Spark's rules can then
// remove whole branches of a query, which saves their jobs.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;

final class EmptyReplacement extends Replacement {
    boolean hasReplaced = false; // true if a relation was replaced
    private final Set withFiles = new HashSet(); // indexes with files, which need not be asked again without a filter

    Object of(Object node) {
        Filter filter = node instanceof Filter ? (Filter) node : null;
        MdtFileIndex index = MdtFileIndex.of(filter == null ? node : filter.child());
        if (index == null || (filter == null && withFiles.contains(index))) {
            return null;
        }
        if (mayHaveFiles(index.source, index.pin, filter)) {
            withFiles.add(index);
            return null;
        }
        hasReplaced = true;
        return PropagateEmptyRelation$.MODULE$.empty((LogicalPlan) node);
    }

    /** Returns true if a source may have files for a filter, or null for no filter. */
    static boolean mayHaveFiles(FileSource source, Pin pin, Filter filter) {
        try {
            return source.ask(pin, pin.key, normalized(filter), MdtFileIndex.ALL).count() > 0;
        } catch (py4j.Py4JException failure) {
            return true; // the error will recur when the files are read
        }
    }

    /**
     * Returns the conditions of a filter, split at And, with the relation's own column names. Spark usually passes the
     * same ones to listFiles, so that the answer is found in the cache. Null without a filter.
     */
    static scala.collection.immutable.Seq normalized(Filter filter) {
        if (filter == null) {
            return null;
        }
        return DataSourceStrategy$.MODULE$.normalizeExprs(
                filter.splitConjunctivePredicates(filter.condition()), filter.child().output());
    }
}

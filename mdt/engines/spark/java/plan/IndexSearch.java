// Collects the mdt relations in a plan: their pins, with null for a relation without a pin, and the root paths of their
// tables.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

final class IndexSearch {
    final Set pins = new HashSet();
    final Set roots = new HashSet();
    private final Set features = new HashSet();

    /** Searches a plan, including its subqueries. */
    IndexSearch(LogicalPlan plan) {
        for (Object node : Nodes.withSubqueries(plan)) {
            MdtFileIndex index = MdtFileIndex.of(node);
            if (index != null) {
                pins.add(index.pin);
                roots.add(index.source.root);
                features.addAll(index.source.features);
            }
        }
    }

    /** Returns true if a feature is enabled for one of them. */
    boolean has(String feature) {
        return features.contains(feature);
    }
}

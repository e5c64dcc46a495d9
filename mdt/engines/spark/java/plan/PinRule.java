// The rule of Spark's optimizer that makes a query over mdt tables one consistent read. Catalyst, Spark's planner,
// turns a query into a tree, the logical plan: Project (columns), Filter, Join, Union … above leaves, which are
// relations. It is first analyzed (names become columns), then optimized by rules, each a function from a plan to an
// equal but cheaper plan. It then becomes a physical plan, whose scans call MdtFileIndex.listFiles. Rules that users
// add to a session (experimental.extraOptimizations) run after Spark's own, when filters and columns have been pushed
// down to the relations.
//
// This rule:
//
// 1. Gives all mdt relations one pin, so that they are read at one version of each table.
// 2. Removes relations that have no file to read, and then runs Spark's rule for empty relations again.
//
// Spark calls apply with the whole query, with plans of subqueries, and again with the returned plan. If no relation
// lacks a pin, the same object must be returned, so that the optimizer stops.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

public class PinRule extends Rule {
    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery) {
            return plan; // optimized again as a part of its query, whose version it must share
        }
        LogicalPlan query = (LogicalPlan) plan;
        IndexSearch search = new IndexSearch(query);
        boolean hasNew = search.pins.remove(null);
        return hasNew ? pinned(query, pin(search)) : plan;
    }

    /** Returns the pin for relations without one: the pin of the others if they all have the same. */
    private static Pin pin(IndexSearch search) {
        // Relations with a pin may have lost their empty companions at its version, so they keep it.
        return search.pins.size() == 1 ? (Pin) search.pins.iterator().next() : new Pin();
    }

    private static LogicalPlan pinned(LogicalPlan query, final Pin pin) {
        LogicalPlan pinned = (LogicalPlan) query.transformUpWithSubqueries(new Replacement() {
            Object of(Object node) {
                MdtFileIndex index = MdtFileIndex.of(node);
                return index == null || index.pin != null ? null
                        : MeasuredRelation.with((LogicalRelation) node, index.pinned(pin));
            }
        });
        EmptyReplacement empty = new EmptyReplacement();
        LogicalPlan withoutEmpty = (LogicalPlan) pinned.transformDownWithSubqueries(empty);
        return empty.hasReplaced ? SubqueryPropagation.propagated(withoutEmpty) : pinned;
    }
}

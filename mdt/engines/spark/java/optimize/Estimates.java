// Estimates of Python's planner for all relations of a plan, requested in one call, because a call takes a millisecond
// whatever its size. Identical questions, as for a table joined with itself, are asked once.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SQLConf;

final class Estimates {
    final boolean costs; // true if Spark's cost model is on
    private final References references;
    private final SQLConf conf;
    private final List questions = new ArrayList(); // in the form of FileSource.estimates
    private final Map questionIndexes = new IdentityHashMap(); // node -> the index of its question
    private final Set below = Collections.newSetFromMap(new IdentityHashMap()); // relations below a filter that was visited before
    private final JsonNode answer;

    /** references: the columns that the plan refers to. */
    Estimates(LogicalPlan plan, References references, SQLConf conf) {
        this.references = references;
        this.conf = conf;
        costs = conf.cboEnabled() || conf.planStatsEnabled();
        for (Object node : Nodes.of(plan)) {
            collect(node);
        }
        answer = questions.isEmpty() ? null : FileSource.estimates(questions);
    }

    /** Returns the relation directly below a filter, or the node itself, if its estimates are needed, else null. */
    static LogicalRelation relation(Object node) {
        Object leaf = node instanceof Filter ? ((Filter) node).child() : node;
        MdtFileIndex index = MdtFileIndex.of(leaf);
        return index == null || leaf instanceof MeasuredRelation || !index.does(MdtFileIndex.STATISTICS) ? null : (LogicalRelation) leaf;
    }

    private void collect(Object node) {
        LogicalRelation leaf = relation(node);
        if (leaf == null || below.contains(leaf)) {
            return;
        }
        if (node instanceof Filter) {
            below.add(leaf);
        }
        List question = question(leaf, node);
        if (!questions.contains(question)) {
            questions.add(question);
        }
        questionIndexes.put(node, questions.indexOf(question));
    }

    /** Returns the estimates for the relation of a node of the plan, or null. */
    JsonNode of(Object node) {
        Integer place = (Integer) questionIndexes.get(node);
        JsonNode estimate = place == null || answer == null ? null : (JsonNode) answer.get(place.intValue());
        return estimate == null || estimate.isNull() ? null : estimate;
    }

    private List question(LogicalRelation leaf, Object node) {
        FileSource source = MdtFileIndex.of(leaf).source;
        List keys = new ArrayList();
        for (Object item : Scala.list(leaf.output())) {
            AttributeReference column = (AttributeReference) item;
            if (references.keys.contains(column) && MdtFileIndex.of(leaf).does(MdtFileIndex.JOINS)) {
                keys.add(column.name());
            }
        }
        List names = new ArrayList();
        for (Object column : columns(leaf)) {
            names.add(((AttributeReference) column).name());
        }
        return Arrays.asList(source, "\"estimate\":" + Json.text(names) + ",\"keys\":" + Json.text(keys) + ",\"histograms\":"
                + conf.histogramEnabled() + ",\"filters\":"
                + FileSource.json(EmptyReplacement.normalized(node instanceof Filter ? (Filter) node : null)));
    }

    /** Returns the columns of a relation that need statistics. None if Spark's cost model is off. */
    List columns(LogicalRelation leaf) {
        List columns = new ArrayList();
        for (Object item : Scala.list(leaf.output())) {
            AttributeReference column = (AttributeReference) item;
            if (costs && references.all.contains(column) && Measures.has(column.dataType())) {
                columns.add(column);
            }
        }
        return columns;
    }
}

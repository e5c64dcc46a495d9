// A relation over the plan of any frame, for results that are not just files: incremental reads, changes. Columns and
// conditions from Spark become part of the plan, so that they prune files.
package mdt.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.sources.CatalystScan;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

final class FrameRelation extends BlankRelation implements CatalystScan, InsertableRelation {
    private final scala.collection.immutable.Map options;
    private final LogicalPlan plan;
    private final Map columns = new HashMap(); // name -> attribute of the plan

    /** schema: of the plan, perhaps with comments. */
    FrameRelation(SparkSession session, scala.collection.immutable.Map options, LogicalPlan plan, StructType schema) {
        super(session, schema);
        this.options = options;
        this.plan = plan;
        for (Object column : Scala.list(plan.output())) {
            columns.put(((Attribute) column).name(), column);
        }
    }

    public RDD buildScan(Seq required, Seq filters) {
        LogicalPlan filtered = plan;
        for (Object item : Scala.list(filters)) {
            Expression condition = (Expression) item;
            if (condition.deterministic() && !SubqueryExpression$.MODULE$.hasSubquery(condition)) {
                filtered = new Filter(ours(condition), filtered);
            }
        }
        List requiredColumns = new ArrayList();
        for (Object column : Scala.list(required)) {
            requiredColumns.add(columns.get(((Attribute) column).name()));
        }
        LogicalPlan rows = new Project(Scala.seq(requiredColumns), filtered);
        return Dataset.ofRows((org.apache.spark.sql.classic.SparkSession) session, rows).queryExecution().toRdd();
    }

    /** Returns a condition on this relation as a condition on the plan. */
    private Expression ours(Expression condition) {
        return (Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                return node instanceof Attribute ? columns.get(((Attribute) node).name()) : null;
            }
        });
    }

    public void insert(org.apache.spark.sql.Dataset rows, boolean overwrite) {
        Python.write(session, options, overwrite ? "overwrite" : "into", rows);
    }
}

// A SQL statement on an mdt table, in place of Spark's own plan, which cannot be executed. Spark runs it once, when
// spark.sql is called. EXPLAIN does not run it.
package mdt.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

// Derived from a Spark command without children, because Java cannot use Scala's traits directly.
public abstract class SqlCommand extends ExternalCommandExecutor {
    private final Seq output;

    /** kind: the name in plans; answer: the columns of the result. */
    SqlCommand(String kind, StructType answer) {
        super(null, kind, Scala.none());
        this.output = DataTypeUtils.toAttributes(answer);
    }

    /** Returns the columns of a result with one row of counts. */
    static StructType counts(String[] names) {
        StructType schema = new StructType();
        for (String name : names) {
            schema = schema.add(name, DataTypes.LongType, false);
        }
        return schema;
    }

    /** Returns the row of counts in an answer of Python. */
    static List counted(Object answer) {
        List counts = new ArrayList();
        for (String text : Python.texts(answer)) {
            counts.add(Long.valueOf(text));
        }
        return Collections.singletonList(RowFactory.create(counts.toArray()));
    }

    /** Executes the statement, once, and returns the rows of the result. */
    abstract List carriedOut(org.apache.spark.sql.classic.SparkSession session);

    public Seq run(SparkSession session) {
        return Scala.seq(carriedOut((org.apache.spark.sql.classic.SparkSession) session));
    }

    public Seq output() {
        return output;
    }

    /** Spark copies plans before changing them. This one is immutable. */
    public LogicalPlan clone() {
        return this;
    }

    public TreeNode makeCopy(Object[] fields) {
        return this;
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public int hashCode() {
        return System.identityHashCode(this);
    }
}

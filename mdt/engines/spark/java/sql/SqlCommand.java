// A statement of SQL on a table of ours in the place of Spark's own, which knows no way to carry it out. Spark runs it once, when
// spark.sql is called; EXPLAIN does not run it.
package mdt.spark;

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

// Of Spark's commands without children this one is derived from, since Java cannot take Scala's traits as they are.
public abstract class SqlCommand extends ExternalCommandExecutor {
    private final Seq output;

    /** kind: what it is called in plans; answer: the columns of its answer. */
    SqlCommand(String kind, StructType answer) {
        super(null, kind, Scala.none());
        this.output = DataTypeUtils.toAttributes(answer);
    }

    /** Returns the columns of an answer that is one row of counts. */
    static StructType counts(String[] names) {
        StructType found = new StructType();
        for (int i = 0; i < names.length; i++) {
            found = found.add(names[i], DataTypes.LongType, false);
        }
        return found;
    }

    /** Returns the row of counts that Python has answered with. */
    static List counted(Object answer) {
        String[] texts = Python.texts(answer);
        Object[] counts = new Object[texts.length];
        for (int i = 0; i < texts.length; i++) {
            counts[i] = Long.valueOf(texts[i]);
        }
        return Collections.singletonList(RowFactory.create(counts));
    }

    /** Carries it out, once, and returns the rows of its answer. */
    abstract List carriedOut(org.apache.spark.sql.classic.SparkSession session);

    public Seq run(SparkSession session) {
        return Scala.seq(carriedOut((org.apache.spark.sql.classic.SparkSession) session));
    }

    public Seq output() {
        return output;
    }

    /** Spark copies plans before it changes them; nothing of this one changes. */
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

// A statement of SQL on a table of ours in the place of Spark's own, which knows no way to carry it out. Spark runs it once, when
// spark.sql is called; EXPLAIN does not run it.
package mdt.spark;

import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.types.StructField;

// Of Spark's commands without children this one is derived from, since Java cannot take Scala's traits as they are.
public class SqlCommand extends ExternalCommandExecutor {
    private final SqlAction action;
    private final scala.collection.immutable.Seq output;

    SqlCommand(SqlAction action) {
        super(null, action.kind(), Scala.none());
        this.action = action;
        StructField[] fields = action.answer().fields();
        Object[] columns = new Object[fields.length];
        for (int i = 0; i < fields.length; i++) {
            columns[i] = new AttributeReference(fields[i].name(), fields[i].dataType(), fields[i].nullable(),
                    fields[i].metadata(), NamedExpression$.MODULE$.newExprId(), Scala.seq(new Object[0]));
        }
        this.output = Scala.seq(columns);
    }

    public scala.collection.immutable.Seq output() {
        return output;
    }

    public scala.collection.immutable.Seq innerChildren() {
        return Scala.seq(action.plans());
    }

    public scala.collection.immutable.Seq run(SparkSession session) {
        Object[][] values = action.run(session);
        Object[] rows = new Object[values.length];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = RowFactory.create(values[i]);
        }
        return Scala.seq(rows);
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

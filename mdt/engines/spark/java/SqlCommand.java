// A statement of SQL on a table of ours in the place of Spark's own, which knows no way to carry it out. Spark runs it once, when
// spark.sql is called, and its counts are the rows of the answer; EXPLAIN does not run it.
package mdt.spark;

import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;

// Of Spark's commands without children this one is derived from, since Java cannot take Scala's traits as they are.
public class SqlCommand extends ExternalCommandExecutor {
    private final Statement statement;
    private final scala.collection.immutable.Seq output;

    SqlCommand(Statement statement) {
        super(null, statement.kind(), Scala.none());
        this.statement = statement;
        String[] names = statement.counts();
        Object[] columns = new Object[names.length];
        for (int i = 0; i < names.length; i++) {
            columns[i] = new AttributeReference(names[i], DataTypes.LongType, false, Metadata.empty(),
                    NamedExpression$.MODULE$.newExprId(), Scala.seq(new Object[0]));
        }
        this.output = Scala.seq(columns);
    }

    public scala.collection.immutable.Seq output() {
        return output;
    }

    public scala.collection.immutable.Seq run(SparkSession session) {
        Object[] counts = Python.change(session, statement.target.options(), statement);
        statement.target.changed();
        return Scala.seq(new Object[] {RowFactory.create(counts)});
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

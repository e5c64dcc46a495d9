// Turns the only partition column of a relation into "the first field of the row", so that an expression over that column can
// be computed here, on a row that holds a file's number.
package mdt.spark;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.trees.TreeNode;

final class PartitionValue extends Replacement {
    Object of(Object node) {
        if (!(node instanceof AttributeReference)) {
            return null;
        }
        return new BoundReference(0, ((AttributeReference) node).dataType(), true);
    }

    /** Returns whether all filters, which name the partition column only, are true of a row with its value. */
    static boolean matches(InternalRow row, scala.collection.immutable.Seq filters) {
        for (Iterator i = Scala.list(filters).iterator(); i.hasNext(); ) {
            Expression bound = (Expression) ((TreeNode) i.next()).transform(new PartitionValue());
            if (!Boolean.TRUE.equals(bound.eval(row))) { // null is not true
                return false;
            }
        }
        return true;
    }
}

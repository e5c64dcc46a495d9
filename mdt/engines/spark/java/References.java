// Collects the columns that nodes of a plan refer to, and whether it has a join.
package mdt.spark;

import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class References extends AbstractFunction1 {
    AttributeSet all = AttributeSet$.MODULE$.empty();
    boolean joins = false;

    public Object apply(Object node) {
        joins |= node instanceof Join;
        all = all.$plus$plus(((LogicalPlan) node).references());
        return BoxedUnit.UNIT;
    }
}

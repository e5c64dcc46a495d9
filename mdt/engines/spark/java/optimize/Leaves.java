// Counts the relations, and other leaves, of a plan.
package mdt.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class Leaves extends AbstractFunction1 {
    int count = 0;

    public Object apply(Object node) {
        count += ((LogicalPlan) node).children().isEmpty() ? 1 : 0;
        return BoxedUnit.UNIT;
    }
}

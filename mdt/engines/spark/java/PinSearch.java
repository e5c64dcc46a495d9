// Collects the pins of all relations of ours in a plan; null is among them where a relation has none yet. Catalyst's method
// foreach takes a function of one argument, which is this, and calls it with every node.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class PinSearch extends AbstractFunction1 {
    final Set pins = new HashSet();

    public Object apply(Object node) {
        MdtFileIndex index = MdtFileIndex.of(node);
        if (index != null) {
            pins.add(index.pin);
        }
        return BoxedUnit.UNIT; // what a Scala function without a result returns
    }
}

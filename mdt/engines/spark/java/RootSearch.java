// Collects the roots of all tables of ours that a plan reads, as PinSearch collects pins.
package mdt.spark;

import java.util.HashSet;
import java.util.Set;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

final class RootSearch extends AbstractFunction1 {
    final Set roots = new HashSet();

    public Object apply(Object node) {
        MdtFileIndex index = MdtFileIndex.of(node);
        if (index != null) {
            roots.add(index.source.root);
        }
        return BoxedUnit.UNIT;
    }
}

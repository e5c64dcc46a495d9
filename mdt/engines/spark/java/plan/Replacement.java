// The shape of a rewriting step. A Catalyst plan, and an expression in it, is an immutable tree. To change one, its method
// transformDown, transformUp or transform is called with a Scala "partial function": it is applied to every node, and
// gives either another node, which takes the first one's place in a copy of the tree, or, where it is "not defined", leaves
// the node. With Scala that is a match with some cases; in Java it is this class with one method.
package mdt.spark;

import scala.Function1;
import scala.runtime.AbstractPartialFunction;

abstract class Replacement extends AbstractPartialFunction {
    /** Returns what takes the place of a node, or null if the node stays. */
    abstract Object of(Object node);

    public boolean isDefinedAt(Object node) {
        return of(node) != null;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        Object found = of(node);
        return found != null ? found : otherwise.apply(node);
    }
}

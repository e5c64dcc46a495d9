// A rewriting step of Catalyst's immutable trees of plans and expressions. The methods transformDown, transformUp and
// transform take a Scala partial function and apply it to every node. It returns a node that takes the place of the
// first one in a copy of the tree, or is "not defined" for nodes to keep. In Scala that is a match with cases. In Java
// it is this class with one method.
package mdt.spark;

import scala.Function1;
import scala.runtime.AbstractPartialFunction;

abstract class Replacement extends AbstractPartialFunction {
    /** Returns the replacement of a node, or null to keep it. */
    abstract Object of(Object node);

    public boolean isDefinedAt(Object node) {
        return of(node) != null;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        Object replacement = of(node);
        return replacement != null ? replacement : otherwise.apply(node);
    }
}

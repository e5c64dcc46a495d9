// Puts other columns in the place of those with the same ids. Catalyst tells columns apart by a number, the exprId, not by
// name: a condition on a column of one relation must be renamed before it can stand above another relation.
package mdt.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;

final class Renaming extends Replacement {
    private final Map names; // ExprId -> Attribute

    Renaming(Map names) {
        this.names = names;
    }

    Object of(Object node) {
        return node instanceof Attribute ? names.get(((Attribute) node).exprId()) : null;
    }
}

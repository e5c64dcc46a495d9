// A set of texts that rows are tested against; see KnownNumbers.
package mdt.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.expressions.Expression;

final class KnownTexts extends KnownValues implements Predicate {
    private Set known; // null: everything passes

    KnownTexts(Expression question) {
        super(question);
    }

    void know(Object[] values) {
        known = Answered.areFew(Arrays.asList(values)) ? new HashSet(Arrays.asList(values)) : null;
    }

    public boolean test(Object value) {
        return known == null || known.contains(value);
    }
}

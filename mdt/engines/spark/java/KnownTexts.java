// A set of texts that rows are tested against; see KnownNumbers.
package mdt.spark;

import java.io.Serializable;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.expressions.Expression;

final class KnownTexts implements KnownValues, Predicate, Serializable {
    private final transient Expression question;
    private Set known; // null: everything passes

    /** question: whose answer the values are. */
    KnownTexts(Expression question) {
        this.question = question;
    }

    public void know(Object[] values) {
        known = Answered.areFew(Arrays.asList(values)) ? new HashSet(Arrays.asList(values)) : null;
    }

    public boolean test(Object value) {
        return known == null || known.contains(value);
    }

    /** Equal questions have equal answers: Spark runs equal parts of a plan once. */
    public boolean equals(Object other) {
        return this == other || question != null && other instanceof KnownTexts && question.equals(((KnownTexts) other).question);
    }

    public int hashCode() {
        return question == null ? 0 : question.hashCode();
    }

    public String toString() {
        return "values of a join";
    }
}

// A set of values of another side of a join that rows are tested against. It stands in a plan before its values are known.
package mdt.spark;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.expressions.Expression;

abstract class KnownValues implements Serializable {
    private final transient Expression question;

    /** question: whose answer the values are. */
    KnownValues(Expression question) {
        this.question = question;
    }

    /** Takes values, null among them or not; before it does, and where they are too many, every row passes the test. */
    abstract void know(Object[] values);

    /** Equal questions have equal answers: Spark runs equal parts of a plan once. */
    public boolean equals(Object other) {
        return this == other || question != null && other instanceof KnownValues && question.equals(((KnownValues) other).question);
    }

    public int hashCode() {
        return question == null ? 0 : question.hashCode();
    }

    public String toString() {
        return "values of a join";
    }
}

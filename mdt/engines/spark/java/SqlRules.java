// Gives each new session its rules for SQL: what Spark calls with a session that it makes.
package mdt.spark;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class SqlRules extends AbstractFunction1 {
    /** Where a rule stands, as Spark's Analyzer calls it: before names are looked for, and when all are known. */
    static final String EARLY = "hintResolutionRules";
    static final String LATE = "postHocResolutionRules";
    private final String kind;

    SqlRules(String kind) {
        this.kind = kind;
    }

    static Rule of(String kind, SparkSession session) {
        return kind.equals(EARLY) ? (Rule) new TravelRule(session) : (Rule) new SqlRule(session);
    }

    public Object apply(Object session) {
        return of(kind, (SparkSession) session);
    }
}

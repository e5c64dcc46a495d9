// Gives each new session its rules for SQL: what Spark calls with a session that it makes.
package mdt.spark;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class SqlRules extends AbstractFunction1 {
    /** Where rules stand, as Spark's Analyzer calls it: before names are looked for, and when all are known. */
    static final String EARLY = "hintResolutionRules";
    static final String LATE = "postHocResolutionRules";
    static final String[] NAMES = {"travel", "call", "insert", "statements", "entries", "rows"};
    private final String name;

    SqlRules(String name) {
        this.name = name;
    }

    static String place(String name) {
        return name.equals("rows") ? LATE : EARLY;
    }

    static Rule of(String name, SparkSession session) {
        if (name.equals("travel")) {
            return new TravelRule(session);
        }
        if (name.equals("call")) {
            return new CallRule(session);
        }
        if (name.equals("insert")) {
            return new InsertRule(session);
        }
        if (name.equals("entries")) {
            return new EntryRule(session);
        }
        return name.equals("statements") ? (Rule) new StatementRule(session) : (Rule) new SqlRule(session);
    }

    public Object apply(Object session) {
        return of(name, (SparkSession) session);
    }
}

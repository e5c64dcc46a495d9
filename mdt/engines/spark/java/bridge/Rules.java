// Creates our rules for a session. Spark calls it for each session that is derived from an extended one.
package mdt.spark;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class Rules extends AbstractFunction1 {
    /**
     * Lists of Spark's Analyzer and optimizer: before names are resolved, after they are resolved, and before costs are
     * compared.
     */
    static final String EARLY = "hintResolutionRules";
    static final String LATE = "postHocResolutionRules";
    static final String COSTS = "preCBORules";
    private final String place;

    Rules(String place) {
        this.place = place;
    }

    static Rule of(String place, SparkSession session) {
        if (place.equals(EARLY)) {
            return new StatementRule(session);
        }
        return place.equals(LATE) ? (Rule) new CommandRule(session) : new MeasureRule(session);
    }

    public Object apply(Object session) {
        return of(place, (SparkSession) session);
    }
}

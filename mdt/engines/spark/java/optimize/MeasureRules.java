// Gives each session its MeasureRule: what Spark calls with a session whose plans it optimizes.
package mdt.spark;

import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class MeasureRules extends AbstractFunction1 {
    public Object apply(Object session) {
        return new MeasureRule((SparkSession) session);
    }
}

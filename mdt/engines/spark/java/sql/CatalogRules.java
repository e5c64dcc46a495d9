// Gives each new session its CatalogRule: what Spark calls with a session that it makes.
package mdt.spark;

import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class CatalogRules extends AbstractFunction1 {
    public Object apply(Object session) {
        return new CatalogRule((SparkSession) session);
    }
}

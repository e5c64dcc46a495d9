// mdt_changes('table', since [, until [, 'net' or 'all']]) in FROM: what changed in a table, as the options of the same names say it.
package mdt.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class ChangesFunction extends AbstractFunction1 {
    static final String NAME = "mdt_changes";
    private static final String[] OPTIONS = {null, "since", "until", "changes"};

    public Object apply(Object arguments) {
        SparkSession session = Constants.session();
        List given = Constants.texts(session, Scala.list((scala.collection.immutable.Seq) arguments));
        if (given.size() < 2 || given.size() > OPTIONS.length || given.get(0) == null || given.get(1) == null) {
            throw new IllegalArgumentException("Invalid: " + NAME + " takes a table, the point since which, one until which, and 'net' or 'all'");
        }
        Object options = Tables.options(session, (String) given.get(0)).updated("changes", "net");
        for (int i = 1; i < given.size(); i++) {
            if (given.get(i) != null) {
                options = ((scala.collection.immutable.Map) options).updated(OPTIONS[i], given.get(i));
            }
        }
        LogicalPlan found = Python.read(session, (scala.collection.immutable.Map) options, null).queryExecution().analyzed();
        return found;
    }
}

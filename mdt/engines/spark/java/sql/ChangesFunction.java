// mdt_changes('table', since [, until [, 'net' or 'all']]) in FROM: what changed in a table, as the options of the same names say it. Arguments
// may have names: table, and those of the options.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class ChangesFunction extends AbstractFunction1 {
    static final String NAME = "mdt_changes";
    private static final List OPTIONS = Arrays.asList(new Object[] {"table", "since", "until", "changes"});

    public Object apply(Object arguments) {
        SparkSession session = Constants.session();
        List given = Scala.list((scala.collection.immutable.Seq) arguments);
        List said = Constants.texts(session, values(given));
        String[] texts = new String[OPTIONS.size()];
        for (int i = 0; i < said.size(); i++) {
            texts[place(given.get(i), i)] = (String) said.get(i);
        }
        if (texts[0] == null || texts[1] == null) {
            throw refusal();
        }
        Object options = Tables.options(session, texts[0]).updated("changes", "net");
        for (int i = 1; i < texts.length; i++) {
            if (texts[i] != null) {
                options = ((scala.collection.immutable.Map) options).updated(OPTIONS.get(i), texts[i]);
            }
        }
        LogicalPlan found = Python.read(session, (scala.collection.immutable.Map) options, null).queryExecution().analyzed();
        return found;
    }

    private static List values(List given) {
        List found = new ArrayList();
        for (int i = 0; i < given.size(); i++) {
            Object each = given.get(i);
            found.add(each instanceof NamedArgumentExpression ? ((NamedArgumentExpression) each).value() : each);
        }
        return found;
    }

    /** Returns which argument one is. */
    private static int place(Object argument, int at) {
        int found = !(argument instanceof NamedArgumentExpression) ? at
                : OPTIONS.indexOf(((NamedArgumentExpression) argument).key().toLowerCase(Locale.ROOT));
        if (found < 0 || found >= OPTIONS.size()) {
            throw refusal();
        }
        return found;
    }

    private static Invalid refusal() {
        return new Invalid(NAME + " takes a table, since, until, and changes, which are net or all");
    }
}

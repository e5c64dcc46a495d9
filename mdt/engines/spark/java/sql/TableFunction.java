// Table functions: mdt_changes('table', since [, until [, 'net' or 'all']]) in FROM is what changed in a table, as the options of the same
// names say it; mdt_history('table'), mdt_files and mdt_snapshots are what is known of one. Arguments may have names.
package mdt.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

final class TableFunction extends AbstractFunction1 {
    static final String PREFIX = "mdt_";
    private static final String[] TABLE = {"table"};
    private final String name;
    private final List parameters;
    private final int needed; // how many of the parameters

    private TableFunction(String name, String[] parameters, int needed) {
        this.name = name;
        this.parameters = Arrays.asList((Object[]) parameters);
        this.needed = needed;
    }

    static TableFunction of(String name) {
        return name.equals("changes") ? new TableFunction(name, new String[] {"table", "since", "until", "changes"}, 2)
                : new TableFunction(name, TABLE, 1);
    }

    public Object apply(Object arguments) {
        SparkSession session = Constants.session();
        List given = Scala.list((scala.collection.immutable.Seq) arguments);
        List said = Constants.texts(session, values(given));
        String[] texts = new String[parameters.size()];
        for (int i = 0; i < said.size(); i++) {
            texts[place(given.get(i), i)] = (String) said.get(i);
        }
        for (int i = 0; i < needed; i++) {
            if (texts[i] == null) {
                throw refusal();
            }
        }
        Object options = Tables.options(session, texts[0]);
        for (int i = 1; i < texts.length; i++) {
            if (texts[i] != null) {
                options = ((scala.collection.immutable.Map) options).updated(parameters.get(i), texts[i]);
            }
        }
        LogicalPlan found = Python.function(session, (scala.collection.immutable.Map) options, name).queryExecution().analyzed();
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
    private int place(Object argument, int at) {
        int found = !(argument instanceof NamedArgumentExpression) ? at
                : parameters.indexOf(((NamedArgumentExpression) argument).key().toLowerCase(Locale.ROOT));
        if (found < 0 || found >= parameters.size()) {
            throw refusal();
        }
        return found;
    }

    private Invalid refusal() {
        return new Invalid(PREFIX + name + " takes a " + String.join(", ", parameters)
                + (needed < parameters.size() ? "; the first " + needed + " are needed, and changes are net or all" : ""));
    }
}

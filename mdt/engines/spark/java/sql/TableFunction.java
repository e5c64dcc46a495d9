// Table functions in FROM: mdt_changes('table', since [, until [, 'net' or 'all']]) returns the changes of a table,
// like the options of the same names; mdt_history('table'), mdt_files and mdt_snapshots return its metadata. Arguments
// may be named.
package mdt.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Map;
import scala.runtime.AbstractFunction1;

final class TableFunction extends AbstractFunction1 {
    static final String PREFIX = "mdt_";
    private static final String[] TABLE = {"table"};
    private final String name;
    private final List parameters;
    private final int needed; // number of required parameters

    private TableFunction(String name, String[] parameters, int needed) {
        this.name = name;
        this.parameters = Arrays.asList(parameters);
        this.needed = needed;
    }

    static TableFunction of(String name) {
        return name.equals("changes") ? new TableFunction(name, new String[] {"table", "since", "until", "changes"}, 2)
                : new TableFunction(name, TABLE, 1);
    }

    public Object apply(Object arguments) {
        SparkSession session = Constants.session();
        List argumentList = Scala.list((scala.collection.immutable.Seq) arguments);
        List names = Constants.names(argumentList);
        List values = Constants.values(session, argumentList);
        String[] texts = new String[parameters.size()];
        for (int i = 0; i < values.size(); i++) {
            int place = "".equals(names.get(i)) ? i : parameters.indexOf(names.get(i));
            if (place < 0 || place >= texts.length) {
                throw refusal();
            }
            texts[place] = (String) values.get(i);
        }
        for (int i = 0; i < needed; i++) {
            if (texts[i] == null) {
                throw refusal();
            }
        }
        Map options = Tables.options(session, texts[0]);
        for (int i = 1; i < texts.length; i++) {
            if (texts[i] != null) {
                options = Scala.with(options, parameters.get(i), texts[i]);
            }
        }
        return Python.plan(Python.ask("function", session, options, name, null));
    }

    private Invalid refusal() {
        return new Invalid(PREFIX + name + " takes a " + String.join(", ", parameters)
                + (needed < parameters.size() ? "; the first " + needed + " are required, and changes are net or all" : ""));
    }
}

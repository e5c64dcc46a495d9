// SQL functions of mdt, for a session and its derived sessions.
package mdt.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.Tuple3;

final class Functions {
    private Functions() {}

    static void known(SparkSession session) {
        SparkSessionExtensions ours = new SparkSessionExtensions(); // releases qualify function names differently
        into(ours);
        if (session.catalog().functionExists(MatchFunction.NAME)) {
            return; // already registered, or a user's function
        }
        ours.registerFunctions(session.sessionState().functionRegistry());
        ours.registerTableFunctions(session.sessionState().tableFunctionRegistry());
        into(session.extensions());
    }

    private static void into(SparkSessionExtensions extensions) {
        for (String table : new String[] {"changes", "files", "history", "snapshots"}) {
            extensions.injectTableFunction(said(TableFunction.PREFIX + table, TableFunction.of(table)));
        }
        extensions.injectFunction(said(MatchFunction.NAME, new MatchFunction()));
    }

    private static Tuple3 said(String name, Function1 function) {
        return new Tuple3(new FunctionIdentifier(name), new ExpressionInfo("mdt.spark.Functions", name), function);
    }
}

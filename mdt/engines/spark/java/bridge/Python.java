// Calls from the data source to Python, which opens, reads and writes tables (mdt/source). Python registers a function
// that takes an array with the request (mdt/engines/spark/source.py). The answer is a frame, a text that begins with
// "=", or the text of an error. For a stream or its sink, the answer is another function for its further requests,
// which keeps the table open.
package mdt.spark;

import java.util.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

final class Python {
    private static final String SEPARATOR = "\u001e";
    private static volatile Function answers;

    private Python() {}

    static void answeredBy(Function function) {
        answers = function;
    }

    /** Returns the plan of a table. columns: the columns that Spark expects, as JSON, or null for any. */
    static LogicalPlan read(SparkSession session, Map options, String columns) {
        return plan(ask("read", session, options, columns, null));
    }

    /**
     * Writes rows; returns the plan of the table afterwards. mode: a SaveMode, or "into" or "overwrite" of an INSERT.
     */
    static LogicalPlan write(SparkSession session, Map options, String mode, org.apache.spark.sql.Dataset rows) {
        WrittenRows query = new WrittenRows((org.apache.spark.sql.classic.SparkSession) session, options, plan(rows), null);
        LogicalPlan written = plan(ask("write", session, options, mode, query));
        Caches.renew(session, written);
        return written;
    }

    /** Returns the plan of the frame in an answer. */
    static LogicalPlan plan(Object answer) {
        return ((Dataset) answer).queryExecution().analyzed();
    }

    /**
     * Returns the error for an unsupported statement. kind: the class of its Spark plan, or another key of
     * mdt/source/statements.py.
     */
    static RuntimeException refusal(SparkSession session, String kind) {
        ask("refuse", session, null, kind, null);
        return new IllegalStateException("not refused: " + kind);
    }

    /** Returns a frame, a function, or a text that begins with "=". request: its name, such as "read"; options: of a table, or null. */
    static Object ask(String request, SparkSession session, Map options, String text, Object extra) {
        if (answers == null) {
            throw new IllegalStateException("Python has exited: call mdt.spark.enable(spark) again");
        }
        return ask(answers, request, session, options, text, extra);
    }

    /** Calls a function that Python returned earlier. */
    static Object ask(Function function, String request, SparkSession session, Map options, String text, Object extra) {
        // As JSON, because every access to a Java map is a call from Python. Spark's map has case-insensitive names in
        // lower case.
        String optionsJson = options == null ? "{}" : Json.text(CollectionConverters.asJava(Pinned.given(options)));
        Object answer = Calls.call(function, new Object[] {request, session, optionsJson, text, extra});
        if (answer instanceof Throwable) {
            Platform.throwException((Throwable) answer); // an error of Spark that passed through Python
        }
        if (!(answer instanceof String) || ((String) answer).startsWith("=")) {
            return answer;
        }
        String[] error = ((String) answer).split(SEPARATOR, 4); // kind of mdt error, condition, SQLSTATE, message
        if (error[0].equals("Unsupported")) {
            throw new Unsupported(error[3]);
        }
        if (error[0].equals("Invalid")) {
            throw new Invalid(error[3]);
        }
        Platform.throwException(new Failed(error[1], error[2], error[0] + ": " + error[3]));
        return null; // unreachable
    }

    /** Returns the texts of an answer. */
    static String[] texts(Object answer) {
        String text = ((String) answer).substring(1);
        return text.isEmpty() ? new String[0] : text.split(SEPARATOR, -1);
    }
}

// The way of the data source to Python, which opens, reads and writes tables (mdt/source): one function that Python hands
// over, called with an array of what is asked (mdt/engines/spark/source.py lists it). It answers with a frame, with a text that begins with
// "=", or with one that says what is wrong; and for a stream, or for its batches, whose table it keeps open, with another function, which is
// asked from then on.
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

    /** Returns the plan of a table. columns: those that Spark expects, as JSON, null: whatever there are. */
    static LogicalPlan read(SparkSession session, Map options, String columns) {
        return plan(ask("read", session, options, columns, null));
    }

    /** Writes rows, and returns the plan of the table then. how: a SaveMode, or what an INSERT says ("into", "overwrite"). */
    static LogicalPlan write(SparkSession session, Map options, String how, Object rows) {
        LogicalPlan written = plan(ask("write", session, options, how, rows));
        Caches.renew(session, written);
        return written;
    }

    /** Returns the plan of a frame that Python has answered with. */
    static LogicalPlan plan(Object answer) {
        return ((Dataset) answer).queryExecution().analyzed();
    }

    /** Returns the error for a statement that cannot be carried out. kind: the class of Spark's plan of it, or what else mdt/source/statements.py knows. */
    static RuntimeException refusal(SparkSession session, String kind) {
        ask("refuse", session, null, kind, null);
        return new IllegalStateException("not refused: " + kind);
    }

    /** Returns a frame, a function, or a text that begins with "=". what: what is asked; options: of a table, null for none. */
    static Object ask(String what, SparkSession session, Map options, String text, Object more) {
        if (answers == null) {
            throw new IllegalStateException("Python has gone: call mdt.spark.enable(spark)");
        }
        return ask(answers, what, session, options, text, more);
    }

    /** The same of a function that Python has answered with. */
    static Object ask(Function who, String what, SparkSession session, Map options, String text, Object more) {
        // As JSON: each look into a map of Java's is a call for Python. Spark's own finds names in any case, and lists them in lower case.
        String said = options == null ? "{}" : Json.text(CollectionConverters.asJava(Pinned.given(options)));
        Object answer = Calls.call(who, new Object[] {what, session, said, text, more});
        if (answer instanceof Throwable) {
            Platform.throwException((Throwable) answer); // of Spark, on its way through Python
        }
        if (!(answer instanceof String) || ((String) answer).startsWith("=")) {
            return answer;
        }
        String[] error = ((String) answer).split(SEPARATOR, 4); // kind of an error of mdt, condition, SQLSTATE, and what it says
        if (error[0].equals("Unsupported")) {
            throw new Unsupported(error[3]);
        }
        if (error[0].equals("Invalid")) {
            throw new Invalid(error[3]);
        }
        Platform.throwException(new Failed(error[1], error[2], error[0] + ": " + error[3]));
        return null; // is not reached
    }

    /** Returns the texts that Python has answered with. */
    static String[] texts(Object answer) {
        String text = ((String) answer).substring(1);
        return text.isEmpty() ? new String[0] : text.split(SEPARATOR, -1);
    }
}

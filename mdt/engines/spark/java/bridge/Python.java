// The way of the data source to Python, which opens, reads and writes tables (mdt/source): one function that Python hands
// over, called with an array of what is asked. It answers with a frame, with a text that begins with "=", or with one that says
// what is wrong; and for a stream, or for its batches, whose table it keeps open, with another function, which is asked from then on.
package mdt.spark;

import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.jdk.javaapi.CollectionConverters;

final class Python {
    private static final String SEPARATOR = "\u001e";
    private static volatile Function answers;

    private Python() {}

    static void answeredBy(Function function) {
        answers = function;
    }

    /** Returns the frame of a table. columns: those that Spark expects, as JSON, null: whatever there are. */
    static Dataset read(SparkSession session, scala.collection.immutable.Map options, String columns) {
        return ask(new Object[] {"read", session, options(options), columns, null});
    }

    /** Writes rows, and returns the frame of the table then. how: a SaveMode, or what an INSERT says ("into", "overwrite"). */
    static Dataset write(SparkSession session, scala.collection.immutable.Map options, String how, Dataset rows) {
        Dataset written = ask(new Object[] {"write", session, options(options), how, rows});
        Caches.renew(session, written);
        return written;
    }

    /** Returns the names of the columns by which a table is partitioned. */
    static List partitions(SparkSession session, scala.collection.immutable.Map options) {
        return Arrays.asList(partitions(session, options, null));
    }

    /** Returns the paths of the partitions with rows that have some values, JSON, column -> value. */
    static String[] partitions(SparkSession session, scala.collection.immutable.Map options, String values) {
        return told(new Object[] {"partitions", session, options(options), values, null});
    }

    /** Opens the table of a stream, and returns what the stream asks from then on. */
    static Function stream(SparkSession session, scala.collection.immutable.Map options) {
        return (Function) asked(new Object[] {"stream", session, options(options), null, null});
    }

    /** Returns the columns of a stream; said: those that the user names, as JSON, null for none. */
    static StructType columns(Function stream, SparkSession session, String said) {
        return (StructType) DataType.fromJson(told(stream, new Object[] {"columns", session, said, null})[0]);
    }

    /** Returns the offset of the newest commit. */
    static String newest(Function stream, SparkSession session) {
        return told(stream, new Object[] {"newest", session, null, null})[0];
    }

    /** Returns how far the next batch of a stream goes, empty if nothing is new. last: where the stream ends, null if it does not. */
    static String offset(Function stream, SparkSession session, String start, boolean all, String last) {
        String[] found = told(stream, new Object[] {"offset", session, start, new Object[] {Boolean.valueOf(all), last}});
        return found.length == 0 ? "" : found[0];
    }

    /** Returns the rows of a stream from one offset, null for its beginning, to another; columns: those that it must have. */
    static Dataset batch(Function stream, SparkSession session, String start, String end, String columns) {
        return (Dataset) asked(stream, new Object[] {"batch", session, end, new Object[] {start, columns}});
    }

    /** Returns what batches of a query are written by. */
    static Function sink(SparkSession session) {
        return (Function) asked(new Object[] {"sink", session, "{}", null, null});
    }

    /** Writes a batch of a stream, unless the table has it. */
    static void batch(Function sink, SparkSession session, scala.collection.immutable.Map options, String mode, String query, long number,
            Dataset rows) {
        Object[] batch = {options(options), query, Long.valueOf(number), rows};
        told(sink, new Object[] {"write", session, mode, batch});
    }

    /** Returns the error for a statement that cannot be carried out. kind: the class of Spark's plan of it, or what else mdt/source/statements.py knows. */
    static RuntimeException refusal(SparkSession session, String kind) {
        ask(new Object[] {"refuse", session, "{}", kind, null});
        return new IllegalStateException("not refused: " + kind);
    }

    /** Alters columns, and returns the frame of the table. changes: of each what it is, the path of a column as JSON, and what it becomes, or null. */
    static Dataset alter(SparkSession session, scala.collection.immutable.Map options, List changes) {
        return ask(new Object[] {"alter", session, options(options), null, changes.toArray()});
    }

    /** Alters options of a table, null: to the default, and returns all names, in lower case, under which they may be given. */
    static String[] alterOptions(SparkSession session, scala.collection.immutable.Map options, List names, List values) {
        return told(new Object[] {"alter_options", session, options(options), null, new Object[] {names.toArray(), values.toArray()}});
    }

    /** Returns those of some options of an entry of the catalog that are of the machine. table: its name; null: it is to be made, and they are refused. */
    static String[] entry(SparkSession session, String table, List names) {
        return names.isEmpty() ? new String[0] : told(new Object[] {"entry", session, "{}", table, names.toArray()});
    }

    /** Carries out a statement that changes rows, and returns its counts. */
    static Object[] change(SparkSession session, scala.collection.immutable.Map options, Statement statement) {
        return counts(new Object[] {"change", session, options(options), statement.kind(), statement});
    }

    private static Object[] counts(Object[] request) {
        String[] found = told(request);
        Object[] counts = new Object[found.length];
        for (int i = 0; i < found.length; i++) {
            counts[i] = Long.valueOf(found[i]);
        }
        return counts;
    }

    /** Carries out a procedure, and returns its answer. */
    static Dataset call(SparkSession session, scala.collection.immutable.Map options, String name, List names, List values) {
        return ask(new Object[] {"call", session, options(options), name, new Object[] {names.toArray(), values.toArray()}});
    }

    /** Returns the columns of the answer of a procedure. */
    static StructType answer(SparkSession session, String name) {
        return ask(new Object[] {"answer", session, "{}", name, null}).schema();
    }

    /** Returns the rows of a table function. */
    static Dataset function(SparkSession session, scala.collection.immutable.Map options, String name) {
        return ask(new Object[] {"function", session, options(options), name, null});
    }

    /** Carries out an INSERT, and returns its counts. how: "into" or "overwrite". */
    static Object[] insert(SparkSession session, scala.collection.immutable.Map options, String how, Dataset rows) {
        return counts(new Object[] {"insert", session, options(options), how, rows});
    }

    /** Returns the regular expressions that say together what a match of words, by a tokenizer, says. */
    static String[] patterns(SparkSession session, List said) {
        return told(new Object[] {"match", session, "{}", null, said.toArray()});
    }

    private static String[] told(Object[] request) {
        return texts(asked(request));
    }

    private static String[] told(Function stream, Object[] request) {
        return texts(asked(stream, request));
    }

    private static String[] texts(Object answer) {
        String text = ((String) answer).substring(1);
        return text.isEmpty() ? new String[0] : text.split(SEPARATOR, -1);
    }

    private static Dataset ask(Object[] request) {
        return (Dataset) asked(request);
    }

    private static Object asked(Object[] request) {
        if (answers == null) {
            throw new IllegalStateException("Python has gone: call mdt.spark.enable(spark)");
        }
        return asked(answers, request);
    }

    /** Returns a frame, a function, or a text that begins with "=". */
    private static Object asked(Function who, Object[] request) {
        Object answer = Calls.call(who, request);
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

    /** Returns options as JSON: each look into a map of Java's is a call for Python. Spark's own finds names in any case, and lists them in lower case. */
    private static String options(scala.collection.immutable.Map options) {
        return CatalystJson.object(CollectionConverters.asJava(Pinned.given(options)));
    }
}

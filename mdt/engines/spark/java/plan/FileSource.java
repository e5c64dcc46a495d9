// The source of a frame's files: the planner in Python, and the recent versions of its file list (FileLists). A request
// is a call from the JVM to Python. It takes several milliseconds, and must not be made with a lock held, because
// Python may call the JVM in the meantime.
package mdt.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.collection.immutable.Seq;

final class FileSource {
    private static final int HAS_VERSION = 1; // flags of a reply, as in file_index.py
    private static final int HAS_WANTED = 2;
    private static final int HAS_FIGURES = 4;
    private static final int HAS_CHANGES = 8;
    final SparkContext context;
    final String root;
    final Set features; // names of MdtFileIndex
    final long footerBytes; // footer cache of an executor, 0 for none
    final long vectorBytes; // likewise for deletion vectors
    private final Function planner;
    private final long number;
    private final FileLists lists;

    /** number: of the planner in Python. */
    FileSource(Function planner, long number, SparkContext context, String root, Set features, long footerBytes, long vectorBytes,
            FileLists lists) {
        this.planner = planner;
        this.number = number;
        this.context = context;
        this.root = root;
        this.features = features;
        this.footerBytes = footerBytes;
        this.vectorBytes = vectorBytes;
        this.lists = lists;
    }

    /**
     * Returns the source of another frame of the same relation. It is not equal to this one, because cached rows of a
     * frame belong to that frame alone.
     */
    FileSource again() {
        return new FileSource(planner, number, context, root, features, footerBytes, vectorBytes, lists);
    }

    /** Returns the bytes of all files of the newest version. */
    long bytes() {
        if (lists.bytes() < 0) {
            ask(null, QueryKey.unpinned(), null, MdtFileIndex.ALL); // before the query is pinned, and without effect on its rows
        }
        return lists.bytes();
    }

    /**
     * Asks Python for the files that a query must read. pin, key: of the query; filters: Catalyst expressions that all
     * hold for the rows, or null; rows: the number of rows that is enough, or ALL.
     */
    Answer ask(Pin pin, String key, Seq filters, int rows) {
        String conditions = json(filters) + (rows == MdtFileIndex.ALL ? "" : ",\"rows\":" + rows);
        Answer earlier = pin == null ? null : (Answer) pin.known(this, conditions);
        if (earlier != null) {
            return earlier;
        }
        Map knownLists = lists.known(); // held during the call: versions that Python does not send must remain in memory
        long startNanos = System.nanoTime();
        ByteBuffer reply = Reply.body((byte[]) Calls.call(planner, "{\"query\":\"" + key + "\",\"known\":" + knownLists.keySet()
                + ",\"gone\":" + Json.text(Pin.gone()) + ",\"explain\":" + explains(pin) + ",\"filters\":" + conditions + "}"));
        Integer version = reply.getInt();
        int flags = reply.getInt();
        int[] positions = Reply.ints(reply, reply.getInt());
        byte[][] candidates = (flags & HAS_WANTED) != 0 ? Answer.bitmaps(reply, positions.length) : null;
        Figures figures = (flags & HAS_FIGURES) != 0 ? new Figures(reply, (System.nanoTime() - startNanos) / 1000000) : null;
        boolean isSent = (flags & (HAS_VERSION | HAS_CHANGES)) != 0;
        FileList before = (flags & HAS_CHANGES) != 0 ? (FileList) knownLists.get(reply.getInt()) : null;
        FileList files = isSent ? new FileList(before, reply, footerBytes > 0) : (FileList) knownLists.get(version);
        lists.remember(version, files);
        Answer answer = new Answer(version.intValue(), files, positions, candidates, figures);
        if (pin != null) {
            pin.agree(this, version);
            pin.keep(this, conditions, answer);
        }
        return answer;
    }

    /** Returns the receivers of explanations for a query, as JSON. */
    private String explains(Pin pin) {
        return Json.text(pin == null || !features.contains(MdtFileIndex.TOLD) ? Collections.EMPTY_LIST : pin.explains);
    }

    /** Returns the files of an answer in Spark's form. key: of the query that got the answer. */
    List files(Answer answer, String key) {
        List unknown = answer.unknown();
        if (!unknown.isEmpty()) {
            String request = "{\"query\":\"" + key + "\",\"version\":" + answer.number + ",\"dead\":" + unknown + "}";
            answer.know(unknown, Reply.body((byte[]) Calls.call(planner, request)));
        }
        return answer.files();
    }

    /**
     * Asks Python for estimates of the files that a query must read (Estimates). questions: lists of a source and a
     * text. Returns a list of answers, or null.
     */
    static JsonNode estimates(List questions) {
        List each = new ArrayList();
        for (Object item : questions) {
            List question = (List) item;
            each.add("{\"planner\":" + ((FileSource) question.get(0)).number
                    + ",\"query\":\"" + QueryKey.unpinned() + "\"," + question.get(1) + "}");
        }
        try {
            Function planner = ((FileSource) ((List) questions.get(0)).get(0)).planner;
            return Json.read(Reply.body((byte[]) Calls.call(planner, "{\"each\":" + each + "}")));
        } catch (RuntimeException failure) {
            return null;
        }
    }

    /**
     * Asks Python for aggregates over the rows that match filters. Null if this requires reading files. columns: names.
     */
    JsonNode totals(Pin pin, Seq filters, List columns) {
        return told(pin, "\"totals\":" + Json.text(columns), filters);
    }

    /** Asks Python for a value with at least count matching rows at or before it, or null if none is known. */
    JsonNode bound(Pin pin, Seq filters, Expression column, boolean descending, boolean nullsFirst, int count) {
        return told(pin, "\"top\":" + count + ",\"by\":" + CatalystJson.array(Arrays.asList(column)) + ",\"descending\":" + descending
                + ",\"nulls_first\":" + nullsFirst, filters);
    }

    /**
     * Returns Python's answer to an optimizer question, or null on error: the answer is optional, and a real problem
     * will recur.
     */
    private JsonNode told(Pin pin, String question, Seq filters) {
        String request = question + ",\"filters\":" + json(filters);
        JsonNode earlier = pin == null ? null : (JsonNode) pin.known(this, request);
        if (earlier != null) {
            return earlier;
        }
        String key = pin == null ? QueryKey.unpinned() : pin.key;
        try {
            JsonNode answer = Json.read(Reply.body((byte[]) Calls.call(planner, "{\"query\":\"" + key + "\"," + request + "}")));
            if (pin != null) {
                pin.keep(this, request, answer);
            }
            return answer;
        } catch (RuntimeException failure) {
            return null;
        }
    }

    static String json(Seq filters) {
        return CatalystJson.array(filters == null ? Collections.EMPTY_LIST : Scala.list(filters));
    }

    /** Returns the reader of deletion vectors for executors. conf: of the query, sent only if it may be needed. */
    Vectors vectors(Configuration conf) {
        return new Vectors(context, lists.hasDead() && features.contains(MdtFileIndex.FAR) ? conf : null, vectorBytes);
    }
}

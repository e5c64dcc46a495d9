// The identity of an optimized query, shared by all its mdt relations, including those in subqueries. Relations with
// the same pin are planned on one version of the table. The pin also caches Python's answers while the query exists,
// because Spark asks the same questions repeatedly.
package mdt.spark;

import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.internal.SQLConf;

final class Pin {
    static final String METRICS = "metrics"; // for Spark's UI
    private static final String EXPLAIN = "spark.mdt.explain";
    private static final String[] TOLD = {"log", METRICS};
    private static final AtomicLong NEXT = new AtomicLong();
    // Python keeps state for every pin until it is released. Java detects this with references that do not keep the pin
    // alive and that are queued after it was collected.
    private static final ReferenceQueue GONE = new ReferenceQueue();
    private static final Map LIVE = Collections.synchronizedMap(new HashMap()); // reference -> key
    final String key = "plan:" + NEXT.incrementAndGet();
    final List explains = new ArrayList(); // receivers of explanations, from the session that plans the query
    private final Map versions = new HashMap(); // source -> the version of its answers
    private final Set seenTexts = new HashSet();
    private final Map answers = new HashMap(); // source -> filters as JSON -> Answer; optimizer questions -> JsonNode

    Pin() {
        String setting = SQLConf.get().getConfString(EXPLAIN, "").toLowerCase(Locale.ROOT);
        for (String word : TOLD) {
            if (setting.indexOf(word) >= 0) {
                explains.add(word);
            }
        }
        LIVE.put(new WeakReference(this, GONE), key);
    }

    /** Stores the version of a source's answers, and fails if it changes, because the query would mix two versions. */
    synchronized void agree(FileSource source, Integer version) {
        Object before = versions.get(source);
        if (before != null && !before.equals(version)) {
            throw new IllegalStateException("the table's version changed during the query " + key + "; run the query again");
        }
        versions.put(source, version);
    }

    /** Returns a source's answer to the same filters or the same optimizer question, or null. */
    synchronized Object known(FileSource source, String question) {
        Map answersOfSource = (Map) answers.get(source);
        return answersOfSource == null ? null : answersOfSource.get(question);
    }

    synchronized void keep(FileSource source, String question, Object answer) {
        if (!answers.containsKey(source)) {
            answers.put(source, new HashMap());
        }
        ((Map) answers.get(source)).put(question, answer);
    }

    /** Returns true at the first call with a text: rules that change a plan are called again with their result. */
    synchronized boolean isFirst(String text) {
        return seenTexts.add(text);
    }

    /** Returns, once, the keys of queries that no longer exist. */
    static List gone() {
        List keys = new ArrayList();
        for (Object each = GONE.poll(); each != null; each = GONE.poll()) {
            keys.add(LIVE.remove(each));
        }
        return keys;
    }
}

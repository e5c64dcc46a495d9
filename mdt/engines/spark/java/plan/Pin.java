// The identity of one optimized query, shared by all relations of ours in it, those in its subqueries included: whatever
// holds the same pin is planned at one version of the table. It also remembers, for the time of the query, what Python
// answered, since Spark asks the same again and again.
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
    static final String METRICS = "metrics"; // those of Spark's UI
    private static final String EXPLAIN = "spark.mdt.explain";
    private static final String[] TOLD = {"log", METRICS};
    private static final AtomicLong NEXT = new AtomicLong();
    // Python keeps something for every pin until it hears that the pin is gone. Java tells by a reference that does not keep
    // its object alive and is put into a queue once the object was collected.
    private static final ReferenceQueue GONE = new ReferenceQueue();
    private static final Map LIVE = Collections.synchronizedMap(new HashMap()); // reference -> key
    final String key = "plan:" + NEXT.incrementAndGet();
    final List explains = new ArrayList(); // who is told of the query's plans, as its session says when it is planned
    private final Map versions = new HashMap(); // source -> the version that it answered from
    private final Set seen = new HashSet();
    private final Map answers = new HashMap(); // source -> filters as JSON -> Answer; questions of the optimizer -> JsonNode

    Pin() {
        String said = SQLConf.get().getConfString(EXPLAIN, "").toLowerCase(Locale.ROOT);
        for (int i = 0; i < TOLD.length; i++) {
            if (said.indexOf(TOLD[i]) >= 0) {
                explains.add(TOLD[i]);
            }
        }
        LIVE.put(new WeakReference(this, GONE), key);
    }

    /** Remembers the version that a source answered from, and refuses another one: the query would mix two. */
    synchronized void agree(FileSource source, Integer version) {
        Object before = versions.get(source);
        if (before != null && !before.equals(version)) {
            throw new IllegalStateException("the table's version changed within " + key + "; run the query again");
        }
        versions.put(source, version);
    }

    /** Returns what a source answered to the same filters, or to the same question of the optimizer, or null. */
    synchronized Object known(FileSource source, String asked) {
        Map known = (Map) answers.get(source);
        return known == null ? null : known.get(asked);
    }

    synchronized void keep(FileSource source, String asked, Object answer) {
        if (!answers.containsKey(source)) {
            answers.put(source, new HashMap());
        }
        ((Map) answers.get(source)).put(asked, answer);
    }

    /** Returns whether it is told something for the first time: rules that change a plan are called again with what they made of it. */
    synchronized boolean isFirst(String what) {
        return seen.add(what);
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

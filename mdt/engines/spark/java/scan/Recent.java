// An LRU cache of an executor, limited by bytes. Files never change, and keys identify the bytes of a value.
// Affinity.java makes Spark send queries to the executor that has cached a file. Hits and misses of tasks are counted
// for queries with metrics (TableScan.java).
package mdt.spark;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

final class Recent {
    static final Recent FOOTERS = new Recent(0); // FarStream.java
    static final Recent VECTORS = new Recent(2); // Vectors.java
    static final int COUNTS = 4;
    private static final ThreadLocal COUNTED = new ThreadLocal(); // long[]: hits and misses for each cache
    private final Map entries = new LinkedHashMap(16, 0.75f, true); // key -> Object[]: value, Long bytes
    private final int counter;
    private long size = 0;

    private Recent(int counter) {
        this.counter = counter;
    }

    /** Returns the cached value, or null. */
    synchronized Object get(Object key) {
        Object[] entry = (Object[]) entries.get(key);
        return entry == null ? null : entry[0];
    }

    /** Caches a value of this size, unless it exceeds the limit by itself. */
    synchronized void put(Object key, Object value, long bytes, long bytesMax) {
        if (bytes <= bytesMax) {
            Object[] before = (Object[]) entries.put(key, new Object[] {value, bytes});
            size += bytes - (before == null ? 0L : (Long) before[1]);
        }
        for (Iterator i = entries.values().iterator(); size > bytesMax && i.hasNext(); ) {
            size -= (Long) ((Object[]) i.next())[1];
            i.remove();
        }
    }

    /** Counts a hit or a miss of this thread. */
    void count(boolean isHit) {
        long[] counts = (long[]) COUNTED.get();
        if (counts != null) {
            counts[counter + (isHit ? 0 : 1)]++;
        }
    }

    /** Returns the counters of this thread, starting now. */
    static long[] counted() {
        COUNTED.set(new long[COUNTS]);
        return (long[]) COUNTED.get();
    }
}

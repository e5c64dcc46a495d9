// What one executor keeps in memory of what it has read, at most so many bytes: the oldest use goes first. Files never change, and keys
// say which bytes of which file a value is made of. Queries reach the executor that has something where Affinity.java asks Spark to
// send them. What tasks find and what they read is counted for the query that asks for figures (TableScan.java).
package mdt.spark;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

final class Recent {
    static final Recent FOOTERS = new Recent(0); // FarStream.java
    static final Recent VECTORS = new Recent(2); // Vectors.java
    static final int COUNTS = 4;
    private static final ThreadLocal COUNTED = new ThreadLocal(); // long[]: of each of them, found and read
    private final Map known = new LinkedHashMap(16, 0.75f, true); // key -> Object[]: value, Long bytes
    private final int counter;
    private long size = 0;

    private Recent(int counter) {
        this.counter = counter;
    }

    /** Returns what is kept, null: nothing. */
    synchronized Object get(Object key) {
        Object[] found = (Object[]) known.get(key);
        return found == null ? null : found[0];
    }

    /** Keeps a value of so many bytes among at most so many, if it is not larger by itself. */
    synchronized void put(Object key, Object value, long bytes, long bytesMax) {
        if (bytes <= bytesMax) {
            Object[] before = (Object[]) known.put(key, new Object[] {value, Long.valueOf(bytes)});
            size += bytes - (before == null ? 0L : ((Long) before[1]).longValue());
        }
        for (Iterator i = known.values().iterator(); size > bytesMax && i.hasNext(); ) {
            size -= ((Long) ((Object[]) i.next())[1]).longValue();
            i.remove();
        }
    }

    /** Counts something that this thread has found here, or has read. */
    void count(boolean found) {
        long[] counts = (long[]) COUNTED.get();
        if (counts != null) {
            counts[counter + (found ? 0 : 1)]++;
        }
    }

    /** Returns what this thread counts from here on. */
    static long[] counted() {
        COUNTED.set(new long[COUNTS]);
        return (long[]) COUNTED.get();
    }
}

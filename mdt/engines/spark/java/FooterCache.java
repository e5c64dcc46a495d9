// Footers of files on far stores, as bytes, in the memory of one executor: Spark reads the footer of a file for every split of
// every query, which from a store across a network is two requests before the first row. Files never change. Queries reach the
// executor that has a footer where Affinity.java asks Spark to send them.
package mdt.spark;

import java.io.IOException;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.hadoop.fs.FSDataInputStream;

final class FooterCache {
    private static final Map KNOWN = new LinkedHashMap(16, 0.75f, true); // path -> byte[], the oldest use first
    private static final ThreadLocal COUNTS = new ThreadLocal(); // long[]: found, read
    private static long size = 0;

    private FooterCache() {}

    /** Returns the footer of a block that was found here, null if it was not. */
    static byte[] found(String block) {
        synchronized (KNOWN) {
            byte[] footer = (byte[]) KNOWN.get(block);
            if (footer != null) {
                count(0);
            }
            return footer;
        }
    }

    /** Reads a footer, the last bytes of a block in a stream, compares it, and keeps it among at most so many bytes. */
    static byte[] read(String block, FSDataInputStream in, long at, int bytes, int crc, long bytesMax) throws IOException {
        byte[] footer = new byte[bytes];
        in.readFully(at, footer);
        CRC32 sum = new CRC32();
        sum.update(footer);
        Footers.compare(block, crc, (int) sum.getValue());
        synchronized (KNOWN) {
            count(1);
            size += KNOWN.put(block, footer) == null ? bytes : 0;
            for (Iterator i = KNOWN.values().iterator(); size > bytesMax && i.hasNext(); ) {
                size -= ((byte[]) i.next()).length;
                i.remove();
            }
        }
        return footer;
    }

    private static void count(int which) {
        long[] counts = (long[]) COUNTS.get();
        if (counts != null) {
            counts[which]++;
        }
    }

    /** Returns how many footers this thread has found, and how many it has read, from here on. */
    static long[] counted() {
        COUNTS.set(new long[2]);
        return (long[]) COUNTS.get();
    }
}

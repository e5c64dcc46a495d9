// Footers of files on far stores, as bytes, in the memory of one executor: Spark reads the footer of a file for every split of
// every query, which from a store across a network is two requests before the first row.
package mdt.spark;

import java.io.IOException;
import java.util.zip.CRC32;
import org.apache.hadoop.fs.FSDataInputStream;

final class FooterCache {
    private FooterCache() {}

    /** Returns the footer of a block that was found here, null if it was not. */
    static byte[] found(String block) {
        byte[] footer = (byte[]) Recent.FOOTERS.get(block);
        if (footer != null) {
            Recent.FOOTERS.count(true);
        }
        return footer;
    }

    /** Reads a footer, the last bytes of a block in a stream, compares it, and keeps it among at most so many bytes. */
    static byte[] read(String block, FSDataInputStream in, long at, int bytes, int crc, long bytesMax) throws IOException {
        byte[] footer = new byte[bytes];
        in.readFully(at, footer);
        CRC32 sum = new CRC32();
        sum.update(footer);
        Footers.compare(block, crc, (int) sum.getValue());
        Recent.FOOTERS.count(false);
        Recent.FOOTERS.put(block, footer, bytes, bytesMax);
        return footer;
    }
}

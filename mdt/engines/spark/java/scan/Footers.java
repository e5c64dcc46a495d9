// Compares footers with what the table's metadata say of them. A file has several splits, and is read again by the next query:
// what was found right is remembered for the life of the process, since files never change.
package mdt.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

final class Footers extends LinkedHashMap {
    private static final int KNOWN_MAX = 100000; // some 20 MB
    static final Configuration CONF = new Configuration(SparkHadoopUtil.get().conf());
    private static final Map RIGHT = Collections.synchronizedMap(new Footers());

    static {
        BlockFileSystem.install(CONF);
    }

    private Footers() {
        super(16, 0.75f, true); // the oldest use first
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
        return size() > KNOWN_MAX;
    }

    static void check(PartitionedFile file, int bytes, int crc) {
        Integer expected = Integer.valueOf(crc);
        String name = file.urlEncodedPath();
        if (!expected.equals(RIGHT.get(name))) {
            int got = crcOf(file.toPath(), file.fileSize() - bytes, bytes);
            compare(file.toPath().toString(), crc, got);
            RIGHT.put(name, expected);
        }
    }

    /** Fails if two checksums of the footer of a file or block differ. */
    static void compare(String name, int crc, int got) {
        if (got != crc) {
            Path path = new Path(name);
            throw new IllegalStateException("the footer of a data file is not as it was written: "
                    + (BlockFileSystem.isBlock(path) ? BlockFileSystem.file(path) : path) + ", expected "
                    + Integer.toHexString(crc) + ", got " + Integer.toHexString(got));
        }
    }

    private static int crcOf(Path path, long offset, int bytes) {
        byte[] footer = new byte[bytes];
        try {
            FSDataInputStream in = path.getFileSystem(CONF).open(path);
            try {
                in.readFully(offset, footer);
            } finally {
                in.close();
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        CRC32 sum = new CRC32();
        sum.update(footer);
        return (int) sum.getValue();
    }
}

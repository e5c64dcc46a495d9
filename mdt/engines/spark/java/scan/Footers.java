// Verifies footers with the table's metadata. A file has several splits and is read by several queries. Verified
// footers are remembered for the life of the process, because files never change.
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
    private static final int KNOWN_MAX = 100000; // about 20 MB
    static final Configuration CONF = new Configuration(SparkHadoopUtil.get().conf());
    private static final Map RIGHT = Collections.synchronizedMap(new Footers());

    static {
        BlockFileSystem.install(CONF);
    }

    private Footers() {
        super(16, 0.75f, true); // least recently used first
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
        return size() > KNOWN_MAX;
    }

    static void check(PartitionedFile file, int bytes, int crc) {
        Integer expected = crc;
        String name = file.urlEncodedPath();
        if (!expected.equals(RIGHT.get(name))) {
            read(file.toPath(), file.fileSize() - bytes, bytes, crc);
            RIGHT.put(name, expected);
        }
    }

    private static void read(Path path, long offset, int bytes, int crc) {
        try {
            FSDataInputStream stream = path.getFileSystem(CONF).open(path);
            try {
                read(path, stream, offset, bytes, crc);
            } finally {
                stream.close();
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Reads the footer of a file or block from its stream. Fails if it differs from the written footer. */
    static byte[] read(Path path, FSDataInputStream stream, long offset, int bytes, int crc) throws IOException {
        byte[] footer = new byte[bytes];
        stream.readFully(offset, footer);
        CRC32 sum = new CRC32();
        sum.update(footer);
        if ((int) sum.getValue() != crc) {
            throw new IllegalStateException("the footer of a data file is not as it was written: "
                    + (BlockFileSystem.isBlock(path) ? BlockFileSystem.file(path) : path) + ", expected "
                    + Integer.toHexString(crc) + ", got " + Integer.toHexString((int) sum.getValue()));
        }
        return footer;
    }
}

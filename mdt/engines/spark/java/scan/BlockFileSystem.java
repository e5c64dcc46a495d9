// A part of a file of any file system as a separate file. Spark can thus read the data block of a log file in place,
// because a block is a complete Parquet file. Hadoop finds a file system by the scheme of a path. These paths are
//
//     mdtblock:/<offset>-<bytes>-<bytes of the whole file>-<bytes of the footer>-<its CRC-32>/<URI of the file in base64>
//
// Whole files of remote stores are blocks, too, if executors cache footers (FarStream.java). Other blocks have a footer
// of 0 bytes. Only the configuration of our scans knows this file system, not the session.
package mdt.spark;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class BlockFileSystem extends FileSystem {
    static final String FOOTERS = "mdt.footers.bytes"; // footer cache size of an executor
    private static final String SCHEME = "mdtblock";
    private static final long HDFS_BLOCK_BYTES = 128L << 20; // Hadoop's value for local files

    /** Registers paths of blocks in a configuration. */
    static void install(Configuration conf) {
        conf.set("fs." + SCHEME + ".impl", BlockFileSystem.class.getName());
        // Hadoop caches file systems for the life of the process, with the class loader of the first query.
        conf.set("fs." + SCHEME + ".impl.disable.cache", "true");
        conf.setClassLoader(BlockFileSystem.class.getClassLoader());
    }

    static String path(String uri, long offset, long bytes, long fileBytes, int footerBytes, int footerCrc) {
        String name = Base64.getUrlEncoder().withoutPadding().encodeToString(uri.getBytes(StandardCharsets.UTF_8));
        return SCHEME + ":/" + offset + "-" + bytes + "-" + fileBytes + "-" + footerBytes + "-" + (footerCrc & 0xffffffffL) + "/" + name;
    }

    static boolean isBlock(Path path) {
        return SCHEME.equals(path.toUri().getScheme());
    }

    /** Returns the file that contains a block. */
    static Path file(Path block) {
        byte[] uri = Base64.getUrlDecoder().decode(block.getName());
        return new Path(URI.create(new String(uri, StandardCharsets.UTF_8)));
    }

    static long offset(Path block) {
        return number(block, 0);
    }

    static long bytes(Path block) {
        return number(block, 1);
    }

    static long fileBytes(Path block) {
        return number(block, 2);
    }

    static int footerBytes(Path block) {
        return (int) number(block, 3);
    }

    static int footerCrc(Path block) {
        return (int) number(block, 4);
    }

    private static long number(Path block, int index) {
        return Long.parseLong(block.getParent().getName().split("-")[index]);
    }

    public String getScheme() {
        return SCHEME;
    }

    public URI getUri() {
        return URI.create(SCHEME + ":///");
    }

    public Path getWorkingDirectory() {
        return new Path(SCHEME + ":/");
    }

    public void setWorkingDirectory(Path path) {}

    public FSDataInputStream open(Path block, int buffer) throws IOException {
        if (footerBytes(block) > 0) {
            return new FSDataInputStream(new FarStream(block, getConf()));
        }
        Path file = file(block);
        FSDataInputStream stream = file.getFileSystem(getConf()).open(file, buffer);
        return new FSDataInputStream(new BlockStream(stream, offset(block), bytes(block)));
    }

    public FileStatus getFileStatus(Path block) throws IOException {
        return new FileStatus(bytes(block), false, 1, HDFS_BLOCK_BYTES, 0L, block);
    }

    public BlockLocation[] getFileBlockLocations(FileStatus status, long start, long length) throws IOException {
        Path file = file(status.getPath());
        return file.getFileSystem(getConf()).getFileBlockLocations(file, offset(status.getPath()) + start, length);
    }

    public FileStatus[] listStatus(Path block) throws IOException {
        return new FileStatus[] {getFileStatus(block)};
    }

    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        throw new UnsupportedOperationException("blocks are read only");
    }

    public boolean delete(Path path, boolean recursive) throws IOException {
        throw new UnsupportedOperationException("blocks are read only");
    }

    public boolean rename(Path source, Path target) throws IOException {
        throw new UnsupportedOperationException("blocks are read only");
    }

    public FSDataOutputStream append(Path path, int buffer, Progressable progress) throws IOException {
        throw new UnsupportedOperationException("blocks are read only");
    }

    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int buffer, short replication,
            long block, Progressable progress) throws IOException {
        throw new UnsupportedOperationException("blocks are read only");
    }
}
